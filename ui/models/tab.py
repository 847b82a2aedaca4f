"""The Models tab: installed models, the best one for this machine, and all that can be downloaded."""

from collections.abc import Awaitable, Callable

import gradio as gr
from typing_extensions import override

from app.chat.assistant import Assistant
from app.errors import AccessDenied
from app.models.hub.search import Found
from app.models.library.repository_view import RepositoryView
from engine.errors import InvalidRequest, TooLarge
from ui.models import available, downloads, installed
from ui.models.model_manager import ModelManager
from ui.tab import Command, Regions, Tab, Values, View, Visitor, sendable
from ui.widgets import button, notice


class ModelsTab(Tab):
    """One ModelManager for all pages; its downloads continue when a page is closed."""

    name = "Models"
    styles = ("models.css",)
    scripts = ("models.js",)

    def __init__(self, assistant: Assistant) -> None:
        super().__init__(assistant)
        self._manager = ModelManager(assistant)
        assistant.before_close(self._manager.close)

    @override
    def view(self, visitor: Visitor) -> "ModelsPage":
        return ModelsPage(self._manager)

    @override
    def layout(self) -> Regions:
        regions: dict[str, gr.HTML] = {}
        with gr.Column(elem_id="models", elem_classes="screen"):
            with gr.Column(elem_classes="sheet"):
                for name in ("best", "here", "ways"):
                    regions[name] = gr.HTML("", elem_id=f"models-{name}")
                gr.HTML(available.FIND, elem_id="models-find")
                for name in ("list", "hub"):
                    regions[name] = gr.HTML("", elem_id=f"models-{name}")
            for name in ("tray", "state"):
                regions[name] = gr.HTML("", elem_id=f"models-{name}")
        return regions


class ModelsPage(View[Command]):
    """What one page shows of the models; the manager, its source, is shared by all pages."""

    def __init__(self, manager: ModelManager) -> None:
        by_name: dict[str, Callable[[str], Awaitable[None]]] = {
            "get": manager.get,
            "get-file": self._get_file,
            "pause": manager.pause,
            "resume": manager.resume,
            "cancel": manager.cancel,
            "use": self._use,
            "use-anyway": self._use_anyway,
            "context": self._set_context,
            "delete": self._delete,
            "add": self._add,
            "add-found": self._add_found,
            "token": self._keep_token,
            "search": self._search,
            "inspect": self._inspect,
            "dismiss": self._dismiss,
        }
        super().__init__({key: _about(action) for key, action in by_name.items()}, manager)
        self._manager = manager
        self._message = ""  # HTML
        self._words = ""  # of the search
        self._found: tuple[Found, ...] | None = None
        self._repositories: dict[str, RepositoryView] = {}
        self._wants_token = False
        self._wished: int | None = None  # context of the model that was refused as too large

    @override
    async def values(self) -> Values:
        manager, inventory = self._manager, self._manager.shelf
        assistant = manager.assistant
        snapshots = manager.snapshots()
        state = downloads.state(manager, snapshots, self.done)
        always = {"tray": downloads.tray(snapshots, self._message), "state": state}
        if inventory is None:
            return {"here": installed.LOOKING, **always}
        busy = frozenset(one.name for one in downloads.visible(snapshots))
        notes = available.Notes(busy, inventory.advice, inventory.unmeasured)
        return {
            "best": available.banner(inventory.suggested, busy),
            "here": installed.section(
                inventory,
                installed.Use(
                    manager.used,
                    manager.loading or assistant.loading,
                    assistant.entry.name,
                    assistant.facts.context,
                    manager.contexts,
                    bool(assistant.current.away),
                    assistant.loader.share,
                ),
            )
            + installed.engines(assistant.current.engines.reports(), assistant.entry.name),
            "ways": installed.ways(kept=inventory.token, wanted=self._wants_token),
            "list": available.catalogue(inventory.offered, notes),
            "hub": available.results(self._words, self._found, self._repositories),
            **always,
        }

    @override
    async def run(self, command: Command) -> None:
        self._message = ""
        try:
            await super().run(command)
        except AccessDenied:
            self._wants_token = True
            raise

    @override
    def fail(self, message: str) -> None:
        self._message = notice(message, alarm=True)

    @override
    async def visit(self) -> None:
        self._message = ""
        await self._manager.visit()

    async def _get_file(self, name: str) -> None:
        repo, _, label = name.partition(" ")
        seen = self._repositories.get(repo)
        choice = next((one for one in seen.choices if one.label == label), None) if seen else None
        if choice is None:
            raise InvalidRequest(f"{repo} was not inspected; search for it again")
        await self._manager.get(repo, choice.files)

    async def _use(self, name: str, context: int | None = None) -> None:
        try:
            await self._manager.use(name, context)
        except TooLarge as error:
            self._wished = context
            anyway = button("Load anyway", "use-anyway", name, "soft", name)
            self._message = notice(str(error), alarm=True, more=f" {anyway}")
            return
        got = self._manager.assistant.facts.context
        less = f", with {got:,} tokens of context, as memory allows no more"
        short = less if context and got < context else ""
        self._message = notice(f"The model that answers now is {name}{short}")

    async def _use_anyway(self, name: str) -> None:
        await self._manager.use(name, self._wished, anyway=True)
        self._message = notice(f"The model that answers now is {name}; it may be slow")

    async def _set_context(self, tokens: str) -> None:
        if not (tokens.isdecimal() and len(tokens) < 10):
            raise InvalidRequest(f"{tokens!r} is no number of tokens; choose one of the list")
        await self._use(self._manager.assistant.entry.name, int(tokens))

    async def _delete(self, name: str) -> None:
        gone = await self._manager.remove(name)
        idle, instead = gone.removed.idle_draft, gone.instead
        now = f"; the model that answers now is {instead}" if instead else ""
        more = f" {button(f'Delete its draft {idle} too', 'delete', idle)}" if idle else ""
        self._message = notice(f"Deleted {name}, {gone.removed.room}{now}", more=more)

    async def _add(self, path: str) -> None:
        self._added(await self._manager.add(path))

    async def _add_found(self, path: str) -> None:
        inventory = self._manager.shelf
        known = (
            next((o for o in inventory.elsewhere if sendable(str(o.path)) == path), None)
            if inventory
            else None
        )
        if known is None:
            raise InvalidRequest(f"{path} is no longer there; open this tab again")
        self._added(await self._manager.add(str(known.path), known.name))

    def _added(self, name: str) -> None:
        self._message = notice(f"Added {name}", more=f" {button('Use it', 'use', name)}")

    async def _keep_token(self, token: str) -> None:
        await self._manager.keep_token(token)
        self._wants_token = False
        settings = self._manager.assistant.settings
        kept = f"kept in {settings.token_file}, for you alone" if token.strip() else "forgotten"
        self._message = notice(f"The token is {kept}")

    async def _search(self, words: str) -> None:
        found = await self._manager.search(words)
        self._words, self._found = words.strip(), found

    async def _inspect(self, repo: str) -> None:
        self._repositories[repo] = await self._manager.inspect_repository(repo)

    async def _dismiss(self, _: str) -> None:
        """Remove the message, as every command does."""


def _about(action: Callable[[str], Awaitable[None]]) -> Callable[[Command], Awaitable[None]]:
    """An action on the name that a command is about."""
    return lambda command: action(command.name)
