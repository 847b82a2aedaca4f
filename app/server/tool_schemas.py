"""Tools in the bodies of requests: those offered, those to be called, earlier calls."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from app.request import Tool, ToolCall, ToolUse
from app.server.text_schemas import Strict, Text, described, valid_unicode, wrong
from app.text.formats.json_schema import LARGEST, held_schema
from app.text.tools.values import other_kinds
from engine.errors import InvalidRequest

NONE, REQUIRED = "none", "required"
FUNCTION, CUSTOM, INPUT = "function", "custom", "input"
UNNAMED = "unknown"  # the tool of an earlier call without a name
ONE_TEXT = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}  # the arguments of a custom tool
MOST = 1024  # tools of a request, calls of a message
DEEPEST = 128  # levels of a JSON value that becomes part of a prompt
# servers of tools put dots, slashes and colons between their name and the tool's
Name = Annotated[str, StringConstraints(pattern=r"^[\w.:/@-]{1,128}$")]


def checked_json(value: object) -> object:
    """A JSON value that can be written into a prompt."""
    inner, levels = [value], 0
    while inner := [deeper for one in inner for deeper in _inside(one)]:
        levels += 1
        if levels > DEEPEST:
            raise wrong(f"this is nested more than {DEEPEST} levels deep")
    try:
        size = len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError) as error:  # half a character, infinite, or far too deep
        raise wrong(f"this cannot be written as JSON: {error}") from error
    if size > LARGEST:
        raise wrong(f"this has {size} bytes; at most {LARGEST}")
    return value


def _inside(value: object) -> Iterable[object]:
    """The values in a list or an object."""
    return (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    )


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
    """A function, or a custom tool: the model writes a text for it, which here is its one argument."""

    type: Literal["function", "custom"] = "function"
    function: Function

    @model_validator(mode="before")
    @classmethod
    def _nested(cls, tool: Any) -> Any:
        return as_function(tool)

    @property
    def is_custom(self) -> bool:
        """Whether calls of it have a text instead of arguments."""
        return self.type == CUSTOM

    @property
    def called(self) -> str:
        """The name by which the model calls it."""
        return self.function.name

    @property
    def tool(self) -> Tool:
        """The same as the assistant takes it."""
        own = self.function
        return Tool(self.called, own.description, own.parameters or {}, bool(own.strict))


def as_function(tool: Any) -> Any:
    """A tool as chats send it; others have the name one level higher, custom tools no schema."""
    match tool:
        case {"name": name, "input_schema": schema, **rest}:
            about = {key: rest[key] for key in ("description", "strict") if key in rest}
            return {"function": {"name": name, "parameters": schema, **about}}
        case {"type": "custom", "custom": dict(own)} | {"type": "custom", "name": _, **own}:
            name = own.get("name", tool.get("name"))
            said = [own.get("description"), _form_in_words(own.get("format"))]
            told = "\n\n".join(part for part in said if isinstance(part, str))
            function = {"name": name, "description": told, "parameters": ONE_TEXT}
            return {"type": CUSTOM, "function": function}
        case {"name": _} if "function" not in tool:
            return {"function": tool}
        case _:
            return tool


def _form_in_words(form: object) -> str | None:
    """What the input of a custom tool looks like: the model reads it, and no grammar holds it."""
    match form:
        case {"type": "grammar", "grammar": dict(inner)}:
            return _form_in_words({"type": "grammar", **inner})
        case {"type": "grammar", "definition": str(definition)}:
            return f"The input follows this grammar:\n{definition}"
        case _:
            return None


def custom_input(arguments: str) -> str:
    """The text for a custom tool in the arguments of its call; none where they were cut off."""
    return str(written_arguments(arguments).get(INPUT, ""))


def written_arguments(text: str) -> dict[str, Any]:
    """The arguments that an answer has written; none where they were cut off."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def called_name(given: object) -> object:
    """The name in an earlier call: joined from a stream that was cut, it may be empty."""
    return given or UNNAMED


class Called(Strict):
    """A function and what it was called with."""

    name: Annotated[Text, BeforeValidator(called_name)]
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
                return {**call, "function": {"name": name, "arguments": {INPUT: given}}}
            case _:
                return call

    @property
    def call(self) -> ToolCall:
        """The same as the assistant takes it."""
        return ToolCall(self.id, self.function.name, self.function.arguments)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Some of the tools; ``mode`` is "auto" or "required"."""

    mode: str
    names: tuple[str, ...]


def allowed_tools(mode: object, tools: Sequence[object]) -> Allowed:
    """Raises PydanticCustomError."""
    names = []
    for tool in tools:
        match tool:
            case (
                {"name": str(name)}
                | {"function": {"name": str(name)}}
                | {"custom": {"name": str(name)}}
            ):
                names.append(valid_unicode(name))
            case {"type": str(kind)} if kind not in (FUNCTION, CUSTOM):
                continue  # one that does not run here
            case _:
                raise wrong("allowed tools must have a name")
    if mode not in ("auto", REQUIRED):
        raise wrong('the mode of allowed tools may be "auto" or "required"')
    return Allowed(str(mode), tuple(names))


def chosen_tools(choice: object) -> object:
    """The name of the tool that must be called, or one of three words, as any protocol says it."""
    match choice:
        case None | "none" | "auto" | "required":
            return choice
        case "any":  # what Anthropic and Mistral call it
            return REQUIRED
        case {"type": "none" | "auto" | "required" | "any" as word}:
            return chosen_tools(word)
        case (
            {"function": {"name": str(name)}}
            | {"type": "custom", "custom": {"name": str(name)}}
            | {"type": "function" | "custom" | "tool", "name": str(name)}
        ):
            return {"name": name}
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}} | {
            "type": "allowed_tools",
            "mode": mode,
            "tools": list(tools),
        }:
            return allowed_tools(mode, tools)
        case _:
            raise wrong(
                'it may be "none", "auto", "required" or '
                '{"type": "function", "function": {"name": "..."}}'
            )


CHOICE: dict[str, Any] = {
    "anyOf": [{"enum": [NONE, "auto", REQUIRED, None]}, {"type": "object", "required": ["type"]}]
}
ToolChoice = Annotated[Any, BeforeValidator(chosen_tools), described(**CHOICE)]
Tools = Annotated[list[ToolSpec], Field(max_length=MOST)]


def custom_names(specs: Sequence[ToolSpec] | None) -> frozenset[str]:
    """The names of the custom tools."""
    return frozenset(spec.called for spec in specs or () if spec.is_custom)


Calls = Annotated[list[CallSpec], Field(max_length=MOST)]


def tool_use(
    specs: Sequence[ToolSpec] | None,
    choice: str | Mapping[str, str] | Allowed | None,
    *,
    parallel: bool,
) -> ToolUse | None:
    """The tools of a request; None where none may be called. Raises PydanticCustomError."""
    tools = tuple(spec.tool for spec in specs or ())
    tools = tuple(tool for at, tool in enumerate(tools) if tool not in tools[:at])
    names = [tool.name for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise wrong(f"two tools have the name {twice!r}; give every tool its own", "tools")
    chosen = [choice["name"]] if isinstance(choice, Mapping) else []
    if isinstance(choice, Allowed):
        tools = tuple(tool for tool in tools if tool.name in choice.names)
        chosen, choice = [*choice.names], choice.mode
    if unknown := next((name for name in chosen if name not in names), None):
        raise wrong(f"there is no tool {unknown!r} among the tools", "tool_choice")
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
