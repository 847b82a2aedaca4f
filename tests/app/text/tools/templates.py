"""Chat templates that write calls as families of models were taught to, and nothing else of theirs."""

from app.text.tools.call_format import CallForm, PairForm

HERMES = """
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == "tool" %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ m.role }}{% if m.content or not m.tool_calls %}{{ '\\n' + m.content }}{% endif %}
{%- for c in m.tool_calls %}
{{- '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}<|im_end|>
{% endif %}
{%- endfor %}<|im_start|>assistant
"""

# Thinks before it answers; an answer without a thought has an empty one.
THINKING = HERMES.replace(
    "{% if m.content or not m.tool_calls %}{{ '\\n' + m.content }}{% endif %}",
    "{% if m.role == 'assistant' %}{{ '\\n<think>\\n\\n</think>\\n\\n' }}{% endif %}"
    "{% if m.role != 'assistant' %}{{ '\\n' }}{% endif %}{{ m.content }}",
).replace("'\\n<tool_call>", "('\\n' if m.content or not loop.first else '') + '<tool_call>")

LLAMA = """
{%- if tools %}<|sys|>{{ tools | tojson(indent=4) }}<|eot|>{% endif %}
{%- for m in messages %}
{%- if 'tool_calls' in m %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception("one call at a time") }}{% endif %}
{%- set c = m.tool_calls[0].function %}
{{- '<|head|>assistant<|end|>\\n\\n' + '{"name": "' + c.name + '", "parameters": ' + c.arguments | tojson + '}<|eot|>' }}
{%- else %}
{{- '<|head|>' + m.role + '<|end|>\\n\\n' + m.content + '<|eot|>' }}
{%- endif %}
{%- endfor %}<|head|>assistant<|end|>

"""

LISTED = """
{%- if tools %}{{ '[AVAILABLE_TOOLS] ' + tools | tojson }}{% endif %}
{%- for m in messages %}
{%- if m.tool_calls %}
{{- ' [TOOL_CALLS] [' }}
{%- for c in m.tool_calls %}
{{- '{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson }}
{{- ', "id": "' + c.id + '"' if ids }}{{ '}' }}{{ ', ' if not loop.last }}
{%- endfor %}
{{- ']</s>' }}
{%- elif m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}
{%- else %}{{ ' ' + m.content + '</s>' }}
{%- endif %}
{%- endfor %}"""

NAME_FIRST = """
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ m.content }}
{%- for c in m.tool_calls %}{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' + c.function.arguments | tojson }}{% endfor %}
{{- '</s>' }}
{%- else %}{{ '[INST]' + m.content + '[/INST]' }}
{%- endif %}
{%- endfor %}"""

NO_JSON = HERMES.replace(
    """{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}""",
    """<function=' + c.function.name + '>' + (c.function.arguments | list | join) + '""",
)

# Qwen 3 Coder, and Qwen 3.5: each argument for itself, texts as they are, all else as JSON.
CODER = """
{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t.function.name }}{% for k, v in t.function.parameters.properties|items %}{{ k }}{% endfor %}{% endfor %}<|im_end|>
{% endif %}
{%- for m in messages %}
{%- if m.role == "assistant" and m.tool_calls is defined and m.tool_calls is iterable and m.tool_calls | length > 0 %}
{{- '<|im_start|>' + m.role }}
{%- if m.content is defined and m.content is string and m.content | trim | length > 0 %}
{{- '\\n' + m.content | trim + '\\n' }}
{%- endif %}
{%- for c in m.tool_calls %}
{%- set c = c.function %}
{{- '\\n<tool_call>\\n<function=' + c.name + '>\\n' }}
{%- for name, value in c.arguments|items %}
{{- '<parameter=' + name + '>\\n' }}
{%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
{{- value }}
{{- '\\n</parameter>\\n' }}
{%- endfor %}
{{- '</function>\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif m.role == "tool" %}
{{- '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response>\\n<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}<|im_start|>assistant
"""

CODER_FORM = CallForm(
    "<tool_call>\n<function=",
    ">\n",
    "</function>\n</tool_call>",
    "\n",
    PairForm("<parameter=", ">\n", "\n</parameter>\n"),
)

# GLM 4.5: a key and a value have tags of their own.
GLM = """[gMASK]<sop>
{%- if tools %}<|system|>
{{ tools | tojson(ensure_ascii=False) }}
{%- endif %}
{%- for m in messages %}
{%- if m.role == "assistant" %}<|assistant|>
{%- if m.content.strip() %}{{ '\\n' + m.content.strip() }}{% endif %}
{%- for c in m.tool_calls %}
{%- set c = c.function %}
{{ '\\n<tool_call>' + c.name }}
{% for k, v in c.arguments.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>
{%- endfor %}
{%- elif m.role == "tool" %}<|observation|>
<tool_response>
{{ m.content }}
</tool_response>
{%- else %}<|{{ m.role }}|>
{{ m.content }}
{%- endif %}
{%- endfor %}<|assistant|>"""

GLM_FORM = CallForm(
    "<tool_call>",
    "\n",
    "</tool_call>",
    "\n",
    PairForm("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
)

# MiniMax M2: all calls of an answer stand in one pair of tags.
MINIMAX = """
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{%- if m.role == "assistant" %}{{ ']~b]ai\\n' + m.content }}
{%- if m.tool_calls %}
{{- '\\n<minimax:tool_call>\\n' }}
{%- for c in m.tool_calls %}
{{- '<invoke name="' + c.function.name + '">' }}
{%- for k, v in c.function.arguments.items() %}
{{- '\\n<parameter name="' + k + '">' }}{{ v | tojson if v is not string else v }}{{ '</parameter>' }}
{%- endfor %}
{{- '\\n</invoke>\\n' }}
{%- endfor %}
{{- '</minimax:tool_call>' }}
{%- endif %}{{ '[e~[\\n' }}
{%- else %}{{ ']~b]' + m.role + '\\n' + m.content + '[e~[\\n' }}
{%- endif %}
{%- endfor %}]~b]ai
"""

NO_TOOLS = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}<|assistant|>"
