"""Commands of the chat, and the settings that come with each."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.request import AS_TAUGHT, SAMPLING, ReplyOptions, Thinking
from engine.errors import InvalidRequest
from engine.request import AUTO
from ui.tab import Command


class Settings(BaseModel):
    """How answers are generated and shown; the page keeps these in the browser."""

    model_config = ConfigDict(allow_inf_nan=False)

    mode: str = AUTO
    temperature: float | None = None  # None, here and below: the model's own
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat: float | None = None
    max_tokens: int | None = None  # None: half of the context
    seed: int | None = None
    look: Literal["auto", "markdown", "text"] = "auto"
    overlay: bool = False
    thinking: Thinking = AS_TAUGHT

    def options(self, context: int) -> ReplyOptions:
        """For the assistant; half of ``context`` tokens is the default longest answer, 0 sets no limit."""
        return ReplyOptions(
            max_tokens=self.max_tokens or (max(1, context // 2) if context else None),
            drafter=self.mode,
            unset=frozenset(name for name in SAMPLING if getattr(self, name) is None),
            **self.model_dump(include={*SAMPLING, "seed", "thinking"}, exclude_none=True),
        )


_LABELS = {"top_k": "Top k", "max_tokens": "Longest answer", "repeat": "Repetition penalty"}


def valid_settings(wanted: Mapping[str, Any], before: Settings) -> tuple[Settings, str]:
    """``wanted``, where each invalid value stays as it was ``before``; and a sentence about the first.

    The page sends its settings with every command, so an invalid one must not stop the command.
    """
    try:
        return Settings.model_validate(wanted), ""
    except ValidationError as error:
        found = error.errors()
    known = before.model_dump()
    invalid = {str(each["loc"][0]): each for each in found}
    settings = Settings.model_validate({**wanted, **{name: known[name] for name in invalid}})
    name, first = next(iter(invalid.items()))
    label = _LABELS.get(name, name.replace("_", " ").capitalize())
    whole = first["type"].startswith("int")
    reason = "it must be a whole number" if whole else first["msg"].lower()
    return settings, f"{label} cannot be {first['input']}: {reason}; it was not changed"


class ChatCommand(Command):
    """``id`` is of the conversation or message that the command is about."""

    id: str = ""
    text: str = ""
    data: str = ""  # a file, base64
    more: bool = False  # one more of several files: what was told of those before stays
    settings: dict[str, Any] = Field(default_factory=dict)  # as the page has them, unchecked
    number: int = 0  # of the page's commands, from 1 on; 0 for a command of the server itself

    @property
    def file(self) -> bytes:
        """The file in ``data``; raises InvalidRequest, also where the page sent a reason in ``text`` instead."""
        if self.text:
            raise InvalidRequest(f"{self.name} {self.text}")
        try:
            return base64.b64decode(self.data, validate=True)
        except binascii.Error as error:
            raise InvalidRequest(f"{self.name} did not arrive whole; choose it again") from error
