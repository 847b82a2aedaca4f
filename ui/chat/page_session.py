"""One open page: commands come in, whatever changed on it goes out, in one order."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from app.chat.assistant import Assistant
from app.chat.attachments import compose
from app.chat.prefetch import ExpectedQuestion
from app.chat.reply import RunningReply
from app.errors import AppError
from app.models.library.installed import suggestion
from app.request import Completion
from engine.errors import EngineError, InvalidRequest
from ui.chat.command import Command, adopted
from ui.chat.view import Counted, Shown, Values, values

logger = logging.getLogger(__name__)

FRAME_SECONDS = 0.05  # a page is redrawn at most so often, however fast the tokens come
LATE_SECONDS = 5.0  # so long is a command waited for that a later one has overtaken
SUGGEST_SECONDS = 1.0  # planning for forty models must not slow the opening of the page down
TABS = 16  # whose attached files are kept: a closed one says no good-bye that a reload does not say
LISTED = 200  # conversations in the list; the search finds the others
_UNEXPECTED = "something unexpected failed; nothing that you wrote is lost, please try again"


class PageSession:
    """What one page shows, and the only one who writes to it.

    Answers run in the assistant: a session watches, and a page that is reloaded watches again.
    """

    def __init__(self, assistant: Assistant, pages: "Pages", actions: "Actions") -> None:
        self.assistant, self.pages, self._actions = assistant, pages, actions
        self.shown = Shown(assistant.facts)
        self._tab = ""  # of the browser
        self._mail: deque[Command] = deque()
        self._early: dict[int, Command] = {}  # those that overtook another
        self._next = 1
        self._wake = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._suggesting: asyncio.Task[None] | None = None
        self._stale = False

    def post(self, command: Command) -> None:
        """Let the page do something, in the order in which it was asked for.

        Commands travel side by side: one that overtook another waits for it, though not for ever.
        """
        if command.number < self._next:
            self._mail.append(command)
        else:
            self._early[command.number] = command
            self._put_in_order()
        self._wait()
        self._wake.set()

    def complain(self, error: Exception) -> None:
        """Say what is wrong with a command that cannot be read."""
        self._tell(error)
        self._wake.set()

    def refresh(self) -> None:
        """Something that this page may show was changed by another one."""
        self._stale = True
        self._wake.set()

    def redraw(self) -> None:
        """Something changed that is not stored."""
        self._wake.set()

    async def views(self) -> AsyncGenerator[Values]:
        """The regions that changed, for as long as the page is open; begins with the first command."""
        sent: Values = {}
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._obey_all()
                self.shown.reading = self.assistant.reading
                now = values(self.shown)
                changed = {name: value for name, value in now.items() if sent.get(name) != value}
                sent = now
                if changed:
                    yield changed
                await asyncio.sleep(FRAME_SECONDS if self.shown.written else 0)
        finally:
            self.unwatch()

    async def list_conversations(self) -> None:
        """Read the list again."""
        read = self.assistant.history.conversations
        self.shown.conversations = await asyncio.to_thread(read, LISTED, self.shown.words)
        self.shown.presets = await asyncio.to_thread(self.assistant.history.presets.all)

    def come_back(self, tab: str) -> None:
        """What was attached in this tab of the browser is there again after a reload."""
        if tab != self._tab:
            self._tab, self.shown.attachments = tab, self.pages.attached(tab)

    def attach(self, files: Sequence[Counted]) -> None:
        """These go with the next message, and no others."""
        self.shown.attachments = files
        self.pages.keep(self._tab, files)

    async def open(self, conversation: str) -> None:
        """Show a conversation, and its answer as it is being written."""
        self.unwatch()
        history, shown = self.assistant.history, self.shown
        shown.conversation = await asyncio.to_thread(history.conversation, conversation)
        running = self.assistant.running(conversation)
        leaf = running.asked if running else None
        shown.messages = await asyncio.to_thread(history.messages, conversation, leaf)
        shown.told = await asyncio.to_thread(history.facts, conversation)
        shown.siblings = await asyncio.to_thread(history.siblings, conversation)
        standing = await self.assistant.standing(shown.conversation.system, shown.messages)
        shown.used, shown.unseen = standing.used, standing.unseen
        if running is not None:
            shown.used = running.reply.prompt_tokens
            self.watch(running.reply)

    def expect(self) -> None:
        """The next question comes from this page; an answer that runs tells when it is over."""
        shown = self.shown
        if shown.written is not None or shown.loading:
            return
        begun = compose("", [file for file, _ in shown.attachments])
        conversation = shown.conversation.id if shown.conversation else None
        known = conversation or begun or shown.system.strip()
        thinking = shown.settings.thinking
        expected = ExpectedQuestion(conversation, shown.system, begun, thinking) if known else None
        self.assistant.expect(expected)

    def leave(self) -> None:
        """Show no conversation."""
        self.unwatch()
        shown = self.shown
        shown.conversation, shown.messages, shown.used, shown.unseen = None, (), 0, 0
        shown.system = ""

    def watch(self, reply: RunningReply) -> None:
        """Show an answer while it is written."""
        self.shown.written = reply.written
        self._watching = asyncio.create_task(self._watch(reply), name="watch a reply")

    def unwatch(self) -> None:
        """Look away; the answer goes on."""
        if self._watching is not None:
            self._watching.cancel()
        self._watching, self.shown.written = None, None

    def load(self, model: str) -> None:
        """Load another model; the page goes on meanwhile."""
        self.shown.loading = model
        self._loading = asyncio.create_task(self._load(model), name="load a model")

    async def _load(self, model: str) -> None:
        try:
            await self.assistant.switch(model)
        except Exception as error:  # noqa: BLE001 - the page's edge: logged, and told in place
            self._tell(error)
        self.refresh()
        self.post(Command(do="expect"))

    def suggest(self) -> None:
        """Look for a model that suits this machine better; the page goes on meanwhile."""
        self._suggesting = asyncio.create_task(self._suggest(), name="suggest a model")

    async def _suggest(self) -> None:
        await asyncio.sleep(SUGGEST_SECONDS)
        try:
            found = await asyncio.to_thread(
                suggestion, self.assistant.settings, self.assistant.plan
            )
        except Exception:
            logger.exception("no model could be suggested")  # nobody asked for one
            return
        self.shown.suggested = found
        self._wake.set()

    async def _watch(self, reply: RunningReply) -> None:
        conversation = self.shown.conversation
        try:
            async for written in reply.watch():
                if not isinstance(written, Completion):
                    self.shown.written = written
                    self._wake.set()
        except Exception as error:  # noqa: BLE001 - the page's edge: logged, and told in place
            self._tell(error)
        if conversation is not None:
            self.post(Command(do="ended", id=conversation.id))

    def _put_in_order(self) -> None:
        while command := self._early.pop(self._next, None):
            self._mail.append(command)
            self._next += 1

    def _wait(self) -> None:
        """For the next command, where later ones are here."""
        if self._early:
            asyncio.get_running_loop().call_later(LATE_SECONDS, self._give_up, self._next)

    def _give_up(self, missing: int) -> None:
        """What has not come by now never will."""
        if self._next == missing and self._early:
            self._next = min(self._early)
            self._put_in_order()
            self._wait()
            self._wake.set()

    async def _obey_all(self) -> None:
        while self._mail:
            await self._obey(self._mail.popleft())
        if self._stale:
            self._stale = False
            await self._obey(Command(do="refresh"))

    async def _obey(self, command: Command) -> None:
        shown, told, unfit = self.shown, self.shown.serial, ""
        if "settings" in command.model_fields_set:
            shown.settings, unfit = adopted(command.settings, shown.settings)
        if command.do not in ("ended", "refresh", "expect"):  # the page says these by itself
            shown.notice = ""
        try:
            await self._action(command.do)(self, command)
        except Exception as error:  # noqa: BLE001 - the page's edge: logged, and told in place
            self._tell(error)
        if unfit:  # the page has to forget it, or it comes with every command
            once = shown.once if shown.serial != told else {}
            shown.tell(**{**once, "settings": shown.settings.model_dump_json()})
            shown.notice = shown.notice or unfit
        shown.taken = max(shown.taken, command.number)

    def _action(self, name: str) -> "Action":
        if name not in self._actions:
            raise InvalidRequest(f"this page cannot do {name!r}; reload it")
        return self._actions[name]

    def _tell(self, error: Exception) -> None:
        expected = isinstance(error, (AppError, EngineError))
        if not expected:
            logger.error("the page could not do something", exc_info=error)
        self.shown.notice = str(error) if expected else _UNEXPECTED


Action = Callable[[PageSession, Command], Awaitable[None]]
Actions = Mapping[str, Action]


class Pages:
    """All open pages, so that what one changes is seen on the others."""

    def __init__(self, assistant: Assistant, actions: Actions) -> None:
        self._assistant, self._actions = assistant, actions
        self._sessions: dict[str, PageSession] = {}
        self._attached: dict[str, Sequence[Counted]] = {}  # by tab, the one of the last change last
        assistant.when_switching(self.changed)
        assistant.when_reading(self.redraw)

    def session(self, key: str) -> PageSession:
        """The page of that key, made when it is new."""
        return self._sessions.setdefault(key, PageSession(self._assistant, self, self._actions))

    def close(self, key: str) -> None:
        """A page was closed."""
        with suppress(KeyError):
            del self._sessions[key]

    def attached(self, tab: str) -> Sequence[Counted]:
        """What goes with the next message of this tab."""
        return self._attached.get(tab, ())

    def keep(self, tab: str, files: Sequence[Counted]) -> None:
        """Until they are sent, or many other tabs have files, too."""
        self._attached.pop(tab, None)
        if tab and files:
            self._attached[tab] = files
        if len(self._attached) > TABS:
            del self._attached[next(iter(self._attached))]

    def redraw(self) -> None:
        """Every page shows whether something is being read."""
        for session in self._sessions.values():
            session.redraw()

    def changed(self, by: PageSession | None = None) -> None:
        """Something that every page shows was changed, perhaps by one of them."""
        for session in self._sessions.values():
            if session is not by:
                session.refresh()
