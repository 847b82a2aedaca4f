"""Conversations as a model's template takes them, found out by showing it their shape.

A template refuses or drops what it was not written for: a second system message, two questions in a
row, an answer first, a text next to a call. So the shape of a conversation, with a mark for every
text, is rendered in one way after the other, and the first way that shows all marks is taken.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product, takewhile

from app.request import Message, Tool, ToolCall
from app.text.template import TemplateStopped
from app.text.tools.prompt_fallback import in_words
from engine.errors import InvalidRequest

KEPT = 64  # shapes whose way is known
Way = Callable[[Sequence[Message]], Sequence[Message]]
Render = Callable[[Sequence[Message], Sequence[Tool]], str]
Shape = tuple[tuple[str, bool, tuple[str, ...], str], ...]
"""Of each message: its role, whether it has a text, the ids of its calls and the one it answers."""

_OFFERED = Tool("offered", "", {"type": "object", "properties": {}})


class ConversationForm:
    """Of one template: how it takes each shape of a conversation."""

    def __init__(self, render: Render) -> None:
        self._way = lru_cache(KEPT)(partial(_way, render))

    def fitted(self, messages: Sequence[Message], *, offers: bool) -> Sequence[Message]:
        """The messages so that the template shows all their texts, if it does in any way.

        ``offers``: tools are offered in the same prompt.
        """
        return self._way(_shape(messages), offers)(messages)


def with_ids(messages: Sequence[Message]) -> list[Message]:
    """Every call with an id, and every result with that of a call: the next one, where none is named."""
    found: list[Message] = []
    waiting: list[str] = []
    for place, message in enumerate(messages):
        calls = tuple(
            call if call.id else replace(call, id=f"call_{place}_{n}")
            for n, call in enumerate(message.calls)
        )
        waiting = [call.id for call in calls] or waiting
        answers = message.answers
        if message.role == "tool":
            answers = answers or next(iter(waiting), "")
            waiting = [name for name in waiting if name != answers]
        found.append(replace(message, calls=calls, answers=answers))
    return found


def one_call_each(messages: Sequence[Message]) -> list[Message]:
    """Each call in a message of its own, followed by its result: some templates show one call only."""
    split: list[Message] = []
    left = list(messages)
    while left:
        message = left.pop(0)
        if len(message.calls) < 2:
            split.append(message)
            continue
        results = list(takewhile(lambda each: each.role == "tool", left))
        del left[: len(results)]
        for place, call in enumerate(message.calls):
            split.append(replace(message, content="" if place else message.content, calls=(call,)))
            split += [each for each in results if each.answers == call.id]
        named = {call.id for call in message.calls}
        split += [each for each in results if each.answers not in named]
    return split


def _as_it_is(messages: Sequence[Message]) -> Sequence[Message]:
    return messages


def _calls_apart(messages: Sequence[Message]) -> list[Message]:
    """A text and the calls that came with it in two messages."""
    found: list[Message] = []
    for message in messages:
        if message.calls and message.content:
            found += [replace(message, calls=()), replace(message, content="", reasoning="")]
        else:
            found.append(message)
    return one_call_each(found)


def _one_system(messages: Sequence[Message]) -> list[Message]:
    """One system message, at the start; later ones are said by the user where they are."""
    first = [*takewhile(lambda each: each.role == "system", messages)]
    return [*_neighbours_joined(first), *_by_user(messages[len(first) :])]


def _by_user(messages: Iterable[Message]) -> list[Message]:
    """No system message: the user says what they say."""
    return [replace(each, role="user") if each.role == "system" else each for each in messages]


def _neighbours_joined(messages: Iterable[Message]) -> list[Message]:
    """Neighbours of one role as one message; results are not merged."""
    found: list[Message] = []
    for message in messages:
        if found and found[-1].role == message.role != "tool":
            found.append(_as_one(found.pop(), message))
        else:
            found.append(message)
    return found


def _as_one(one: Message, other: Message) -> Message:
    return replace(
        other,
        content="\n\n".join(filter(None, (one.content, other.content))),
        calls=one.calls + other.calls,
        reasoning="\n\n".join(filter(None, (one.reasoning, other.reasoning))),
    )


def _in_turns(messages: Sequence[Message]) -> list[Message]:
    """User and assistant in turns, the user first: an empty message where one is missing."""
    found: list[Message] = []
    for message in _neighbours_joined(messages):
        before = found[-1].role if found else "system"
        if message.role == "assistant" and before == "system":
            found.append(Message("user", ""))
        elif message.role == "user" and before == "tool":
            found.append(Message("assistant", ""))
        found.append(message)
    return found


def _after(*ways: Way) -> Way:
    """One way after the other."""

    def way(messages: Sequence[Message]) -> Sequence[Message]:
        for each in ways:
            messages = each(messages)
        return messages

    return way


_ROLES: tuple[Way, ...] = (
    _as_it_is,
    _one_system,
    _after(_one_system, _neighbours_joined),
    _after(_one_system, _in_turns),
    _after(_by_user, _neighbours_joined),
    _after(_by_user, _in_turns),
)
_CALLS: tuple[Way, ...] = (_as_it_is, one_call_each, _calls_apart, in_words)


def _way(render: Render, shape: Shape, offers: bool) -> Way:  # noqa: FBT001 - of a cache
    """The first way to show all of it, or else most of it; as it is where all are refused."""
    messages = _marked(shape)
    marks = [mark for each in messages for mark in (each.content, *(c.name for c in each.calls))]
    ways = _CALLS if any(each.calls or each.role == "tool" for each in messages) else _CALLS[:1]
    best, most = _after(), -1
    for calls, roles in product(ways, _ROLES):
        way = _after(calls, roles)
        shown = _shown(render, way(messages), [_OFFERED] if offers else [], marks)
        if shown > most:
            best, most = way, shown
        if most == len(marks):
            break
    return best


def _shown(
    render: Render, messages: Sequence[Message], tools: Sequence[Tool], marks: Sequence[str]
) -> int:
    """How many of the marks are rendered; -1 where the template refuses."""
    try:
        text = render(messages, tools)
    except TemplateStopped:
        raise
    except InvalidRequest:
        return -1
    return sum(mark in text for mark in marks)


def _shape(messages: Sequence[Message]) -> Shape:
    """Ids are numbered, so that conversations that differ in them alone have one shape."""
    numbers: dict[str, str] = {"": ""}
    return tuple(
        (
            each.role,
            bool(each.content),
            tuple(numbers.setdefault(call.id, f"probe{len(numbers):04}") for call in each.calls),
            numbers.setdefault(each.answers, f"probe{len(numbers):04}"),
        )
        for each in messages
    )


def _marked(shape: Shape) -> list[Message]:
    """A conversation of this shape whose texts are marks."""
    return [
        Message(
            role,
            f"mark{place}x" if speaks else "",
            tuple(ToolCall(name, f"call{place}x{n}x", {}) for n, name in enumerate(calls)),
            answers,
        )
        for place, (role, speaks, calls, answers) in enumerate(shape)
    ]
