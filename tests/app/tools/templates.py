"""Chat templates that write calls as families of models were taught to, and nothing else of theirs."""

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

NO_TOOLS = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}<|assistant|>"
