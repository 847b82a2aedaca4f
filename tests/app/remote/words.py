"""What the stub engine says: a fixed function of the request, as of a model with a seed."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Some of them come in several tokens that mean nothing alone: a half of a family, an accent.
WORDS: tuple[tuple[str, ...], ...] = (
    *((f" {word}",) for word in ("a", "the", "red", "hat", "boat", "is", "of", "17", "42,", "so.", "\n\n-")),
    (" 👩", "\u200d", "👧"), (" e", "\u0301te\u0301"), (" 日", "本", "語"), (" naïve",), (" 🇩", "🇪"),
    (" <b>", "&amp;", "</b>"), (' "quoted\\', 'n"'), (" \u2028",), (" data:", " [DONE]"),
)  # fmt: skip
PIECE = 3  # characters of a token of JSON


@dataclass(frozen=True)
class Call:
    """A call of a tool; ``arguments`` is JSON."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    """One choice, in tokens."""

    reasoning: tuple[str, ...]
    content: tuple[str, ...]
    calls: tuple[Call, ...]
    finish: str  # "stop" or "length"
    stopped_by: str | None  # the stop text
    logprobs: tuple[float, ...]  # of ``content``

    @property
    def tokens(self) -> int:
        pieces = sum(len(pieces_of(call.arguments)) for call in self.calls)
        return len(self.reasoning) + len(self.content) + pieces


def pieces_of(text: str) -> tuple[str, ...]:
    return tuple(text[at : at + PIECE] for at in range(0, len(text), PIECE))


def text_of(content: object) -> str:
    """The text of a message, also where it comes in parts."""
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content if isinstance(content, str) else ""


def talk_of(body: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who said what, in a chat or a prompt; a developer speaks as the system does."""
    if "messages" not in body:
        prompts = body["prompt"] if isinstance(body["prompt"], list) else [body["prompt"]]
        return [("prompt", str(prompt)) for prompt in prompts]
    roles = {"developer": "system"}
    return [
        (roles.get(each["role"], each["role"]), text_of(each.get("content")))
        for each in body["messages"]
    ]


def prompt_tokens(body: Mapping[str, Any]) -> int:
    return sum(4 + len(text.split()) for _, text in talk_of(body))


def say(body: Mapping[str, Any], choice: int, *, thinks: bool, words: int | None) -> Said:
    """One choice; ``words`` is its length where the request does not end it earlier."""
    temperature = float(1 if body.get("temperature") is None else body["temperature"])
    seed = body.get("seed") if temperature else None
    key = json.dumps([talk_of(body), temperature, seed, choice, body.get("top_p")])
    rng = random.Random(hashlib.sha256(key.encode()).digest())
    reasoning = _some(rng, rng.randint(3, 9)) if thinks else ()
    calls = _calls(body, rng)
    content = () if calls else _content(body, rng, words)
    content, stopped_by = _stopped(content, body.get("stop"))
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    short = limit is not None and len(reasoning) + len(content) >= limit and not calls
    if short:
        reasoning = reasoning[:limit]
        content, stopped_by = content[: limit - len(reasoning)], None
    logprobs = tuple(-round(rng.random() * 3, 4) for _ in content)
    finish = "length" if short else "stop"
    return Said(reasoning, content, calls, finish, stopped_by, logprobs)


def _some(rng: random.Random, words: int) -> tuple[str, ...]:
    return tuple(token for _ in range(words) for token in rng.choice(WORDS))


def _content(body: Mapping[str, Any], rng: random.Random, words: int | None) -> tuple[str, ...]:
    form = body.get("response_format") or {"type": "text"}
    if form["type"] == "json_object":
        return pieces_of(json.dumps({"word": rng.choice(WORDS)[0]}))
    if form["type"] == "json_schema":
        schema = form["json_schema"]["schema"]
        return pieces_of(json.dumps(conforming(schema, schema, rng), ensure_ascii=False))
    return _some(rng, rng.randint(6, 40) if words is None else words)


def _calls(body: Mapping[str, Any], rng: random.Random) -> tuple[Call, ...]:
    """Two calls of what is offered, where the last word was a person's; one where two are not wanted."""
    tools, choice = body.get("tools") or [], body.get("tool_choice", "auto")
    offered = [tool["function"] for tool in tools if tool["type"] == "function"]
    if isinstance(choice, dict):
        offered = [tool for tool in offered if tool["name"] == choice["function"]["name"]]
    asked = talk_of(body)[-1][0] == "user" or choice not in ("auto", None)
    if not offered or choice == "none" or not asked:
        return ()
    count = 1 if body.get("parallel_tool_calls") is False or isinstance(choice, dict) else 2
    chosen = [rng.choice(offered) for _ in range(count)]
    return tuple(
        Call(tool["name"], json.dumps(conforming(schema, schema, rng), ensure_ascii=False))
        for tool in chosen
        for schema in [tool.get("parameters") or {"type": "object"}]
    )


def conforming(schema: Mapping[str, Any], root: Mapping[str, Any], rng: random.Random) -> Any:
    """Something that the schema allows; knows what the stories use."""
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return conforming(target, root, rng)
    for alternatives in ("enum", "anyOf", "oneOf"):
        if alternatives in schema:
            one = rng.choice(schema[alternatives])
            return one if alternatives == "enum" else conforming(one, root, rng)
    if "const" in schema:
        return schema["const"]
    return _of_type(schema, root, rng)


def _of_type(schema: Mapping[str, Any], root: Mapping[str, Any], rng: random.Random) -> Any:
    match schema.get("type", "object"):
        case "object":
            inner = schema.get("properties", {})
            return {name: conforming(one, root, rng) for name, one in inner.items()}
        case "array":
            count = schema.get("minItems", 2)
            return [conforming(schema["items"], root, rng) for _ in range(count)]
        case "integer" | "number":
            return rng.randint(schema.get("minimum", 0), schema.get("maximum", 99))
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            return "".join(_some(rng, 2)).strip()


def _stopped(
    tokens: tuple[str, ...], stop: str | Sequence[str] | None
) -> tuple[tuple[str, ...], str | None]:
    """The tokens before the first stop text, and which one that was."""
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    text = "".join(tokens)
    found = min(((text.find(one), one) for one in stops if one in text), default=None)
    if found is None:
        return tokens, None
    left, kept = found[0], []
    for token in tokens:
        kept.append(token[:left])
        left -= len(token)
        if left <= 0:
            break
    return tuple(token for token in kept if token), found[1]
