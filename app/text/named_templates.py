"""Chat templates for models that bring none, by name or out of a file; and texts to be continued."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from app.errors import SettingsError
from app.request import Message
from engine.errors import InvalidRequest

_SYSTEM = "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
_TALK = "{% for m in messages if m.role != 'system' %}"
TEMPLATES: Mapping[str, str] = MappingProxyType({
    "chatml": (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "llama2": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] "
        "{% if loop.index0 == 1 and messages[0].role == 'system' %}<<SYS>>\n{{ messages[0].content }}"
        "\n<</SYS>>\n\n{% endif %}{{ m.content }} [/INST]{% elif m.role == 'assistant' %} "
        "{{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
    ),
    "llama3": (
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content }}<|eot_id|>{% endfor %}"
        "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
    ),
    "mistral": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}"
        "{{ eos_token }}{% elif m.role == 'user' %}[INST] {% if loop.index0 == 1 and "
        "messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}{{ m.content }} "
        "[/INST]{% endif %}{% endfor %}"
    ),
    "gemma": (
        "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' "
        "else 'user' }}\n{{ m.content }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
    "phi3": (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
    "zephyr": (
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
    ),
    "alpaca": (
        f"{_SYSTEM}{_TALK}{{% if m.role == 'user' %}}\n\n### Instruction:\n{{{{ m.content }}}}"
        "\n\n### Response:\n{% else %}{{ m.content }}{% endif %}{% endfor %}"
    ),
    "vicuna": (
        f"{_SYSTEM}{_TALK}{{% if m.role == 'user' %}}\n\nUSER: {{{{ m.content }}}}\nASSISTANT:"
        "{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
    ),
})  # fmt: skip


class NoTemplate:
    """In place of the template of a base model, which continues texts and knows no messages."""

    takes_reasoning = False

    def render(self, *_: object) -> NoReturn:
        """Raises InvalidRequest, which says how to chat all the same."""
        raise InvalidRequest(
            "this model has no chat template: it continues texts (/v1/completions) and does not "
            "chat; to chat, start Slipstream with --chat-template and a name "
            f"({', '.join(TEMPLATES)}) or the file of a template"
        )


def template_source(name: str) -> str:
    """The template of that name, or the content of that file; raises SettingsError."""
    if name in TEMPLATES:
        return TEMPLATES[name]
    try:
        return Path(name).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, ValueError, RuntimeError) as error:
        raise SettingsError(
            f"there is no chat template {name!r}, and no file of that name that can be read; "
            f"choose {', '.join(TEMPLATES)}, or name a file"
        ) from error


def document(messages: Sequence[Message]) -> str:
    """The messages as one text to be continued: answers continue what was written before them."""
    text = ""
    for message in messages:
        apart = text and not text[-1].isspace() and message.role != "assistant"
        text += ("\n" if apart else "") + message.content
    return text
