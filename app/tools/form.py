"""The form of a call: what a model writes around the name of a function and its arguments.

No table of models: a template that was taught to show calls is asked to show one, and what stands
around the name and the arguments is the form. Qwen and Hermes write

    <tool_call>
    {"name": "NAME", "arguments": ARGUMENTS}
    </tool_call>

and Llama 3 writes {"name": "NAME", "parameters": ARGUMENTS} and nothing else.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.turn import Message, Tool, ToolCall
from engine.decode.prefix import common_prefix
from engine.errors import InvalidRequest

Render = Callable[[Sequence[Message], Sequence[Tool]], str]
"""A conversation and the tools that it offers, as the model's template writes them."""

_TAG = re.compile(r"\s*(<[^<>\s]+>|\[[A-Z_]+\])")  # no other text begins so
_FIRST, _SECOND, _ID = "probe_one", "probe_two", "probeid0"  # ids of nine characters fit everywhere
_ASKED = Message("user", "probe")
_ARGUMENTS = {"key": "value"}
_SAID = "\N{SECTION SIGN}"  # which begins no call
_TOOL = Tool(_FIRST, "probe", {"type": "object", "properties": {"key": {"type": "string"}}})


@dataclass(frozen=True, slots=True)
class CallForm:
    """Texts of a call: before the name, between name and arguments, after them.

    ``separator`` stands between two calls of one answer; None where there is but one.
    """

    before: str
    between: str
    after: str
    separator: str | None = None

    @property
    def opening(self) -> str:
        """What a call begins with, space apart."""
        return self.tag or self.before.lstrip()

    @property
    def tag(self) -> str:
        """The part of the opening that tells a call wherever it stands.

        Empty where a call looks like any JSON and is told only by standing first.
        """
        found = _TAG.match(self.before)
        return found.group(1) if found else ""


TOLD = CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n")


def deduced(render: Render) -> CallForm | None:
    """The form that a template writes; None where it knows of no tools or writes no JSON.

    A template with ids in its calls is one of the latter: a model would have to make them up.
    """
    try:
        if _FIRST not in render([_ASKED], [_TOOL]):
            return None
        said = render([_ASKED, Message("assistant", _SAID)], ())
        called = render([_ASKED, _calling(_FIRST)], ())
    except InvalidRequest:
        return None
    begin = common_prefix(said, called)
    place = called.find(_FIRST, begin)
    found = _arguments(called, place + len(_FIRST)) if place >= 0 else None
    if found is None:
        return None
    between = called[place + len(_FIRST) : found[0]]
    after = _without_end(called[found[1] :], said.partition(_SAID)[2])
    form = CallForm(called[begin:place], between, after)
    if not form.before.strip() or not form.between or _ID in form.before + between + after:
        return None
    return CallForm(form.before, between, after, _separator(render, form))


def _calling(*names: str) -> Message:
    calls = tuple(ToolCall(f"{_ID}{n}", name, _ARGUMENTS) for n, name in enumerate(names))
    return Message("assistant", "", calls)


def _arguments(text: str, start: int) -> tuple[int, int] | None:
    """From where to where the probe's arguments stand as JSON."""
    begin = text.find("{", start)
    if begin < 0:
        return None
    try:
        value, end = json.JSONDecoder().raw_decode(text, begin)
    except ValueError:
        return None
    return (begin, end) if value == _ARGUMENTS else None


def _without_end(text: str, end: str) -> str:
    """The text without what ends every message."""
    return text[: len(text) - common_prefix(text[::-1], end[::-1])]


def _separator(render: Render, form: CallForm) -> str | None:
    """What stands between two calls, if each of them is written as one alone would be."""
    try:
        text = render([_ASKED, _calling(_FIRST, _SECOND)], ())
    except InvalidRequest:  # some templates take one call alone
        return None
    first = text.find(_FIRST)
    found = _arguments(text, first + len(_FIRST)) if first >= 0 else None
    second = text.find(_SECOND)
    if found is None or second < 0:
        return None
    middle = text[found[1] : second]
    begin = form.before.lstrip()
    if not middle.startswith(form.after) or not middle.endswith(begin):
        return None
    return middle[len(form.after) : len(middle) - len(begin)]
