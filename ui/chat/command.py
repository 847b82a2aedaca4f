"""What the page asks for: one JSON object per click, checked before anything is done with it."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.request import AS_TAUGHT, AUTO, ReplyOptions, Thinking
from engine.errors import InvalidRequest

Number = float


class Settings(BaseModel):
    """How answers are generated and shown, as the page's controls stand."""

    model_config = ConfigDict(allow_inf_nan=False)

    mode: str = AUTO
    temperature: Number = 0.0
    top_p: Number = 1.0
    top_k: int = 0
    min_p: Number = 0.0
    repeat: Number = 1.0
    max_tokens: int | None = None  # None: half of the context
    seed: int | None = None
    look: Literal["auto", "markdown", "text"] = "auto"
    overlay: bool = False
    thinking: Thinking = AS_TAUGHT

    def options(self, context: int) -> ReplyOptions:
        """For the assistant; an answer without an end leaves room for the next question."""
        return ReplyOptions(
            temperature=self.temperature,
            max_tokens=self.max_tokens or max(1, context // 2),
            drafter=self.mode,
            seed=self.seed,
            top_k=self.top_k,
            top_p=self.top_p,
            min_p=self.min_p,
            repeat=self.repeat,
            thinking=self.thinking,
        )


_LABELS = {"top_k": "Top k", "max_tokens": "Longest answer", "repeat": "Repetition penalty"}


def adopted(wanted: Mapping[str, Any], before: Settings) -> tuple[Settings, str]:
    """The settings that are wanted, but for those that cannot be: these stay, and a sentence says so.

    A page keeps its settings, so one that cannot be must not keep it from everything else.
    """
    try:
        return Settings.model_validate(wanted), ""
    except ValidationError as error:
        found = error.errors()
    known = before.model_dump()
    unfit = {str(each["loc"][0]): each for each in found}
    settings = Settings.model_validate({**wanted, **{name: known[name] for name in unfit}})
    name, first = next(iter(unfit.items()))
    label = _LABELS.get(name, name.replace("_", " ").capitalize())
    whole = first["type"].startswith("int")
    reason = "it has to be a whole number" if whole else first["msg"].lower()
    return settings, f"{label} cannot be {first['input']}: {reason}; it stays as it was"


class Command(BaseModel):
    """One thing to do; ``id`` is a conversation or a message, whatever ``do`` is about."""

    model_config = ConfigDict(extra="forbid")

    do: str
    id: str = ""
    text: str = ""
    name: str = ""
    data: str = ""  # a file, base64
    settings: dict[str, Any] = Field(default_factory=dict)  # as the page has them, unchecked
    number: int = 0  # of the page's commands, from 1 on; 0: the server says this itself

    @classmethod
    def read(cls, written: str) -> "Command":
        """From JSON; raises InvalidRequest."""
        try:
            return cls.model_validate_json(written)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise InvalidRequest(f"{place}: {first['msg'].lower()}; reload the page") from error

    @property
    def file(self) -> bytes:
        """The file that came along; raises InvalidRequest."""
        try:
            return base64.b64decode(self.data, validate=True)
        except binascii.Error as error:
            raise InvalidRequest(f"{self.name} did not arrive whole; choose it again") from error
