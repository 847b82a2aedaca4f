"""One page's view of the models: what it was told and found, and what it asks the library to do."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

from app.errors import AccessDenied, AppError
from app.model_manager import ModelManager
from app.models.downloads.partial_file import shown_bytes
from app.models.hub.search import Found
from app.models.library.repository_view import RepositoryView
from engine.errors import EngineError, InvalidRequest
from ui.models import available as models_list
from ui.models import downloads as models_tray
from ui.models import installed as models_here
from ui.widgets import TabCommand, button, notice

log = logging.getLogger(__name__)

_UNEXPECTED = "something unexpected failed; the log says more, please try again"

Values = dict[str, str]  # HTML by region


class ModelsPage:
    """The library is shared by all pages; what was searched and said belongs to one."""

    def __init__(self, library: ModelManager) -> None:
        self._library = library
        self._says = ""  # HTML
        self._words = ""  # of the search
        self._found: tuple[Found, ...] | None = None
        self._looks: dict[str, RepositoryView] = {}
        self._wants_token = False
        self._done = 0  # commands so far
        self._acts: dict[str, Callable[[str], Awaitable[None]]] = {
            "get": self._get,
            "get-file": self._get_file,
            "pause": library.pause,
            "resume": library.resume,
            "cancel": library.cancel,
            "use": self._use,
            "delete": self._delete,
            "add": self._add,
            "add-found": self._add_found,
            "token": self._token,
            "search": self._search,
            "closer": self._closer,
            "hush": self._hush,
            "visit": self._visit,
        }

    async def views(self) -> AsyncGenerator[Values]:
        """The regions that changed, for as long as the page is open."""
        sent: Values = {}
        while True:
            seen, now = self._library.version, self._values()
            changed = {name: value for name, value in now.items() if sent.get(name) != value}
            sent = now
            if changed:
                yield changed
            await self._library.changed(seen)

    async def obey(self, asked: TabCommand) -> None:
        """Do one thing and say what came of it."""
        self._says = ""
        try:
            await self._act(asked.ask)(asked.name)
        except Exception as error:  # noqa: BLE001 - the page's edge: logged, and told in place
            self._fail(error)
        self._done += 1
        self._library.change()

    def _act(self, ask: str) -> Callable[[str], Awaitable[None]]:
        if ask not in self._acts:
            raise InvalidRequest(f"this page cannot do {ask!r}; reload it")
        return self._acts[ask]

    def _values(self) -> Values:
        library, shelf = self._library, self._library.shelf
        downloads = library.snapshots()
        state = models_tray.state(library, downloads, self._done)
        always = {"tray": models_tray.tray(downloads, self._says), "state": state}
        if shelf is None:
            return {"here": models_here.LOOKING, **always}
        busy = frozenset(seen.name for seen in models_tray.shown(downloads))
        return {
            "best": models_list.banner(shelf.suggested, busy),
            "here": models_here.section(shelf, models_here.Use(library.used, library.loading)),
            "ways": models_here.ways(kept=shelf.token, wanted=self._wants_token),
            "list": models_list.catalogue(shelf.offered, busy),
            "hub": models_list.results(self._words, self._found, self._looks),
            **always,
        }

    async def _get(self, name: str) -> None:
        await self._library.get(name)

    async def _get_file(self, name: str) -> None:
        repo, _, label = name.partition(" ")
        look = self._looks.get(repo)
        choice = next((one for one in look.choices if one.label == label), None) if look else None
        if choice is None:
            raise InvalidRequest(f"{repo} was not looked at; search for it again")
        await self._library.get(repo, choice.files)

    async def _use(self, name: str) -> None:
        await self._library.use(name)
        self._says = notice(f"The model that answers now is {name}")

    async def _delete(self, name: str) -> None:
        gone = await self._library.remove(name)
        idle, instead = gone.removed.idle_draft, gone.instead
        now = f"; the model that answers now is {instead}" if instead else ""
        more = f" {button(f'Delete its draft {idle} too', 'delete', idle)}" if idle else ""
        freed = shown_bytes(gone.removed.freed)
        self._says = notice(f"Deleted {name}, {freed} are free again{now}", more=more)

    async def _add(self, path: str) -> None:
        self._added(await self._library.add(path))

    async def _add_found(self, path: str) -> None:
        shelf = self._library.shelf
        known = next((o for o in shelf.elsewhere if str(o.path) == path), None) if shelf else None
        if known is None:
            raise InvalidRequest(f"{path} is no longer there; open this tab again")
        self._added(await self._library.add(path, known.name))

    def _added(self, name: str) -> None:
        self._says = notice(f"Added {name}", more=f" {button('Use it', 'use', name)}")

    async def _token(self, token: str) -> None:
        await self._library.keep_token(token)
        self._wants_token = False
        settings = self._library.assistant.settings
        kept = f"kept in {settings.token_file}, for you alone" if token.strip() else "forgotten"
        self._says = notice(f"The token is {kept}")

    async def _search(self, words: str) -> None:
        found = await self._library.search(words)
        self._words, self._found = words.strip(), found

    async def _closer(self, repo: str) -> None:
        self._looks[repo] = await self._library.inspect_repository(repo)

    async def _visit(self, _: str) -> None:
        await self._library.visit()

    async def _hush(self, _: str) -> None:
        """Take the notice away."""

    def _fail(self, error: Exception) -> None:
        expected = isinstance(error, (AppError, EngineError))
        if not expected:
            log.error("the page of models could not do something", exc_info=error)
        self._wants_token = self._wants_token or isinstance(error, AccessDenied)
        self._says = notice(str(error) if expected else _UNEXPECTED, alarm=True)
