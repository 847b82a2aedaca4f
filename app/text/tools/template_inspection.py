"""How a model writes calls, read off its chat template.

There is no table of models: a template that can write calls renders some, and the text around the
name and the arguments is the form.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from app.request import Message, Tool, ToolCall
from app.text.tools.call_format import CallForm, PairForm
from engine.errors import InvalidRequest
from engine.speculation.common_prefix import common_prefix

Render = Callable[[Sequence[Message], Sequence[Tool]], str]
"""A conversation and the tools that it offers, as the model's template writes them."""

_FIRST, _SECOND, _ID = "probe_one", "probe_two", "probeid0"  # ids of nine characters fit everywhere
_ASKED = Message("user", "probe")
_KEYS, _VALUES = ("probe_key", "probe_other"), ("probed", "seen")
_ARGUMENTS = dict(zip(_KEYS, _VALUES, strict=True))
_NUMBER = 7
_SAID = "\N{SECTION SIGN}"  # which begins no call
_TOOL = Tool(_FIRST, "probe", {"type": "object", "properties": {"key": {"type": "string"}}})


class _Shown(NamedTuple):
    """One call as the template writes it, without the end of its message."""

    before: str  # up to the name
    rest: str  # after the name


def deduced(render: Render, control: re.Pattern[str] | None = None) -> CallForm | None:
    """The form that a template writes; None where it knows of no tools or writes another one.

    A template with ids in its calls is one of the latter: a model would have to make them up.
    ``control`` matches the texts of control tokens, which are never split.
    """
    try:
        if _FIRST not in render([_ASKED], [_TOOL]):
            return None
        probe = _Probe(render, control)
        full = probe.shown(_ARGUMENTS)
        form = full and (_of_object(full) or _of_pairs(full, probe))
    except InvalidRequest:
        return None
    if form is None or not form.before.strip() or _ID in "".join(form.texts):
        return None
    return replace(form, separator=_separator(render, form))


@dataclass(frozen=True, slots=True)
class _Probe:
    """A template, to be shown calls."""

    render: Render
    control: re.Pattern[str] | None

    def shown(self, arguments: Mapping[str, Any]) -> _Shown | None:
        """How it writes a call, without what every answer starts with."""
        plain = self.render([_ASKED, Message("assistant", _SAID)], ())
        called = self.render([_ASKED, _calling(arguments, _FIRST)], ())
        begin = self._at_token(called, common_prefix(plain, called))
        place = called.find(_FIRST, begin)
        if place < 0:
            return None
        alike = common_prefix(called[::-1], plain.partition(_SAID)[2][::-1])
        end = self._at_token(called, len(called) - alike)
        return _Shown(called[begin:place], called[place + len(_FIRST) : end])

    def _at_token(self, text: str, place: int) -> int:
        """The place, or where a control token begins that it is in the middle of."""
        tokens = self.control.finditer(text) if self.control else ()
        return next((t.start() for t in tokens if t.start() < place < t.end()), place)


def _calling(arguments: Mapping[str, Any], *names: str) -> Message:
    calls = tuple(ToolCall(f"{_ID}{n}", name, arguments) for n, name in enumerate(names))
    return Message("assistant", "", calls)


def _of_object(shown: _Shown) -> CallForm | None:
    """Arguments that are one JSON object."""
    found = _object(shown.rest)
    if found is None or found[0] == 0:
        return None
    return CallForm(shown.before, shown.rest[: found[0]], shown.rest[found[1] :])


def _object(text: str) -> tuple[int, int] | None:
    """Start and end of the probe's arguments as JSON."""
    begin = text.find("{")
    if begin < 0:
        return None
    try:
        value, end = json.JSONDecoder().raw_decode(text, begin)
    except ValueError:
        return None
    return (begin, end) if value == _ARGUMENTS else None


def _of_pairs(full: _Shown, probe: _Probe) -> CallForm | None:
    """Arguments with tags of their own.

    Between two arguments are the end of the first and the start of the second. Calls without
    arguments and with a number check where to divide them: some forms use another tag for those.
    """
    parts = _around(full.rest, (_KEYS[0], _VALUES[0], _KEYS[1], _VALUES[1]))
    if parts is None:
        return None
    lead, between, middle, again, trail = parts
    before = middle[max(middle.rfind("<"), 0) :]
    pair = PairForm(before, between, middle.removesuffix(before))
    form = CallForm(
        full.before, lead.removesuffix(before), trail.removeprefix(pair.after), pair=pair
    )
    whole = form.between + before, pair.after + form.after
    if not pair.between or not pair.after.strip() or again != between or whole != (lead, trail):
        return None
    number = f"{before}{_KEYS[0]}{between}{_NUMBER}{pair.after}"
    expected = {"": {}, number: {_KEYS[0]: _NUMBER}}
    checks = (
        probe.shown(arguments) == _Shown(form.before, f"{form.between}{written}{form.after}")
        for written, arguments in expected.items()
    )
    return form if all(checks) else None


def _around(text: str, marks: Sequence[str]) -> list[str] | None:
    """The texts before, between and after marks in this order."""
    found = []
    for mark in marks:
        part, here, text = text.partition(mark)
        if not here:
            return None
        found.append(part)
    return [*found, text]


def _separator(render: Render, form: CallForm) -> str | None:
    """The text between two calls, if each is written like a single one."""
    try:
        text = render([_ASKED, _calling(_ARGUMENTS, _FIRST, _SECOND)], ())
    except InvalidRequest:  # some templates take one call alone
        return None
    after_name = text.partition(_FIRST)[2].partition(_SECOND)[0]
    begin = form.before.lstrip()
    arguments = _ending(form, after_name)
    if arguments is None or not after_name[arguments:].endswith(begin):
        return None
    middle = after_name[arguments:]
    return (
        middle[len(form.after) : len(middle) - len(begin)]
        if middle.startswith(form.after)
        else None
    )


def _ending(form: CallForm, after_name: str) -> int | None:
    """Where the probe's arguments end, after the name of their call."""
    if form.pair is None:
        found = _object(after_name)
        return None if found is None else found[1]
    last = after_name.find(_VALUES[1])
    return None if last < 0 else last + len(_VALUES[1] + form.pair.after)
