"""Tools, items, blocks and parts of kinds that do not run here: taken out of a request, and named.

Agents send the tools of one provider to all of them, and histories have what other servers ran or read.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.server.text_schemas import in_words, is_no_text, valid_unicode

Body = dict[str, Any]
_OWN_BLOCKS = ("tool_use", "tool_result")
_LONGEST = 400  # characters of a header


def without_foreign(body: Body, own_tools: Sequence[str], own_items: Sequence[str]) -> Body:
    """The body without what does not run here; ``skipped`` names the kinds.

    ``own_tools`` and ``own_items`` are the types that do.
    """
    found = dict(body)
    skipped: dict[str, None] = {}  # a set in the order in which they came
    for field, what, own in (("tools", "tools", own_tools), ("input", "items", own_items)):
        if isinstance(entries := body.get(field), list):
            found[field] = [one for one in entries if _kind(one) in ("", *own)]
            skipped |= dict.fromkeys(_named(what, entries, found[field]))
    if _chooses(body.get("tool_choice"), body.get("tools"), found.get("tools")):
        del found["tool_choice"]
    for field in ("messages", "input"):
        if isinstance(messages := found.get(field), list):
            pairs = [_without_blocks(message) for message in messages]
            pairs[:-1] = [_in_words(message, names) for message, names in pairs[:-1]]
            found[field] = [kept for kept, _ in pairs]
            skipped |= dict.fromkeys(name for _, names in pairs for name in names)
    return {**found, "skipped": (*skipped,)}


def _chooses(choice: object, tools: object, kept: object) -> bool:
    """Whether a choice names one of the tools that were taken out."""
    match choice:
        case {"type": str(kind), **rest} if isinstance(tools, list) and isinstance(kept, list):
            gone = [tool for tool in tools if tool not in kept]
            return any(_kind(tool) == kind or _is_called(tool, rest.get("name")) for tool in gone)
        case _:
            return False


def _is_called(tool: object, name: object) -> bool:
    return isinstance(tool, Mapping) and name is not None and tool.get("name") == name


def headers_of(skipped: Sequence[str], freed: Sequence[str] = ()) -> dict[str, str]:
    """Headers of a response: what was skipped of its request, and what no grammar holds.

    Clients chose these words.
    """
    named = {"x-slipstream-skipped": skipped, "x-slipstream-freed": freed}
    return {name: _safe(", ".join(words)) for name, words in named.items() if words}


def _safe(text: str) -> str:
    short = text[:_LONGEST]
    return "".join(char if char.isascii() and char.isprintable() else "?" for char in short)


def _kind(entry: object) -> str:
    """The type of an entry; empty where it has none."""
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    return valid_unicode(kind) if isinstance(kind, str) else ""


def _named(what: str, entries: list[Any], kept: list[Any]) -> Iterator[str]:
    own = {_kind(entry) for entry in kept}
    return (f"{what} of type {_kind(entry)}" for entry in entries if _kind(entry) not in own)


def _without_blocks(message: object) -> tuple[object, list[str]]:
    """A message without the calls that another server ran, and without their results."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(content, list):
        return message, []
    kept = [block for block in content if not _ran_elsewhere(_kind(block))]
    return {**message, "content": kept}, [*_named("blocks", content, kept)]


def _in_words(message: object, names: list[str]) -> tuple[object, list[str]]:
    """An earlier message with a sentence for what is no text: refused, it would end the conversation."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(content, list) or "role" not in message:
        return message, names
    kinds = [_kind(part) if is_no_text(part) else "" for part in content]
    kinds = ["" if kind in _OWN_BLOCKS else kind for kind in kinds]
    told = [
        {"type": "text", "text": in_words(kind)} if kind else part
        for part, kind in zip(content, kinds, strict=True)
    ]
    return {**message, "content": told}, [*names, *(f"parts of type {k}" for k in kinds if k)]


def _ran_elsewhere(kind: str) -> bool:
    return kind.endswith(_OWN_BLOCKS) and kind not in _OWN_BLOCKS
