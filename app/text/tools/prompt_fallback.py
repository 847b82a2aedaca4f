"""Tools for models whose template knows of none: described in the system message, in the form of Hermes."""

import json
from collections.abc import Sequence
from dataclasses import replace

from app.request import Message, Tool, ToolCall
from app.text.tools.call_format import DEFAULT_FORM

_HOW = (
    "You may call functions to help with the request. They are listed between <tools> and "
    "</tools>, one a line:\n<tools>\n{tools}\n</tools>\n"
    "To call one, write its name and arguments as JSON between <tool_call> and </tool_call>:\n"
    "{call}\nThe next message says what it returned."
)
_EXAMPLE = f"{DEFAULT_FORM.before}NAME{DEFAULT_FORM.between}{{...}}{DEFAULT_FORM.after}"


def tools_in_words(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The conversation in words alone: tools, calls and what came of them as text."""
    spoken = in_words(messages)
    if not tools:
        return spoken
    listed = "\n".join(json.dumps(tool.described, ensure_ascii=False) for tool in tools)
    how = _HOW.format(tools=listed, call=_EXAMPLE)
    if not spoken or spoken[0].role != "system":
        return [Message("system", how), *spoken]
    return [replace(spoken[0], content=f"{spoken[0].content}\n\n{how}"), *spoken[1:]]


def in_words(messages: Sequence[Message]) -> list[Message]:
    """Calls and what came of them in words; results and the user's next message become one message.

    Many templates refuse two messages of a user in a row. Results have no marks: models that know no
    tools copy them into their answer.
    """
    spoken: list[Message] = []
    resulted = False  # the last message is a result
    names = {call.id: call.name for message in messages for call in message.calls}
    for message in messages:
        words = _spoken(message, names.get(message.answers, ""))
        if resulted and words.role == "user":
            words = replace(words, content=f"{spoken.pop().content}\n{words.content}")
        resulted = words.role == "user" and (resulted or message.role == "tool")
        spoken.append(words)
    return spoken


def _spoken(message: Message, name: str) -> Message:
    """``name`` is that of the function that a result comes from."""
    if message.role == "tool":
        return Message("user", f"The function {name} returned:\n{message.content}")
    called = [_written(call) for call in message.calls]
    text = [message.content] if message.content else []
    return Message(message.role, "\n".join([*text, *called]), reasoning=message.reasoning)


def _written(call: ToolCall) -> str:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
    return f"{DEFAULT_FORM.before}{call.name}{DEFAULT_FORM.between}{arguments}{DEFAULT_FORM.after}"
