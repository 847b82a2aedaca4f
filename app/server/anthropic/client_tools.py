"""Tools of a message that the client runs: those that the protocol describes, and those that come on the way."""

import re
from collections.abc import Iterator, Mapping, Sequence

from app.server.usage import Body

_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_LINES = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
_CHANGES = ("tool_addition", "tool_removal")


def _schema(properties: Body, *required: str) -> Body:
    return {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }


_BASH = _schema({"command": _TEXT, "restart": {"type": "boolean"}})
_EDITS: Body = {"path": _TEXT, "file_text": _TEXT, "view_range": _LINES, "old_str": _TEXT}
_EDITOR = _schema(
    {
        "command": {"enum": ["view", "create", "str_replace", "insert"]},
        **_EDITS,
        "new_str": _TEXT,
        "insert_line": _NUMBER,
    },
    "command",
    "path",
)
_MEMORY = _schema(
    {
        "command": {"enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
        **_EDITS,
        "new_str": _TEXT,
        "insert_line": _NUMBER,
        "insert_text": _TEXT,
        "old_path": _TEXT,
        "new_path": _TEXT,
    },
    "command",
)
_SHELL = "Runs a command in a shell that stays open. restart starts the shell again."
_EDITING = (
    "Views and edits files. view shows a file or a folder, create writes file_text, str_replace puts "
    "new_str in place of old_str, insert puts new_str after the line insert_line."
)
_REMEMBERING = (
    "Files under /memories that later conversations can read: view, create, str_replace, insert, "
    "delete, rename."
)
_BUILT_IN: Mapping[str, tuple[str, Body]] = {
    "bash": (_SHELL, _BASH),
    "text_editor": (_EDITING, _EDITOR),
    "memory": (_REMEMBERING, _MEMORY),
}
_TYPE = re.compile(rf"({'|'.join(_BUILT_IN)})_\d{{8}}")  # with the date of its form


def with_tools(body: Body) -> Body:
    """The body with the tools that its messages leave: they add some, take some away, and name deferred ones.

    Deferred tools that no message names are left out, unless nothing here could ever name them.
    """
    tools, messages = body.get("tools"), body.get("messages")
    if not isinstance(tools, list | None) or not isinstance(messages, list):
        return body
    known = {_name(tool) or f"#{place}": tool for place, tool in enumerate(tools or ())}
    if len(known) < len(tools or ()):  # one of them twice
        known = {f"#{place}": tool for place, tool in enumerate(tools or ())}
    searching = (_kind(tool).startswith("tool_search_tool") for tool in known.values())
    all_of_them = any(searching) or all(map(_deferred, known.values()))
    offered = {name: all_of_them or not _deferred(tool) for name, tool in known.items()}
    for name, offers, tool in _changes([*messages, {"content": [body.get("tool_choice")]}]):
        offered[name] = offers
        known |= {name: tool} if tool else {}
    left = [tool for name, tool in known.items() if offered[name]]
    said = [message for message in map(_without_changes, messages) if message is not None]
    changed = {"tools": [_written_out(tool) for tool in left]} if known else {}
    return {**body, **changed, "messages": said}


def _changes(messages: Sequence[object]) -> Iterator[tuple[str, bool, object]]:
    """The name of a tool, whether it is offered from there on, and the tool itself if it comes there."""
    for block in _blocks(messages):
        match block:
            case {"type": "tool_addition", "tool": {"definition": {"name": str(name), **rest}}}:
                yield name, True, {"name": name, **rest}
            case {"type": "tool_addition" | "tool_removal" as change, "tool": {"name": str(name)}}:
                yield name, change == "tool_addition", None
            case {"type": "tool_reference", "tool_name": str(name)}:
                yield name, True, None
            case {"type": "tool_use" | "tool", "name": str(name)}:
                yield name, True, None
            case _:
                pass


def _blocks(messages: Sequence[object]) -> Iterator[object]:
    """Those of the messages and of the results in them."""
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        blocks = content if isinstance(content, list) else []
        yield from blocks
        yield from _blocks([block for block in blocks if _kind(block) == "tool_result"])


def _without_changes(message: object) -> object:
    """The message without what it says of tools; None where it says nothing else."""
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(message, Mapping) or not isinstance(content, list):
        return message
    kept = [block for block in content if _kind(block) not in _CHANGES]
    return {**message, "content": kept} if kept or not content else None


def _written_out(tool: object) -> object:
    """A tool that the protocol describes, as any other is sent."""
    known = _TYPE.fullmatch(_kind(tool))
    if known is None or not isinstance(tool, Mapping):
        return tool
    description, schema = _BUILT_IN[known[1]]
    return {"name": tool.get("name"), "description": description, "input_schema": schema}


def _deferred(tool: object) -> bool:
    return isinstance(tool, Mapping) and tool.get("defer_loading") is True


def _name(tool: object) -> str:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


def _kind(entry: object) -> str:
    kind = entry.get("type") if isinstance(entry, Mapping) else None
    return kind if isinstance(kind, str) else ""
