"""The model's own chat template, rendered in Jinja's immutable sandbox."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from typing_extensions import override

from app.request import Message, Tool
from app.sandbox import Sandbox, SandboxEnded, SandboxTimeout
from engine.errors import InvalidRequest, ModelUnusable

TRUSTED = Path(__file__).resolve().parents[2] / "engine" / "bundled"
START_SECONDS = 30.0  # for a process to start on a busy machine
RENDER_SECONDS = 5.0
MEMORY = 1 << 29  # bytes for one template and one conversation
LONGEST = 1 << 25  # characters of a prompt: no model holds as many
LONGEST_REFUSAL = 500  # characters
ANOTHER = "give another one with --chat-template, or get a newer version of the model"
NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})
REASONING_KEYS = (
    "reasoning_content",
    "reasoning",
    "thinking",
)  # the names that templates have for it
_TAKES_REASONING = re.compile(r"reasoning_content|[.'\"](?:reasoning|thinking)\b")
# Whatever a stranger's text brings Python to, as it is compiled or run; memory that is short is none of it.
FAILURES = (
    TemplateError, ValueError, TypeError, ArithmeticError, LookupError, AttributeError,
    AssertionError, RuntimeError, SyntaxError,
)  # fmt: skip
PROBE_TEXT = "probetext"
PROBE = [{"role": "user", "content": PROBE_TEXT}]
_HALF = re.compile("[\ud800-\udfff]")  # half characters, which are no text
_SHORT_ID = re.compile("[A-Za-z0-9]{9}")  # the only form that every template takes

Plain = list[dict[str, Any]]  # messages, and tools, as templates see them


class ChatTemplate:
    """Messages to prompt text, as the model was trained to read them."""

    def __init__(self, source: str, specials: dict[str, str], *, foreign: bool = False) -> None:
        """``specials`` are the names templates use, such as ``bos_token``, and their texts.

        The sandbox keeps a template from reaching out, not from looping for ever: a ``foreign``
        one runs in a process of its own, with limits. Raises ModelUnusable.
        """
        self.takes_reasoning = bool(_TAKES_REASONING.search(source))
        self._render = _Distant(source, specials) if foreign else _Sandboxed(source, specials)

    @classmethod
    def load(cls, folder: Path, instead: str = "") -> "ChatTemplate | None":
        """From chat_template.jinja, or else the entry in tokenizer_config.json.

        ``instead`` is the source for a model that has none; None where there is none at all.
        """
        config = read_json(folder / "tokenizer_config.json")
        source = instead or _source(folder, config)
        if not source:
            return None
        names = (name for name in config if name.endswith("_token"))
        texts = ((name, token_text(config[name])) for name in names)
        specials = {name: text for name, text in texts if text is not None}
        return cls(source, specials, foreign=folder.resolve().parent != TRUSTED)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool] = (),
        variables: Mapping[str, Any] = NO_VARIABLES,
    ) -> str:
        """The prompt text, open for the assistant's answer; raises InvalidRequest.

        ``variables`` are further ones that the template may know; none takes another's place.
        """
        offered = [tool.described for tool in tools]
        try:
            plain = [_plain(message, in_parts=self._takes_parts) for message in messages]
            return self._render(plain, offered, dict(variables))
        except FAILURES as error:
            raise _refused(error) from error

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether the template shows a content only as a list of parts, and none that is a text."""
        for in_parts in (False, True):
            with suppress(*FAILURES):
                asked = [_plain(Message("user", PROBE_TEXT), in_parts=in_parts)]
                if PROBE_TEXT in self._render(asked, [], {}):
                    return in_parts
        return False


class TemplateStopped(InvalidRequest):
    """A template took more time or memory than any conversation needs."""


class _Generation(Extension):
    """The mark that templates for training put around what the model says; it shows nothing."""

    tags = {"generation"}  # noqa: RUF012 - as the class above declares it

    @override
    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Environment(ImmutableSandboxedEnvironment):
    # Else 10 ** (10 ** 9) is a constant, and computed while the template is still read.
    intercepted_binops: frozenset[str] = frozenset({"**"})


class _Sandboxed:
    """Jinja's immutable sandbox, in this process."""

    def __init__(self, source: str, specials: dict[str, str]) -> None:
        environment = _Environment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except FAILURES as error:
            raise ModelUnusable(
                f"the chat template is not valid Jinja: {error}; {ANOTHER}"
            ) from error
        self._specials = specials

    def __call__(self, messages: Plain, tools: Plain, more: dict[str, Any]) -> str:
        own = {"messages": messages, "tools": tools or None, "add_generation_prompt": True}
        text = self._template.render({**more, **self._specials, **own})
        if _HALF.search(text):
            raise TemplateError("it writes half a character")
        return text


class _Distant:
    """The same sandbox in a confined process, which is started again after it was killed."""

    def __init__(self, source: str, specials: dict[str, str]) -> None:
        self._source, self._specials = source, specials
        self._lock = threading.Lock()
        self._process = self._start()
        try:
            self._ask(PROBE, [], {})
        except _Overstepped as error:
            raise ModelUnusable(f"the chat template is harmful: {error}; {ANOTHER}") from error
        except TemplateError:
            pass  # it may want another conversation than this one

    def __call__(self, messages: Plain, tools: Plain, more: dict[str, Any]) -> str:
        with self._lock:
            try:
                return self._ask(messages, tools, more)
            except _Overstepped as error:
                self._process = self._start()
                raise TemplateStopped(
                    f"the model's chat template was stopped: {error}; shorten the conversation or "
                    "choose another model"
                ) from error

    def _start(self) -> Sandbox:
        process = Sandbox(_serve, (self._source, self._specials), MEMORY)
        try:
            trouble = process.receive(START_SECONDS)
        except (SandboxTimeout, SandboxEnded) as error:
            raise ModelUnusable(f"the model's chat template cannot be read: {error}") from error
        if trouble is not None:
            raise ModelUnusable(trouble)
        return process

    def _ask(self, messages: Plain, tools: Plain, more: dict[str, Any]) -> str:
        try:
            self._process.send((messages, tools, more))
            text, trouble = self._process.receive(RENDER_SECONDS)
        except (SandboxTimeout, SandboxEnded) as error:
            raise _Overstepped(str(error)) from error
        if trouble is not None:
            raise TemplateError(trouble)
        return str(text)


class _Overstepped(Exception):
    """The process of a template was stopped."""


def _serve(connection: Connection, source: str, specials: dict[str, str]) -> None:
    """In the confined process: one (text, trouble) for every conversation."""
    try:
        template = _Sandboxed(source, specials)
    except ModelUnusable as error:
        connection.send(str(error))
        return
    connection.send(None)
    while True:
        messages, tools, more = connection.recv()
        try:
            text = template(messages, tools, more)
        except FAILURES as error:
            connection.send((None, _said(error)))
            continue
        if len(text) > LONGEST:
            connection.send((None, f"it writes {len(text)} characters"))
        else:
            connection.send((text, None))


def _plain(message: Message, *, in_parts: bool) -> dict[str, Any]:
    """A message as templates see it: keys only where there is something to say, since they ask."""
    content = message.content
    parts = [{"type": "text", "text": content}] if content else []
    found: dict[str, Any] = {"role": message.role, "content": parts if in_parts else content}
    if message.calls:
        found["tool_calls"] = [
            {
                "id": _short(call.id),
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for call in message.calls
        ]
    if message.answers:
        found["tool_call_id"] = _short(message.answers)
    if message.reasoning:
        found |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    return found


def _short(name: str) -> str:
    """The id of a call in nine letters or digits, the same for the same id."""
    return name if _SHORT_ID.fullmatch(name) else hashlib.sha256(name.encode()).hexdigest()[:9]


def _refused(error: Exception) -> InvalidRequest:
    """One line of what the template says, which is a stranger's text on its way to a terminal."""
    said = _said(error)[:LONGEST_REFUSAL]
    plain = "".join(char if char.isprintable() else " " for char in said)
    reason = " ".join(plain.split())
    return InvalidRequest(f"the model's chat template refuses this conversation: {reason}")


def _said(error: Exception) -> str:
    """What Python says has a name, without which "'a'" would be all."""
    return str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model's folder; empty when there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnusable(f"{path} is not valid JSON: {error}; get the model again") from error
    if not isinstance(value, dict):
        raise ModelUnusable(f"{path} holds {type(value).__name__}, not an object")
    return value


def token_text(value: object) -> str | None:
    """A special token's text: configs write it plain or as an object with ``content``."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and not _HALF.search(value) else None


def _source(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file() and (written := _text(path)).strip():
        return written
    source = config.get("chat_template")
    if not source:
        source = read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(source, list):  # several named templates
        entries = (entry for entry in source if isinstance(entry, dict))
        named = {entry.get("name"): entry.get("template") for entry in entries}
        source = named.get("default", next(iter(named.values()), None))
    return source if isinstance(source, str) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ModelUnusable(f"{path} cannot be read ({error}); get the model again") from error


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates are written for these arguments
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """As transformers has it: Jinja's own filter would escape HTML characters."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(pattern: str) -> str:
    return datetime.now().astimezone().strftime(pattern)
