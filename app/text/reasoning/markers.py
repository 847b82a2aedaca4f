"""The marks that a model writes around its reasoning, read off its chat template.

There is no table of models: a template with a place for reasoning renders some, and the text around
it are the marks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from app.request import Message, Tool, ToolCall, variables_for
from app.text.reasoning.tags import OPEN, REASONING_STARTS, split_reasoning
from app.text.vocabulary import Vocabulary
from engine.errors import InvalidRequest
from engine.speculation.common_prefix import common_prefix

Render = Callable[[Sequence[Message], Sequence[Tool], Mapping[str, Any]], str]
"""A conversation, its tools and further variables, as the model's template writes them."""

LONGEST = 40  # characters of a mark: more is text that a template says
_TAG = r"<[^<>\s]+>|\[[^\[\]\s]+\]"
_WORD = re.compile(r"[^\W\d_]{2,}")
_REASONING, _SAID = "probethought", "\N{SECTION SIGN}"  # the latter begins no mark
_ASKED = Message("user", "probe")
_TOOL = Tool("probe_one", "probe", {"type": "object", "properties": {"key": {"type": "string"}}})
_CALL = ToolCall(
    "probeid00", _TOOL.name, {"key": "probed"}
)  # ids of nine characters fit everywhere
_CAME = Message("tool", "probe", answers=_CALL.id)


@dataclass(frozen=True, slots=True)
class ReasoningMarkers:
    """The marks before and after reasoning, with their space, as a template writes them."""

    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class AnswerMarks:
    """The marks as answers show them: control tokens have no text, so each has a stand-in."""

    opening: str
    closing: str
    stand_ins: tuple[tuple[int, str], ...]


class _Shown(NamedTuple):
    """Reasoning as a template writes it."""

    marks: ReasoningMarkers
    after: str  # all that follows the marks


def deduced(render: Render, control: re.Pattern[str] | None = None) -> ReasoningMarkers | None:
    """The marks of a template; None where it has none, or they are unclear, or they are ``<think>``.

    ``control`` matches the texts of control tokens, which are never split. Many templates
    write reasoning only before a call that has a result, so that is tried first.
    """
    mark = re.compile(f"{control.pattern}|{_TAG}" if control else _TAG)
    called = _shown(render, mark, [Message("assistant", "", (_CALL,)), _CAME], (_TOOL,))
    plain = _shown(render, mark, [Message("assistant", _SAID)], ())
    if plain is not None and mark.sub("", plain.after.partition(_SAID)[0]).strip():
        return None  # the template writes words there: the marks are longer than these
    found = called or plain
    if found is None or (plain and _bare(plain.marks) != _bare(found.marks)):
        return None
    marks = found.marks
    return None if marks.opening.strip().startswith(OPEN) else marks


def _bare(marks: ReasoningMarkers) -> tuple[str, str]:
    return marks.opening.strip(), marks.closing.strip()


def _shown(
    render: Render, mark: re.Pattern[str], answer: Sequence[Message], tools: Sequence[Tool]
) -> _Shown | None:
    """How a template writes reasoning in the first of these messages."""
    thinking = variables_for("on")
    first, *others = answer
    try:
        without = render([_ASKED, *answer], tools, thinking)
        rendered = render([_ASKED, replace(first, reasoning=_REASONING), *others], tools, thinking)
    except InvalidRequest:  # this template takes no such conversation
        return None
    before, _, after = rendered.partition(_REASONING)
    closing = re.match(rf"\s*(?:{mark.pattern})\s*", after)
    last = max(mark.finditer(before), key=lambda found: found.end(), default=None)
    if closing is None or last is None or _REASONING in after:
        return None
    marks = ReasoningMarkers(before[last.start() :], closing.group())
    begin = common_prefix(rendered, without)
    emptied = without[begin:].lstrip().startswith(closing.group().strip())
    if (last.end() <= begin and not emptied) or not _belong(marks):
        return None  # it is what every answer begins with
    return _Shown(marks, after[closing.end() :])


def _belong(marks: ReasoningMarkers) -> bool:
    """Whether these are short, and one word is in both of them."""
    one, other = (set(_WORD.findall(text)) for text in (marks.opening, marks.closing))
    return max(len(marks.opening), len(marks.closing)) <= LONGEST and not one.isdisjoint(other)


def answer_marks(
    marks: ReasoningMarkers, vocabulary: Vocabulary, control: re.Pattern[str] | None
) -> AnswerMarks:
    """The marks without the space around them, as the detokenizer looks for them."""
    stand_ins: dict[int, str] = {}

    def stand_in(found: re.Match[str]) -> str:
        tokens = vocabulary.encode(found.group())
        if len(tokens) != 1 or vocabulary.bytes.of(tokens[0]):
            return found.group()
        # One half of a pair: UTF-8 has no such character, so no text that a model writes does.
        return stand_ins.setdefault(tokens[0], chr(0xDC00 + len(stand_ins)))

    opening, closing = (control.sub(stand_in, text) if control else text for text in _bare(marks))
    return AnswerMarks(opening, closing, tuple(stand_ins.items()))


def continuation(
    rendered: str,
    prefix: str,
    marks: ReasoningMarkers,
    hide: Callable[[str], str],
    *,
    thinks: bool,
) -> tuple[str, str]:
    """The prompt with the start of its answer, and the reasoning tag that the prompt opens itself.

    ``hide`` keeps typed control texts from becoming control tokens.
    """
    opens = rendered.rstrip().endswith(marks.opening.strip())
    reasoning, text = split_reasoning(prefix)
    if reasoning is None:
        if opens and thinks and not prefix:
            return rendered, REASONING_STARTS
        return rendered + (marks.closing if opens else "") + hide(prefix), ""
    if not opens:
        rendered = _without_empty(rendered, marks) + marks.opening
    rest = "" if text is None and thinks else marks.closing + hide(text or "")
    return rendered + hide(reasoning) + rest, ""


def _without_empty(rendered: str, marks: ReasoningMarkers) -> str:
    """Without the empty reasoning that templates end with where the model must not reason."""
    opening, closing = map(re.escape, _bare(marks))
    return re.sub(rf"{opening}\s*{closing}\s*\Z", "", rendered)
