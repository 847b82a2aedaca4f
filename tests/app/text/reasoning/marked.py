"""Models with marks of their own around a thought: a small real tokenizer, templates of their shapes."""

from pathlib import Path

from app.text.chat_text import ChatText
from app.text.reasoning.markers import ReasoningMarkers
from app.text.template import ChatTemplate
from app.text.vocabulary import FolderVocabulary
from tests.app.byte_level import byte_level
from tests.app.text.parsing import Vocabulary

CONTROL = (
    "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>",
    "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|START_THINKING|>",
    "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_TEXT|>", "<|END_TEXT|>",
    "<seed:bos>", "<seed:eos>",
)  # fmt: skip
LINES = (
    "<seed:think> </seed:think> thought model assistant user",
    "The sum of 17 and 25 is 42, so that is what I say.",
    '{"a": 17, "b": 25} <think> </think>',
)

# Shortened, with the same shapes. Gemma 4's writes a thought only with a call.
GEMMA = """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|turn>model\\n' }}
{%- if m.tool_calls %}
{%- if m.reasoning_content %}{{ '<|channel>thought\\n' + m.reasoning_content + '\\n<channel|>' }}{% endif %}
{%- for c in m.tool_calls %}{{ '<|tool_call>call:' + c.function.name + '<tool_call|>' }}{% endfor %}
{%- endif %}{{ m.content + '<turn|>\\n' }}
{%- else %}{{ '<|turn>' + m.role + '\\n' + m.content + '<turn|>\\n' }}
{%- endif %}
{%- endfor %}{{ '<|turn>model\\n' }}
{%- if not enable_thinking | default(true) %}{{ '<|channel>thought\\n<channel|>' }}{% endif %}"""
SEED = """{%- for m in messages %}{{ '<seed:bos>' + m.role + '\\n' }}
{%- if m.reasoning_content %}{{ '<seed:think>' + m.reasoning_content + '</seed:think>\\n' }}{% endif %}
{%- for c in m.tool_calls or [] %}{{ '<seed:tool_call>' + c.function.name + '</seed:tool_call>' }}{% endfor %}
{{- m.content + '<seed:eos>' }}
{%- endfor %}{{ '<seed:bos>assistant\\n' }}"""
# It shows the marks of thoughts that were none, too, and opens the next one.
COHERE = """{%- for m in messages %}
{%- if m.role == 'assistant' %}{{ '<|CHATBOT_TOKEN|><|START_THINKING|>' + (m.reasoning or '') + '<|END_THINKING|>' }}
{%- if m.tool_calls %}{{ '<|START_ACTION|>' + m.tool_calls[0].function.name + '<|END_ACTION|>' }}
{%- else %}{{ '<|START_TEXT|>' + m.content + '<|END_TEXT|>' }}{% endif %}
{%- else %}{{ '<|USER_TOKEN|>' + m.content }}
{%- endif %}{{ '<|END_OF_TURN_TOKEN|>' }}
{%- endfor %}{{ '<|CHATBOT_TOKEN|><|START_THINKING|>' }}"""

OF_GEMMA = ReasoningMarkers("<|channel>thought\n", "\n<channel|>")
OF_SEED = ReasoningMarkers("<seed:think>", "</seed:think>\n")
OF_COHERE = ReasoningMarkers("<|START_THINKING|>", "<|END_THINKING|>")
MARKS = {GEMMA: OF_GEMMA, SEED: OF_SEED, COHERE: OF_COHERE}


TOKENIZER = byte_level(CONTROL, LINES)
VOCABULARY = FolderVocabulary(TOKENIZER)
TOKENS = Vocabulary(TOKENIZER)
ids_of, typed, shown = TOKENS.ids_of, TOKENS.typed, TOKENS.shown


def text_of(template: str) -> ChatText:
    """Such a model's."""
    return ChatText(VOCABULARY, ChatTemplate(template, {}), ())


def files(folder: Path, template: str) -> Path:
    """The folder of such a model, without its weights."""
    return TOKENS.save(folder, template, "<|END_OF_TURN_TOKEN|>")
