"""The model's own chat template, rendered in Jinja's immutable sandbox."""

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.turn import Message
from engine.errors import InvalidRequest, ModelUnusable


class ChatTemplate:
    """Messages to prompt text, as the model was trained to read them."""

    def __init__(self, source: str, specials: dict[str, str]) -> None:
        """``specials`` are the names templates use, such as ``bos_token``, and their texts."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise ModelUnusable(f"the model's chat template is not valid Jinja: {error}") from error
        self._specials = specials

    @classmethod
    def load(cls, folder: Path) -> "ChatTemplate":
        """From chat_template.jinja, or else the entry in tokenizer_config.json."""
        config = read_json(folder / "tokenizer_config.json")
        source = _source(folder, config)
        if source is None:
            raise ModelUnusable(
                f"{folder} has no chat template (chat_template.jinja, or chat_template in "
                "tokenizer_config.json); choose an instruction-tuned model"
            )
        names = (name for name in config if name.endswith("_token"))
        texts = ((name, token_text(config[name])) for name in names)
        return cls(source, {name: text for name, text in texts if text is not None})

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt text, open for the assistant's answer; raises InvalidRequest."""
        plain = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return self._template.render(
                messages=plain, add_generation_prompt=True, tools=None, **self._specials
            )
        except (TemplateError, ValueError, TypeError, ArithmeticError) as error:
            raise InvalidRequest(
                f"the model's chat template refuses this conversation: {error}"
            ) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model's folder; empty when there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelUnusable(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelUnusable(f"{path} holds {type(value).__name__}, not an object")
    return value


def token_text(value: object) -> str | None:
    """A special token's text: configs write it plain or as an object with ``content``."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _source(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):  # several named templates
        named = {entry["name"]: entry["template"] for entry in source}
        source = named.get("default")
    return source if isinstance(source, str) else None


def _tojson(value: object, indent: int | None = None) -> str:
    """As transformers has it: Jinja's own filter would escape HTML characters."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
