"""The command ``chat``: conversations in the terminal, stored like those of the page."""

import argparse
import asyncio
import importlib
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from app.chat.assistant import Assistant
from app.chat.attachments import Attachment, compose, read_file, titled
from app.chat.reply import RunningReply
from app.commands.answering import add_answering, answering, opened
from app.commands.arguments import set_command, words
from app.errors import AppError
from app.history.records import Conversation
from app.history.transfer import to_markdown
from app.request import Completion, ReplyOptions
from app.settings import Settings, expanded
from app.terminal import harmless, notify, show_progress, waiting, write, write_lines
from app.text.repetition import never_ends, repeats
from engine.errors import EngineError, InvalidRequest, ModelUnusable, TooLarge

LISTED = 20  # conversations
MOST_LINES = 1000  # of what was typed
TYPED = "chat-lines"  # in the home folder
PROMPT = "> "


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """A chat in the terminal."""

    settings: Settings
    model: str
    system: str
    reply: ReplyOptions


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_answering(parser)
    parser.add_argument("--system", metavar="TEXT", type=words, default="", help="system prompt")
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> ChatOptions:
    chosen, reply = answering(given, settings)
    return ChatOptions(chosen, given.model, given.system, reply)


def run(options: ChatOptions) -> int:
    """Talk until /exit or the end of the input; returns the exit code."""
    with asyncio.Runner() as loop:
        assistant = loop.run(opened(options.settings, options.model))
        try:
            talk = Talk(assistant, options)
            talk.greet()
            with _lines(options.settings.home / TYPED) as read:
                while not talk.over and (line := read()) is not None:
                    _respond(loop, talk, line)
        finally:
            loop.run(assistant.close())
    return 0


def _respond(loop: asyncio.Runner, talk: "Talk", line: str) -> None:
    """Run one line; what goes wrong is one sentence, and the chat continues."""
    try:
        loop.run(talk.take(line))
    except (AppError, EngineError) as error:
        notify(f"slipstream: {error}")
    except OSError as error:
        notify(f"slipstream: {error.filename or 'the file'}: {error.strerror or error}")
    except KeyboardInterrupt:
        write_lines(["", "(stopped)"])


@contextmanager
def _lines(file: Path) -> Iterator[Callable[[], str | None]]:
    """Reads lines, with the terminal's keys and the lines of earlier chats; None at the end."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        yield lambda: next((line.rstrip("\n") for line in sys.stdin), None)
        return
    if find_spec("readline") is None:  # missing in some builds of Python for Windows
        yield _typed
        return
    editor = importlib.import_module("readline")
    if file.exists():
        _keep(partial(editor.read_history_file, file))
    try:
        yield _typed
    finally:
        editor.set_history_length(MOST_LINES)
        _keep(partial(file.touch, mode=0o600), partial(editor.write_history_file, file))


def _keep(*acts: Callable[[], object]) -> None:
    """Read or write the lines of earlier chats; a chat can do without them."""
    try:
        for act in acts:
            act()
    except OSError as error:
        notify(f"slipstream: lines of earlier chats cannot be kept: {error.strerror}")


def _typed() -> str | None:
    r"""One message; a line that ends with ``\`` continues. Ctrl-C empties it, Ctrl-D ends the chat."""
    text = ""
    while True:
        try:
            line = input("  " if text else PROMPT)
        except EOFError:
            return None
        except KeyboardInterrupt:
            text = ""
            sys.stdout.write("\n")
            continue
        if not line.endswith("\\"):
            return text + line
        text += f"{line[:-1]}\n"


class Talk:
    """One chat: the open conversation, and what the commands do."""

    def __init__(self, assistant: Assistant, options: ChatOptions) -> None:
        self.over = False
        self._assistant, self._reply, self._system = assistant, options.reply, options.system
        self._open: Conversation | None = None
        self._listed: list[Conversation] = []
        self._files: tuple[Attachment, ...] = ()
        self._console = Console(highlight=False, soft_wrap=True)

    def greet(self) -> None:
        """Say which model answers."""
        if sys.stdin.isatty():
            self._say(
                f"{self._assistant.entry.name} answers. /help lists the commands, Ctrl-D ends the chat."
            )

    async def take(self, line: str) -> None:
        """Answer a message, or run a command; two slashes begin a message with one."""
        name, _, rest = line.strip().partition(" ")
        if line.startswith("/") and not line.startswith("//"):
            if name not in COMMANDS:
                raise InvalidRequest(
                    f"there is no command {name}; /help lists them, // begins a message with /"
                )
            await COMMANDS[name][1](self, rest.strip())
        elif line.strip() or self._files:
            await self._send(line[1:] if line.startswith("//") else line)

    async def _send(self, text: str) -> None:
        content = compose(text, self._files)
        history, begun = self._assistant.history, self._open
        if begun is None:
            begun = await asyncio.to_thread(
                history.create_conversation, titled(content), self._system
            )
        try:
            reply = await self._assistant.send(begun.id, content, self._reply)
        except (AppError, EngineError):
            if self._open is None:
                await asyncio.to_thread(history.delete, begun.id)
            raise
        self._open, self._files = begun, ()
        await self._show(reply, content)

    async def _show(self, reply: RunningReply, asked: str) -> None:
        """Write an answer while it comes; Ctrl-C stops it and keeps what is written."""
        text = before = reply.written.text
        show_progress("reading")
        try:
            async for written in reply.watch():
                if text == before != written.text:
                    show_progress("")  # once: it would take a line of the answer away
                write(written.text[len(text) :])
                text = max(text, written.text, key=len)
                if never_ends(text, asked):
                    reply.cancel()
                if isinstance(written, Completion) and written.error:
                    notify(f"\nslipstream: {written.error}")
        except asyncio.CancelledError:
            reply.cancel()
            await reply.ended()
            raise
        finally:
            if text == before:
                show_progress("")
        write_lines([""])
        if repeats(text, asked):
            self._say("This answer repeats itself. /again gives another one.")

    async def help(self, _: str) -> None:
        """List the commands."""
        for name, (about, _act) in COMMANDS.items():
            self._console.print(f"[bold]{escape(name):<22}[/] {escape(about)}")

    async def new(self, _: str) -> None:
        """Begin another conversation."""
        self._open, self._files = None, ()
        self._say("A new conversation.")

    async def again(self, _: str) -> None:
        """Answer the last question again."""
        current, own = self._current().id, self._assistant.loaded.text.own_sampling
        versions = sum(map(len, self._assistant.history.siblings(current).values())) or 1
        reply = self._reply.another(own, versions)
        await self._show(await self._assistant.regenerate(current, reply), await self._asked())

    async def go_on(self, _: str) -> None:
        """Continue the last answer."""
        reply = await self._assistant.extend(self._current().id, self._reply)
        await self._show(reply, await self._asked())

    async def _asked(self) -> str:
        """The newest question."""
        messages = await asyncio.to_thread(self._assistant.history.messages, self._current().id)
        return next((one.content for one in reversed(messages) if one.role == "user"), "")

    async def attach(self, rest: str) -> None:
        """Send a text file with the next message."""
        path = expanded(Path(rest))
        self._files += (await asyncio.to_thread(read_file, path),)
        self._say(f"{path.name} will be sent with the next message.")

    async def system(self, rest: str) -> None:
        """Show or set the system prompt."""
        if rest:
            self._system = rest
            if self._open is not None:
                await asyncio.to_thread(self._assistant.history.instruct, self._open.id, rest)
        self._say(f"System prompt: {self._system or 'none'}")

    async def model(self, rest: str) -> None:
        """List the models that are here, or load another one."""
        if rest:
            loader = self._assistant.loader
            switching = self._assistant.switch(rest)
            try:
                await waiting(f"loading {rest}", switching, lambda: loader.share)
            except TooLarge as error:
                anyway = f"slipstream chat --model {shlex.quote(rest)} --load-anyway"
                raise ModelUnusable(f"{error}; {anyway} loads it all the same") from error
        problems = await self._assistant.current.ask_engines()
        here = [one.name for one in self._assistant.models() if one.visible and one.usable]
        loaded = self._assistant.entry.name
        for name in dict.fromkeys((loaded, *here)):
            self._say(f"{'*' if name == loaded else ' '} {name}")
        for problem in problems.values():
            self._say(f"  {problem}")

    async def temperature(self, rest: str) -> None:
        """Show or set the temperature."""
        if rest:
            try:
                wanted = replace(
                    self._reply, temperature=float(rest), unset=self._reply.unset - {"temperature"}
                )
            except ValueError as error:
                raise InvalidRequest(f"{rest!r} is not a number; write one from 0 to 2") from error
            wanted.sampling.check()
            self._reply = wanted
        shown = f"{self._reply.temperature:g}"
        if "temperature" in self._reply.unset:
            shown = (
                f"{self._assistant.loaded.text.own_sampling.get('temperature', 0):g}, the default"
            )
        self._say(f"Temperature: {shown}")

    async def list(self, rest: str) -> None:
        """List the newest conversations, or those with some words."""
        read = self._assistant.history.conversations
        self._listed = await asyncio.to_thread(read, LISTED, rest)
        for place, one in enumerate(self._listed, 1):
            self._say(f"{place:>3}  {one.title or 'Untitled'}")

    async def open(self, rest: str) -> None:
        """Open a conversation of the list."""
        if not (rest.isdecimal() and 0 < int(rest) <= len(self._listed)):
            raise InvalidRequest("write /open with a number of /list")
        self._open = self._listed[int(rest) - 1]
        self._system = self._open.system
        for message in await asyncio.to_thread(self._assistant.history.messages, self._open.id):
            mark = PROMPT if message.role == "user" else ""
            write_lines([f"{mark}{message.content}", ""])

    async def save(self, rest: str) -> None:
        """Write the conversation as Markdown."""
        if not rest:
            raise InvalidRequest("write /save with the name of a file")
        path, current = expanded(Path(rest)), self._current()
        text = await asyncio.to_thread(to_markdown, self._assistant.history, current.id)
        with path.open("x", encoding="utf-8") as out:  # never over another file
            out.write(text)
        self._say(f"Written to {path}.")

    async def exit(self, _: str) -> None:
        """End the chat."""
        self.over = True

    def _current(self) -> Conversation:
        if self._open is None:
            raise InvalidRequest("no conversation is open; write a message first")
        return self._open

    def _say(self, text: str) -> None:
        """Something that is not of the model."""
        self._console.print(f"[dim]{escape(harmless(text))}[/]")


COMMANDS: Mapping[str, tuple[str, Callable[[Talk, str], Awaitable[None]]]] = {
    "/help": ("list the commands", Talk.help),
    "/new": ("begin another conversation", Talk.new),
    "/again": ("answer the last question again", Talk.again),
    "/continue": ("continue the last answer", Talk.go_on),
    "/attach": ("FILE: send a text file with the next message", Talk.attach),
    "/system": ("TEXT: set the system prompt; without a text, show it", Talk.system),
    "/model": ("NAME: load another model; without a name, list those here", Talk.model),
    "/temperature": ("NUMBER: 0 is greedy; without a number, show it", Talk.temperature),
    "/list": ("WORDS: list the newest conversations, or those with these words", Talk.list),
    "/open": ("NUMBER: open a conversation of the list", Talk.open),
    "/save": ("FILE: write the conversation as Markdown", Talk.save),
    "/exit": ("end the chat, as Ctrl-D does", Talk.exit),
}
