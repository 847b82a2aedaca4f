"""Tools in the bodies of requests: those offered, those to be called, earlier calls."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from app.request import Tool, ToolCall, ToolUse
from app.server.text_schemas import Strict, Text, wrong
from app.text.formats.json_schema import LARGEST, held_schema
from app.text.tools.values import other_kinds
from engine.errors import InvalidRequest

NONE, REQUIRED = "none", "required"
MOST = 128  # tools of a request, calls of a message
Name = Annotated[str, StringConstraints(pattern="^[a-zA-Z0-9_-]{1,128}$")]


def checked_json(value: object) -> object:
    """A JSON value that can be written into a prompt."""
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError) as error:  # half a character, infinite, or far too deep
        raise wrong(f"this cannot be written as JSON: {error}") from error
    if size > LARGEST:
        raise wrong(f"this has {size} bytes; at most {LARGEST}")
    return value


def read_arguments(given: object) -> dict[str, Any]:
    """The arguments of an earlier call, which clients send as an object or as a text of JSON.

    Answers that were cut, and models of other servers, write what is no object: the text is kept.
    """
    try:
        found = (
            json.loads(given or "{}", parse_constant=_refuse) if isinstance(given, str) else given
        )
        checked_json(found)
    except (ValueError, RecursionError):
        found = given
    if not isinstance(found, dict):
        found = {} if found is None else {"arguments": found}
    checked_json(found)
    return found


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


class Function(Strict):
    """A function that may be called."""

    name: Name
    description: Text = ""
    parameters: Annotated[dict[str, Any] | None, BeforeValidator(checked_json)] = None
    strict: bool | None = None


class ToolSpec(Strict):
    """The only kind of tool."""

    type: Literal["function"] = "function"
    function: Function

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, tool: Any) -> Any:
        """As chats send it; responses have the name one level higher."""
        flat = isinstance(tool, dict) and "name" in tool and "function" not in tool
        return {"function": tool} if flat else tool

    @property
    def tool(self) -> Tool:
        """The same as the assistant takes it."""
        own = self.function
        return Tool(own.name, own.description, own.parameters or {}, bool(own.strict))


class Called(Strict):
    """A function and what it was called with."""

    name: Annotated[Text, StringConstraints(min_length=1)]
    arguments: Annotated[dict[str, Any], BeforeValidator(read_arguments)] = Field(
        default_factory=dict
    )


class CallSpec(Strict):
    """A call in an earlier answer."""

    id: Text = ""
    function: Called

    @model_validator(mode="before")
    @classmethod
    def _of_any_kind(cls, call: Any) -> Any:
        match call:
            case {"type": "custom", "custom": {"name": name, "input": given}}:
                return {**call, "function": {"name": name, "arguments": {"input": given}}}
            case _:
                return call

    @property
    def call(self) -> ToolCall:
        """The same as the assistant takes it."""
        return ToolCall(self.id, self.function.name, self.function.arguments)


def _chosen(choice: object) -> object:
    """The name of the tool that must be called, or one of three words."""
    match choice:
        case None | "none" | "auto" | "required":
            return choice
        case {"type": "function", "function": {"name": str(name)}}:
            return {"name": name}
        case _:
            raise wrong(
                'it may be "none", "auto", "required" or '
                '{"type": "function", "function": {"name": "..."}}'
            )


ToolChoice = Annotated[Any, BeforeValidator(_chosen)]
Tools = Annotated[list[ToolSpec], Field(max_length=MOST)]
Calls = Annotated[list[CallSpec], Field(max_length=MOST)]


def tool_use(
    specs: Sequence[ToolSpec] | None, choice: str | Mapping[str, str] | None, *, parallel: bool
) -> ToolUse | None:
    """The tools of a request; None where none may be called. Raises PydanticCustomError."""
    tools = tuple(spec.tool for spec in specs or ())
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise wrong(f"two tools have the name {twice!r}; give every tool its own", "tools")
    if isinstance(choice, Mapping) and choice["name"] not in names:
        raise wrong(f"there is no tool {choice['name']!r} among the tools", "tool_choice")
    if choice == REQUIRED and not tools:
        raise wrong("there is no tool that could be called; send tools", "tool_choice")
    if not tools or choice == NONE:
        return None
    for tool in tools:
        _check_object(tool)
        _check_strict(tool)
    if isinstance(choice, Mapping):
        return ToolUse(tools, must_call=True, only=choice["name"], parallel=False)
    return ToolUse(tools, must_call=choice == REQUIRED, parallel=parallel)


def _check_object(tool: Tool) -> None:
    """Arguments have names: without an object there is no call."""
    if kinds := other_kinds(tool):
        problem = (
            f"arguments are an object, those of the tool {tool.name!r} may be {' or '.join(kinds)}"
        )
        raise wrong(f'{problem}; say "type": "object" and name them as properties', "tools")


def _check_strict(tool: Tool) -> None:
    """A strict schema must be one that a grammar can enforce."""
    if tool.strict:
        try:
            held_schema(dict(tool.parameters))
        except InvalidRequest as error:
            raise wrong(
                f"{error}; or send the tool {tool.name!r} without strict", "tools"
            ) from error
