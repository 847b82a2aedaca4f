"""Requests of coding agents, shortened: the tools that they run themselves come in many forms."""

from typing import Any

import openai
import pytest

from tests.app.server.serving import ADD, SUM, Running, answer, events, post

ASKED = {"role": "user", "content": SUM}
SHORT = {"type": "string", "maxLength": 8}
NAMED = {"type": "object", "properties": {"name": SHORT}, "required": ["name"]}
SECRET = {"type": "function", "name": "secret_number", "description": "Gives a number.", "strict": False, "parameters": NAMED}  # fmt: skip
LAB = {"type": "namespace", "name": "mcp__lab", "description": "Tools in the mcp__lab namespace.", "tools": [SECRET]}  # fmt: skip
EXEC = {"type": "custom", "name": "exec", "description": "Runs JavaScript.", "format": {"type": "text"}}  # fmt: skip
FUNCTIONS = {"type": "namespace", "name": "functions", "description": "", "tools": [EXEC]}
SEARCH = {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": NAMED}  # fmt: skip
SEARCHED = {"type": "tool_search_call", "call_id": "c0", "status": "completed", "execution": "client", "arguments": {"name": "numbers"}}  # fmt: skip
FOUND = {"type": "tool_search_output", "call_id": "c0", "status": "completed", "execution": "client", "tools": [LAB]}  # fmt: skip


def item_of(url: str, **fields: Any) -> dict[str, Any]:
    """The only item of an answer, and the same of its stream."""
    asked = {"input": SUM, "max_output_tokens": 300, "parallel_tool_calls": False, **fields}
    (whole,) = answer(url, "responses", **asked)["output"]
    told = events(url, "responses", **asked)
    (streamed,) = [one["item"] for one in told if one["type"] == "response.output_item.done"]
    (begun,) = [one["item"] for one in told if one["type"] == "response.output_item.added"]
    assert {**streamed, "id": "", "call_id": ""} == {**whole, "id": "", "call_id": ""}
    assert begun.keys() == streamed.keys()
    return whole


def offered(running: Running, route: str = "responses", **fields: Any) -> list[str]:
    """The names of the tools that the model reads."""
    asked = {"input": [ASKED]} if route == "responses" else {"messages": [ASKED], "max_tokens": 4}
    answer(running.url, route, **{**asked, **fields})
    use = running.assistant.requests[-1].tool_use
    return [] if use is None else [tool.name for tool in use.tools]


@pytest.mark.parametrize(
    ("group", "kind"), [(LAB, "function_call"), (FUNCTIONS, "custom_tool_call")]
)
def test_a_tool_of_a_group_is_called_in_its_group(url: str, group: Any, kind: str) -> None:
    """Codex sends the tools of each MCP server so; they were left out."""
    (tool,) = group["tools"]
    named = {"type": tool["type"], "name": tool["name"], "namespace": group["name"]}
    tools = [{"type": "function", **ADD}, group]
    call = item_of(url, tools=tools, tool_choice=named)
    assert (call["type"], call["name"], call["namespace"]) == (kind, tool["name"], group["name"])
    fields: Any = {"tools": tools, "tool_choice": named, "max_output_tokens": 300, "parallel_tool_calls": False}  # fmt: skip
    first = answer(url, "responses", input=[ASKED], **fields)
    assert [one["type"] for one in first["tools"]] == ["function", "namespace"]
    assert first["tool_choice"] == named
    output = {"type": f"{kind}_output", "call_id": first["output"][0]["call_id"], "output": "4711"}
    sent = answer(url, "responses", input=[ASKED, *first["output"], output], **fields)
    kept = answer(url, "responses", input=[output], previous_response_id=first["id"], **fields)
    assert sent["usage"]["input_tokens"] == kept["usage"]["input_tokens"]


def test_the_model_reads_one_name_of_a_tool_in_a_group(running: Running) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "secret_number", "namespace": "mcp__lab", "arguments": "{}"}  # fmt: skip
    output = {"type": "function_call_output", "call_id": "c", "output": "4711"}
    items = [ASKED, call, output]
    assert offered(running, input=items, tools=[LAB]) == ["mcp__lab__secret_number"]
    request = running.assistant.requests[-1]
    assert request.messages[1].calls[0].name == "mcp__lab__secret_number"
    (tool,) = request.tool_use.tools
    assert tool.description == "Tools in the mcp__lab namespace.\n\nGives a number."


def test_groups_may_have_tools_of_the_same_name(running: Running) -> None:
    other = {**LAB, "name": "mcp__home__"}
    names = offered(running, tools=[LAB, other, SECRET])
    assert names == ["mcp__lab__secret_number", "mcp__home__secret_number", "secret_number"]


@pytest.mark.parametrize("item", [FOUND, {"type": "additional_tools", "role": "developer", "tools": [LAB]}])  # fmt: skip
def test_tools_that_come_in_the_conversation_are_offered(running: Running, item: Any) -> None:
    items = [ASKED, SEARCHED, item, ASKED]
    names = offered(running, input=items, tools=[SEARCH])
    assert names == ["tool_search", "mcp__lab__secret_number"]
    assert offered(running, input=[*items, item, ASKED], tools=[SEARCH, LAB]) == names
    assert offered(running, input=items)[-1:] == names[-1:]


def test_the_model_reads_what_a_search_has_found(running: Running) -> None:
    offered(running, input=[ASKED, SEARCHED, FOUND], tools=[SEARCH])
    *_, call, result = running.assistant.requests[-1].messages
    assert (call.calls[0].name, call.calls[0].arguments) == ("tool_search", {"name": "numbers"})
    assert result.content == "Tools that can be called now: mcp__lab__secret_number"


BUILT_IN: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "local_shell": ({}, "action", {"type": "exec", "env": {}}),
    "shell": ({"environment": {"type": "local"}}, "action", {}),
    "apply_patch": ({}, "operation", {}),
    "tool_search": (SEARCH, "arguments", {}),
}
OUTPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "local_shell": ({"output": "a.py"}, "a.py"),
    "shell": ({"output": [{"stdout": "a.py\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}]}, "a.py\n(exit code 1)"),
    "apply_patch": ({"status": "failed"}, "failed"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BUILT_IN)
def test_a_built_in_tool_is_called_in_its_own_form(url: str, kind: str) -> None:
    """OpenAI's agents and older versions of Codex run these; they were left out."""
    described, field, usual = BUILT_IN[kind]
    tool = {**described, "type": kind}
    call = item_of(url, tools=[tool], tool_choice="required")
    assert call["type"] == f"{kind}_call"
    assert usual.items() <= call[field].items()
    wanted = {"local_shell": "command", "shell": "commands", "apply_patch": "path", "tool_search": "name"}  # fmt: skip
    assert wanted[kind] in call[field]
    again = item_of(url, tools=[tool, {"type": "function", **ADD}], tool_choice={"type": kind})
    assert again["type"] == call["type"]


@pytest.mark.parametrize("kind", OUTPUTS)
def test_what_came_of_a_built_in_tool_is_read(running: Running, kind: str) -> None:
    said, read = OUTPUTS[kind]
    arguments = {"type": "update_file", "path": "a.py", "diff": "+1"} if kind == "apply_patch" else {"commands": ["ls"], "command": ["ls"]}  # fmt: skip
    call = {"type": f"{kind}_call", "call_id": "c", BUILT_IN[kind][1]: arguments}
    output = {"type": f"{kind}_call_output", "call_id": "c", **said}
    assert offered(running, input=[ASKED, call, output], tools=[{"type": kind}]) == [kind]
    _, called, result = running.assistant.requests[-1].messages
    assert called.calls[0].name == kind
    assert called.calls[0].arguments.items() <= arguments.items()
    assert (result.content, result.answers) == (read, "c")


def test_openais_client_reads_the_calls(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        asked: Any = {"model": "pocket", "input": SUM, "tools": [{"type": "shell"}, LAB], "max_output_tokens": 300}  # fmt: skip
        *_, last = client.responses.create(**asked, tool_choice={"type": "shell"}, stream=True)
        (call,) = last.response.output  # perhaps cut off: the smallest model writes many commands
        assert call.type == "shell_call"
        assert isinstance(call.action.commands, list)
        named: Any = {"type": "function", "name": "secret_number", "namespace": "mcp__lab"}
        (call,) = client.responses.create(**asked, tool_choice=named).output
        assert call.type == "function_call"
        assert (call.name, call.namespace) == ("secret_number", "mcp__lab")


@pytest.mark.parametrize("tool", [{"type": "shell", "environment": {"type": "container_auto"}}, {"type": "tool_search"}])  # fmt: skip
def test_built_in_tools_that_the_provider_runs_are_skipped(running: Running, tool: Any) -> None:
    found = post(running.url, "responses", input=SUM, tools=[tool])
    assert found.headers["x-slipstream-skipped"] == f"tools of type {tool['type']}"


DEFERRED = {"name": "notes", "input_schema": NAMED, "defer_loading": True}
PLACEHOLDER = {"name": "placeholder", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True}  # fmt: skip
FINDER = {"name": "ToolSearch", "input_schema": NAMED}
CLAUDES = [FINDER, DEFERRED, PLACEHOLDER]
USE = {"type": "tool_use", "id": "c", "name": "ToolSearch", "input": {"name": "notes"}}
REFERENCE = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "tool_reference", "tool_name": "notes"}]}  # fmt: skip
NAMING = [
    ASKED,
    {"role": "assistant", "content": [USE]},
    {"role": "user", "content": [REFERENCE]},
]


def test_a_deferred_tool_is_offered_once_a_result_names_it(running: Running) -> None:
    """Claude Code finds its tools so."""
    assert offered(running, "messages", tools=CLAUDES) == ["ToolSearch"]
    names = offered(running, "messages", tools=CLAUDES, messages=NAMING)
    assert names == ["ToolSearch", "notes"]
    result = running.assistant.requests[-1].messages[-1]
    assert result.content == "(the tool notes can be called now)"


def test_deferred_tools_that_nothing_here_could_find_are_offered(running: Running) -> None:
    providers = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
    assert offered(running, "messages", tools=[FINDER, DEFERRED, providers])[1:] == ["notes"]
    assert offered(running, "messages", tools=[DEFERRED]) == ["notes"]
    chosen = {"type": "tool", "name": "notes"}
    assert "notes" in offered(running, "messages", tools=CLAUDES, tool_choice=chosen)


def change(kind: str, tool: dict[str, Any]) -> dict[str, Any]:
    return {"role": "system", "content": [{"type": kind, "tool": tool}]}


def test_messages_add_and_remove_tools(running: Running) -> None:
    reference = {"type": "tool_reference", "name": "notes"}
    inline = {"type": "tool_definition", "definition": {"name": "late", "input_schema": NAMED}}
    added, removed = change("tool_addition", reference), change("tool_removal", reference)
    late = change("tool_addition", inline)
    stories = [
        ([added], ["ToolSearch", "notes"]),
        ([added, removed], ["ToolSearch"]),
        ([removed, added, late], ["ToolSearch", "notes", "late"]),
    ]
    for changes, names in stories:
        messages = [*changes, ASKED]
        assert offered(running, "messages", tools=CLAUDES, messages=messages) == names
        assert len(running.assistant.requests[-1].messages) == 1


@pytest.mark.parametrize(
    ("kind", "name", "needed"),
    [
        ("bash_20250124", "bash", []),
        ("text_editor_20250728", "str_replace_based_edit_tool", ["command", "path"]),
        ("memory_20250818", "memory", ["command"]),
    ],
)
def test_a_tool_that_the_protocol_describes(url: str, kind: str, name: str, needed: Any) -> None:
    """The client runs it; it was left out of the request."""
    fields = {"messages": [ASKED], "max_tokens": 300, "tools": [{"type": kind, "name": name}]}
    _, begun, *found = events(url, "messages", **fields, tool_choice={"type": "any"})
    assert begun["content_block"]["type"] == "tool_use"
    assert begun["content_block"]["name"] == name
    parts = [one["delta"]["partial_json"] for one in found if one["type"] == "content_block_delta"]
    assert all(f'"{one}"' in "".join(parts) for one in needed)
