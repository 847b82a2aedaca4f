"""What of a request goes to an engine: fields that every one of them knows, and no others."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from app.request import SAMPLING, THINKING, ChatRequest, Message, PartialAnswer, ToolUse
from engine.errors import InvalidRequest
from engine.request import AUTO, PLAIN, Penalties, SamplingParams

Body = dict[str, Any]

_NOT_THERE = "only models of this machine take it; leave it out, or choose one of them"


def check_fields(chat: ChatRequest, *, takes_gbnf: bool) -> None:
    """Refuse what would be lost on the way; raises InvalidRequest."""
    if chat.drafter not in (AUTO, PLAIN):
        raise InvalidRequest(
            f"the drafter {chat.drafter} runs only here: the other engine chooses its own drafts"
        )
    if chat.gbnf and not takes_gbnf:
        raise InvalidRequest(
            "this engine is not known to take grammars (GBNF); send a JSON Schema in response_format"
        )
    if chat.echo and chat.logprobs is not None:
        raise InvalidRequest(f"echo with logprobs: {_NOT_THERE}")


def chat_body(model: str, chat: ChatRequest, continued: PartialAnswer) -> Body:
    """The body for /chat/completions."""
    prefix = continued.text or chat.prefix
    messages = [*map(_message, chat.messages)]
    body: Body = {"messages": messages, **_common(model, chat)}
    if prefix:
        messages.append({"role": "assistant", "content": prefix})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    if chat.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": chat.logprobs}
    return {**body, **_tools(chat.tool_use), **_thinking(chat)}


def text_body(model: str, chat: ChatRequest, continued: PartialAnswer) -> Body:
    """The body for /completions."""
    prompt = list(chat.tokens) or chat.text + (continued.text or chat.prefix)
    logprobs = {} if chat.logprobs is None else {"logprobs": chat.logprobs}
    return {"prompt": prompt, **logprobs, **_common(model, chat)}


def _common(model: str, chat: ChatRequest) -> Body:
    body: Body = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    body |= dict(_sampling(chat.sampling, chat.unset))
    if chat.max_tokens is not None:
        body["max_tokens"] = chat.max_tokens
    if chat.stop:
        body["stop"] = list(chat.stop)
    if chat.schema is not None:
        body["response_format"] = _format(chat.schema)
    if chat.gbnf:
        body["grammar"] = chat.gbnf
    return body


def _sampling(sampling: SamplingParams, unset: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """What differs from what every engine does by itself: strict ones refuse names that they lack."""
    if "temperature" not in unset:
        yield "temperature", sampling.temperature
    usual = SamplingParams()
    for name in {*SAMPLING, "seed"} - {"temperature", "repeat"}:
        if (value := getattr(sampling, name)) != getattr(usual, name):
            yield name, value
    if sampling.penalties is not None:
        yield from _penalties(sampling.penalties)


def _penalties(penalties: Penalties) -> Iterator[tuple[str, Any]]:
    for name in ("presence", "frequency"):
        if value := getattr(penalties, name):
            yield f"{name}_penalty", value
    if penalties.repeat != 1:
        yield "repetition_penalty", penalties.repeat  # vLLM's and SGLang's name
        yield "repeat_penalty", penalties.repeat  # llama-server's and Ollama's
    if penalties.bias:
        yield "logit_bias", {str(token): value for token, value in penalties.bias}


def _format(schema: Mapping[str, Any]) -> Body:
    if schema == {"type": "object"}:
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": dict(schema), "strict": True},
    }


def _tools(use: ToolUse | None) -> Body:
    if use is None:
        return {}
    tools = [_described(tool.described, strict=tool.strict) for tool in use.tools]
    choice: object = "required" if use.must_call else "auto"
    if use.only:
        choice = {"type": "function", "function": {"name": use.only}}
    parallel = {} if use.parallel else {"parallel_tool_calls": False}
    return {"tools": tools, "tool_choice": choice, **parallel}


def _described(tool: Body, *, strict: bool) -> Body:
    return {**tool, "function": {**tool["function"], "strict": True}} if strict else tool


def _thinking(chat: ChatRequest) -> Body:
    """The effort under OpenAI's name, and the switch that templates have."""
    if chat.thinking not in THINKING:
        return {"chat_template_kwargs": dict(chat.variables)} if chat.variables else {}
    switch = {"enable_thinking": chat.thinking != "off", **chat.variables}
    effort = {"off": "none", "on": "medium"}.get(chat.thinking, chat.thinking)
    return {"reasoning_effort": effort, "chat_template_kwargs": switch}


def _message(message: Message) -> Body:
    body: Body = {"role": message.role, "content": message.content}
    if message.calls:
        body["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for call in message.calls
        ]
    if message.answers:
        body["tool_call_id"] = message.answers
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    return body
