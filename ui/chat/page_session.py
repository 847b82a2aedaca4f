"""What one open page shows of the chat, and Pages: all of them."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from typing_extensions import override

from app.chat.assistant import Assistant
from app.chat.attachments import compose
from app.chat.prefetch import ExpectedQuestion
from app.chat.reply import RunningReply
from app.errors import RemoteFailed
from app.models.library.installed import suggestion
from app.request import Completion
from app.text.repetition import never_ends
from engine.errors import TooLarge
from ui.chat.command import ChatCommand, valid_settings
from ui.chat.composer import Counted
from ui.chat.view import ChatState, running_values, values
from ui.tab import Values, View, Visitor, error_text
from ui.widgets import sentence

log = logging.getLogger(__name__)

FRAME_SECONDS = 0.05  # the least time between two updates of a running answer
LATE_SECONDS = 5.0  # how long later commands wait for an earlier one that has not arrived
SUGGEST_SECONDS = 1.0  # planning for forty models must not slow the opening of the page down
TABS = 16  # browser tabs whose attached files are kept, as a closed tab looks like a reload
LISTED = 200  # conversations in the list; the search finds the others
_BY_THE_SERVER = ("ended", "refresh", "expect")  # commands that leave the notice of the last one


class PageSession(View[ChatCommand]):
    """One open page of the chat.

    Answers run in the assistant: a session only watches one, and a reloaded page watches it again.
    """

    def __init__(
        self, assistant: Assistant, pages: "Pages", actions: "Actions", visitor: Visitor
    ) -> None:
        super().__init__({name: partial(action, self) for name, action in actions.items()})
        self.assistant, self.pages = assistant, pages
        self.history, self.admit = assistant.history.of(visitor.owner), visitor.admit
        self.state = ChatState(assistant.facts, here=visitor.owner is None)
        self._tab = ""  # of the browser
        self._inbox: deque[ChatCommand] = deque()
        self._early: dict[int, ChatCommand] = {}  # by number: an earlier one has not arrived yet
        self._next = 1
        self._watching: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._suggesting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._stale = False
        self._started = False  # the page has sent a command
        self._only_answer = False  # since the last update only the running answer changed

    @property
    @override
    def frame_seconds(self) -> float:
        return FRAME_SECONDS if self.state.written else 0.0

    @override
    async def receive(self, command: ChatCommand) -> None:
        self.post(command)

    def post(self, command: ChatCommand) -> None:
        """Run a command after all with a lower number; an early one waits ``LATE_SECONDS`` at most."""
        self._started = True
        if command.number < self._next:
            self._inbox.append(command)
        else:
            self._early[command.number] = command
            self._put_in_order()
        self._wait()
        self.redraw()

    @override
    def fail(self, message: str) -> None:
        self._started = True
        self.state.notice = message
        self.redraw()

    @override
    async def visit(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Read everything again, as another page or tab changed something."""
        self._stale = True
        self.redraw()

    def redraw(self) -> None:
        """Send what changed, wherever on the page it is."""
        self._only_answer = False
        self.source.change()

    @override
    async def values(self) -> Values:
        """All regions, or those of the running answer; none before the page's first command."""
        if not self._started:
            return {}
        if self._only_answer:
            return running_values(self.state)
        self._only_answer = True
        await self._run_all()
        self.state.reading = self.assistant.prefetch.active
        return values(self.state)

    @override
    def close(self) -> None:
        self.unwatch()
        self.pages.remove(self)

    async def list_conversations(self) -> None:
        """Read the list again."""
        read = self.history.conversations
        self.state.conversations = await asyncio.to_thread(read, LISTED, self.state.words)
        self.state.presets = await asyncio.to_thread(self.history.presets.all)

    async def list_changed(self) -> None:
        """Read the list and the open conversation again, and let other pages read all of it."""
        await self.list_conversations()
        if self.state.conversation is not None:
            read = self.history.conversation
            self.state.conversation = await asyncio.to_thread(read, self.state.conversation.id)
        self.pages.changed(self)

    def come_back(self, tab: str) -> None:
        """Attach what was attached in this browser tab before a reload."""
        if tab != self._tab:
            self._tab, self.state.attachments = tab, self.pages.attached(self._place(tab))

    def attach(self, files: Sequence[Counted]) -> None:
        """Send exactly these files with the next message."""
        self.state.attachments = files
        self.pages.keep(self._place(self._tab), files)

    def _place(self, tab: str) -> str:
        """Of a browser tab, which is not another key's tab of that name."""
        return f"{self.history.owner or ''}/{tab}" if tab else ""

    async def open(self, conversation: str) -> None:
        """Show a conversation, and its running answer if it has one."""
        self.unwatch()
        history, state = self.history, self.state
        state.conversation = await asyncio.to_thread(history.conversation, conversation)
        running = self.assistant.running(conversation)
        leaf = running.question if running else None
        state.messages = await asyncio.to_thread(history.messages, conversation, leaf)
        state.facts_by_id = await asyncio.to_thread(history.facts, conversation)
        state.siblings = await asyncio.to_thread(history.siblings, conversation)
        standing = await self.assistant.context_use(state.conversation.system, state.messages)
        state.used, state.unseen = standing.used, standing.unseen
        if running is not None:
            state.used = running.reply.prompt_tokens
            self.watch(running.reply)

    @property
    def _asked(self) -> str:
        """The newest question."""
        asked = (one.content for one in reversed(self.state.messages) if one.role == "user")
        return next(asked, "")

    def expect(self) -> None:
        """Let the assistant read ahead for the next question, which will come from this page."""
        state = self.state
        if state.written is not None or state.loading:
            return
        files = compose("", [file for file, _ in state.attachments])
        conversation = state.conversation.id if state.conversation else None
        known = conversation or files or state.system.strip()
        thinking = state.settings.thinking
        expected = ExpectedQuestion(conversation, state.system, files, thinking) if known else None
        self.assistant.expect(expected)

    def leave(self) -> None:
        """Show no conversation."""
        self.unwatch()
        state = self.state
        state.conversation, state.messages, state.used, state.unseen = None, (), 0, 0
        state.system = ""

    def watch(self, reply: RunningReply) -> None:
        """Show an answer while it is written."""
        self.state.written = reply.written
        self._watching = asyncio.create_task(self._watch(reply), name="watch a reply")

    def unwatch(self) -> None:
        """Stop watching; the answer continues."""
        if self._watching is not None:
            self._watching.cancel()
        self._watching, self.state.written = None, None

    def load(self, model: str, *, anyway: bool = False) -> None:
        """Load another model in the background; ``anyway`` also where memory seems too small."""
        self.state.loading = model
        self._loading = asyncio.create_task(self._load(model, anyway=anyway), name="load a model")

    async def _load(self, model: str, *, anyway: bool) -> None:
        try:
            await self.assistant.switch(model, anyway=anyway)
        except TooLarge as error:
            self.state.too_large = model
            self.fail(str(error))
        except Exception as error:  # noqa: BLE001 - the page's edge: shown in place, and logged
            self.fail(error_text(error))
        self.refresh()
        self.post(ChatCommand(command="expect"))

    def suggest(self) -> None:
        """Look for a better model for this machine in the background."""
        self._suggesting = asyncio.create_task(self._suggest(), name="suggest a model")

    def look_around(self) -> None:
        """Ask other engines for their models in the background."""
        if self.assistant.settings.engines:
            self._looking = asyncio.create_task(self._look_around(), name="ask other engines")

    async def _look_around(self) -> None:
        await self.assistant.current.ask_engines()
        self.refresh()

    async def _suggest(self) -> None:
        await asyncio.sleep(SUGGEST_SECONDS)
        try:
            found = await asyncio.to_thread(
                suggestion, self.assistant.settings, self.assistant.current.plan
            )
        except Exception:
            log.exception("no model could be suggested")  # the person did not ask for one
            return
        self.state.suggested = found
        self.redraw()

    async def _watch(self, reply: RunningReply) -> None:
        conversation = self.state.conversation
        try:
            async for written in reply.watch():
                if not isinstance(written, Completion):
                    if never_ends(written.text, self._asked):
                        reply.cancel()
                    self.state.written = written
                    self.source.change()
        except Exception as error:  # noqa: BLE001 - the page's edge: shown in place, and logged
            here = self.assistant.current.local if isinstance(error, RemoteFailed) else None
            self.state.offer = here.entry.name if here else ""
            self.fail(error_text(error))
        if conversation is not None:
            self.post(ChatCommand(command="ended", id=conversation.id))

    def _put_in_order(self) -> None:
        while command := self._early.pop(self._next, None):
            self._inbox.append(command)
            self._next += 1

    def _wait(self) -> None:
        """Give the next command a time limit if later ones have arrived."""
        if self._early:
            asyncio.get_running_loop().call_later(LATE_SECONDS, self._give_up, self._next)

    def _give_up(self, missing: int) -> None:
        """Continue without a command that did not arrive in time."""
        if self._next == missing and self._early:
            self._next = min(self._early)
            self._put_in_order()
            self._wait()
            self.redraw()

    async def _run_all(self) -> None:
        while self._inbox:
            await self._run_one(self._inbox.popleft())
        if self._stale:
            self._stale = False
            await self._run_one(ChatCommand(command="refresh"))

    async def _run_one(self, command: ChatCommand) -> None:
        state, serial, invalid = self.state, self.state.serial, ""
        if "settings" in command.model_fields_set:
            state.settings, invalid = valid_settings(command.settings, state.settings)
        told = sentence(state.notice) if command.more else ""
        if command.command not in _BY_THE_SERVER and not told:
            state.notice = state.too_large = state.offer = ""
        try:
            await self.run(command)
        except Exception as error:  # noqa: BLE001 - the page's edge: shown in place, and logged
            state.notice = f"{told} {sentence(error_text(error))}".strip()
        if invalid:  # the page has to forget it, or it comes with every command
            once = state.once if state.serial != serial else {}
            state.do_once({**once, "settings": state.settings.model_dump_json()})
            state.notice = state.notice or invalid
        state.taken = max(state.taken, command.number)


Action = Callable[[PageSession, ChatCommand], Awaitable[None]]
Actions = Mapping[str, Action]


class Pages:
    """All open pages, so that what one changes is seen on the others."""

    def __init__(self, assistant: Assistant, actions: Actions) -> None:
        self._assistant, self._actions = assistant, actions
        self._sessions: set[PageSession] = set()
        self._attached: dict[str, Sequence[Counted]] = {}  # by browser tab, the newest last
        assistant.current.on_switch.append(self.changed)
        assistant.prefetch.callbacks.append(self.redraw)

    def open(self, visitor: Visitor) -> PageSession:
        """A new page."""
        session = PageSession(self._assistant, self, self._actions, visitor)
        self._sessions.add(session)
        return session

    def remove(self, session: PageSession) -> None:
        """A page was closed."""
        self._sessions.discard(session)

    def attached(self, tab: str) -> Sequence[Counted]:
        """The files that belong to the next message of this browser tab."""
        return self._attached.get(tab, ())

    def keep(self, tab: str, files: Sequence[Counted]) -> None:
        """Keep files until they are sent, or ``TABS`` other browser tabs have attached some."""
        self._attached.pop(tab, None)
        if tab and files:
            self._attached[tab] = files
        if len(self._attached) > TABS:
            del self._attached[next(iter(self._attached))]

    def redraw(self) -> None:
        """The assistant began or ended to read ahead."""
        for session in self._sessions:
            session.redraw()

    def changed(self, by: PageSession | None = None) -> None:
        """Something that every page shows was changed, perhaps by one of them."""
        for session in self._sessions:
            if session is not by:
                session.refresh()
