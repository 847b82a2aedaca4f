"""Tools of a response that the client runs, each as a function: in groups, found on the way, and built in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import override

from app.server.text_schemas import Text, text_of, valid_unicode
from app.server.tool_schemas import INPUT, MOST, ToolSpec, as_function
from app.server.usage import Body

NAMESPACE, ADDED, FOUND = "namespace", "additional_tools", "tool_search_output"
_SEARCH = "tool_search"
_TEXT, _MILLISECONDS = {"type": "string"}, {"type": "integer", "minimum": 1}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1}


@dataclass(frozen=True, slots=True)
class ClientKind:
    """A tool that the protocol itself describes; its calls are items of their own kind."""

    name: str
    description: str
    properties: Mapping[str, Any]  # of the arguments; empty: the request says which
    required: tuple[str, ...]
    field: str  # of an item that has the arguments
    usual: Mapping[str, Any]  # arguments that every item has
    output: str  # the type of the item with the result

    @property
    def call(self) -> str:
        """The type of the item of a call."""
        return f"{self.name}_call"

    def function(self, tool: Mapping[Any, Any]) -> Body:
        """The same as a function; ``tool`` is how the request describes it."""
        if not self.properties:
            about = {"description": tool.get("description"), "parameters": tool.get("parameters")}
            return {"name": self.name, **about}
        parameters = {
            "type": "object",
            "properties": self.properties,
            "required": self.required,
            "additionalProperties": False,
        }
        return {"name": self.name, "description": self.description, "parameters": parameters}

    def fields(self, arguments: Mapping[str, Any]) -> Body:
        """What the item of a call has, in addition to what every item has."""
        runs = {} if self.properties else {"execution": "client"}
        return {self.field: {**self.usual, **arguments}, **runs}

    def called(self, item: Mapping[Any, Any]) -> tuple[object, object]:
        """The name and the arguments of an earlier call, as the model wrote them."""
        given = item.get(self.field)
        if self.properties and isinstance(given, Mapping):
            given = {name: given[name] for name in self.properties if given.get(name) is not None}
        return self.name, given


_PATCH = (
    "Creates, updates or deletes a file. In the diff, lines begin with '+' (added), '-' (removed) or "
    "' ' (kept), and a line '@@' before each place; of a new file all lines begin with '+'."
)
KINDS: Mapping[str, ClientKind] = {
    kind.name: kind
    for kind in (
        ClientKind(
            "local_shell",
            "Runs a command, given as a program and its arguments, and returns what it prints.",
            {"command": _TEXTS, "working_directory": _TEXT, "timeout_ms": _MILLISECONDS},
            ("command",),
            "action",
            {"type": "exec", "command": [], "env": {}},
            "local_shell_call_output",
        ),
        ClientKind(
            "shell",
            "Runs shell commands one after the other, and returns what they print.",
            {"commands": _TEXTS, "timeout_ms": _MILLISECONDS},
            ("commands",),
            "action",
            {"commands": []},
            "shell_call_output",
        ),
        ClientKind(
            "apply_patch",
            _PATCH,
            {
                "type": {"enum": ["create_file", "update_file", "delete_file"]},
                "path": _TEXT,
                "diff": _TEXT,
            },
            ("type", "path", "diff"),
            "operation",
            {"type": "update_file", "path": "", "diff": ""},
            "apply_patch_call_output",
        ),
        ClientKind(_SEARCH, "", {}, (), "arguments", {}, FOUND),
    )
}
RESULTS = (
    "function_call_output",
    "custom_tool_call_output",
    *(kind.output for kind in KINDS.values()),
)


class OfferedTool(ToolSpec):
    """A function or a custom tool, maybe of a group; or a built-in tool in the form of a function."""

    namespace: Text = ""
    client_kind: SkipJsonSchema[
        Literal["", "local_shell", "shell", "apply_patch", "tool_search"]
    ] = ""  # which built-in tool it is

    @property
    @override
    def called(self) -> str:
        """Groups may have tools of the same name."""
        return full_name(self.namespace, self.function.name)


OfferedTools = Annotated[list[OfferedTool], Field(max_length=MOST)]


def full_name(namespace: object, name: str) -> str:
    """The name by which the model calls a tool of a group."""
    if not (isinstance(namespace, str) and namespace):
        return name
    return f"{valid_unicode(namespace).removesuffix('__')}__{name}"


def _named(item: Mapping[Any, Any]) -> object:
    name = item.get("name")
    return full_name(item.get("namespace"), name) if isinstance(name, str) else None


CALLS: Mapping[str, Callable[[Mapping[Any, Any]], tuple[object, object]]] = {
    "function_call": lambda item: (_named(item), item.get("arguments")),
    "custom_tool_call": lambda item: (_named(item), {INPUT: item.get("input")}),
    **{kind.call: kind.called for kind in KINDS.values()},
}
"""The type of an item -> what it calls, and its arguments."""


def with_tools(body: Body) -> Body:
    """The body with all tools of the conversation among its tools; those of other kinds stay as they are."""
    tools, items = body.get("tools"), body.get("input")
    added = [
        tool
        for item in (items if isinstance(items, list) else ())
        if isinstance(item, Mapping) and item.get("type") in (ADDED, FOUND)
        for tool in _listed(item)
    ]
    if not isinstance(tools, list) and (tools is not None or not added):
        return body
    own, later = [*_functions(tools or ())], {_key(tool): tool for tool in _functions(added)}
    known = {_key(tool) for tool in own}
    return {**body, "tools": [*own, *(tool for key, tool in later.items() if key not in known)]}


def result_of(kind: str, item: Mapping[Any, Any], where: str) -> str:
    """What the model reads of the result of a call; raises PydanticCustomError."""
    match item:
        case _ if kind == FOUND:
            names = [key for key in map(_key, _functions(_listed(item))) if key]
            return f"Tools that can be called now: {', '.join(names) or 'none'}"
        case {"output": list(parts)} if kind == KINDS["shell"].output:
            return "\n".join(_printed(part, where) for part in parts)
        case {"output": output}:
            return text_of(output, where, result=True)
        case _:
            return text_of(item.get("status"), where, result=True)


def _printed(part: object, where: str) -> str:
    match part:
        case {
            "stdout": str(out),
            "stderr": str(err),
            "outcome": {"type": "exit", "exit_code": code},
        }:
            return valid_unicode(f"{out}{err}(exit code {code})")
        case {"stdout": str(out), "stderr": str(err), **rest}:
            ended = " (timeout)" if rest.get("outcome") == {"type": "timeout"} else ""
            return valid_unicode(f"{out}{err}{ended}")
        case _:
            return text_of(part, where, result=True)


def _listed(item: Mapping[Any, Any]) -> list[object]:
    tools = item.get("tools")
    return tools if isinstance(tools, list) else []


def _functions(tools: Sequence[object]) -> Iterator[object]:
    """Groups taken apart, built-in tools as functions."""
    for tool in tools:
        match tool:
            case {"type": "namespace", "name": str(group), "tools": list(inner), **rest}:
                yield from _members(group, inner, rest.get("description"))
            case {"type": str(kind), **rest} if kind in KINDS and _client_runs(kind, rest):
                yield {"function": KINDS[kind].function(rest), "client_kind": kind}
            case _:
                yield tool


def _members(group: str, tools: Sequence[object], about: object) -> Iterator[object]:
    """The tools of a group; the description of the first says what the group is."""
    for place, tool in enumerate(tools):
        found = as_function(tool)
        if not isinstance(found, dict) or not isinstance(function := found.get("function"), dict):
            yield tool
            continue
        said = [about if place == 0 else None, function.get("description")]
        told = "\n\n".join(part for part in said if isinstance(part, str) and part)
        yield {**found, "namespace": group, "function": {**function, "description": told}}


def _client_runs(kind: str, tool: Mapping[Any, Any]) -> bool:
    """A container and a search may be the provider's."""
    if kind == _SEARCH:
        return tool.get("execution") == "client"
    environment = tool.get("environment")
    place = environment.get("type") if isinstance(environment, Mapping) else "local"
    return place in ("local", None)


def _key(tool: object) -> str:
    """The name by which it is called; empty where it has none."""
    found = as_function(tool)
    match found:
        case {"function": {"name": str(name)}, **rest}:
            return full_name(rest.get("namespace"), name)
        case _:
            return ""
