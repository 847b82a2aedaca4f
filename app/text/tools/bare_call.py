"""Answers that are a call without its marks: JSON with the name of a tool, perhaps in a code block.

Some models write calls so, whatever their template shows. Only an answer that is nothing else counts:
a name that is offered, and arguments that are an object.
"""

import json
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator
from typing import Any

ARGUMENTS = ("arguments", "parameters")
_KEYS = ("name", *ARGUMENTS, "type", "function", "id")
_FENCE = "```"
_BLOCKS = ("json", "tool_call")  # words after a fence
_MOST = 16  # calls of one answer
_TIMES = 3  # that one call comes, from which nothing else is to be expected


def may_become_calls(text: str, names: Iterable[str]) -> bool:
    """Whether a text may be the start of such an answer: its first key, and its first name if that is it."""
    rest = text.lstrip()
    if _FENCE.startswith(rest[: len(_FENCE)]):
        word, line, rest = rest[len(_FENCE) :].partition("\n")
        if not line:
            return any(block.startswith(word) for block in _BLOCKS)
    opened = rest.lstrip().removeprefix("[").lstrip()
    if not opened.startswith("{"):
        return not opened
    key, after = _quoted(opened[1:].lstrip())
    if after is None:
        return key is not None and any(known.startswith(key) for known in _KEYS)
    value, end = _quoted(after.lstrip().removeprefix(":").lstrip()) if key == "name" else ("", None)
    if end is None:
        return key in _KEYS and value is not None and any(n.startswith(value) for n in names)
    return any(value == known for known in names)


def bare_calls(text: str, names: Collection[str], *, cut: bool = False) -> list[tuple[str, str]]:
    """The names and JSON arguments of an answer that is calls and nothing else; else none.

    Of an answer that was ``cut`` off, half a call at the end is dropped, and calls that it repeats:
    small models repeat one until no tokens are left.
    """
    try:
        calls = [*_written(text, names, cut=cut)]
    except (ValueError, RecursionError):
        return []
    found = [call for call in calls if call is not None]
    distinct = [*dict.fromkeys(found)] if cut else found
    return distinct if len(found) == len(calls) and len(distinct) <= _MOST else []


def never_ends(text: str, names: Collection[str]) -> bool:
    """Whether such an answer has come to one of its calls so often that it would go on with them."""
    if text.count("}") < _TIMES:
        return False
    try:
        times = Counter(_written(text, names, cut=True))
    except (ValueError, RecursionError):
        return False
    calls = None not in times and len(times) <= _MOST
    return calls and max(times.values(), default=0) >= _TIMES


def _written(text: str, names: Collection[str], *, cut: bool) -> Iterator[tuple[str, str] | None]:
    """The values of an answer as calls, None for one that is none. Raises ValueError."""
    inner = text.strip()
    if inner.startswith(_FENCE):
        word, _, inner = inner.removeprefix(_FENCE).partition("\n")
        if word.strip() not in ("", *_BLOCKS) or not (cut or inner.endswith(_FENCE)):
            raise ValueError("another block, or one that is open")
        inner = inner.removesuffix(_FENCE)
    values = [*_values(inner.strip(), names if cut else ())]
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    yield from (_call(value, names) for value in values)


def _quoted(text: str) -> tuple[str | None, str | None]:
    """The text in the quotes that come first, and what follows them; None for what is not there (yet)."""
    if text and text[0] != '"':
        return None, None
    inner, quote, after = text[1:].partition('"')
    return inner, after if quote else None


def _values(text: str, half: Collection[str]) -> Iterator[Any]:
    """JSON values one after the other; the last may be half a call of these names. Raises ValueError."""
    decoder, first = json.JSONDecoder(), text
    while text:
        try:
            value, end = decoder.raw_decode(text)
        except ValueError:
            if text is first or not may_become_calls(text, half):
                raise
            return
        yield value
        text = text[end:].lstrip()


def _call(value: object, names: Container[str]) -> tuple[str, str] | None:
    match value:
        case {"type": "function", "function": dict(inner)}:
            return _call(inner, names)
        case {"name": str(name), **rest} if name in names:
            given = [rest.pop(key) for key in ARGUMENTS if key in rest]
        case _:
            return None
    if len(given) != 1 or not {"type", "id"}.issuperset(rest):
        return None
    if isinstance(given[0], str):
        given = [json.loads(given[0])]
    return (name, json.dumps(given[0], ensure_ascii=False)) if isinstance(given[0], dict) else None
