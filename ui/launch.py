"""The ``slipstream`` command: assistant, endpoint and page in one process."""

import asyncio
import errno
import gc
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from app.commands import main as cli
from app.environment import without_network
from app.errors import SettingsError
from app.keys.opening import Opening
from app.models.catalog import resolve
from app.terminal import notify, waiting
from ui.gradio_import import without_stubs

if TYPE_CHECKING:
    from app.chat.assistant import Assistant
    from app.server.listen import Server


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; without a subcommand it serves the page."""
    try:
        return cli.main(argv, serve=serve)
    finally:
        gc.freeze()  # at its exit Python looks for garbage in all that was imported: a second


def serve(options: cli.ServeOptions) -> int:
    """Serve until a signal arrives; return the exit status. Raises AppError or EngineError."""
    settings = options.settings
    opening = Opening.of(options.host, settings)
    if settings.engine_of(options.model) is None:  # report a wrong name before anything slow
        resolve(settings, options.model, options.draft_model)
    signal.signal(signal.SIGTERM, _interrupt)
    with listen(options.host, options.port) as listener:
        try:
            asyncio.run(_serve(options, opening, listener))
        except asyncio.CancelledError:  # a SIGTERM while the model loaded: the same as Ctrl-C
            raise KeyboardInterrupt from None
    return 0


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; opened before anything slow, so that a busy port is reported at once."""
    if not 0 <= port < 2**16:
        raise SettingsError(f"{port} is not a port; choose 0 to {2**16 - 1} with --port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        busy = error.errno == errno.EADDRINUSE
        why = "is taken, perhaps by another Slipstream" if busy else f"cannot be used ({error})"
        raise SettingsError(f"port {port} of {host} {why}; choose another with --port") from error


async def _serve(options: cli.ServeOptions, opening: Opening, listener: socket.socket) -> None:
    """Load the model, serve until a signal, and end every process."""
    from app.chat.assistant import Assistant
    from app.chat.loader import Loader

    loader = Loader(serving=True)
    settings = options.settings
    loading = Assistant.open(settings, options.model, options.draft_model, loader)
    with _sigterm_cancels():
        # the model loads in its own process while this one imports Gradio
        both = asyncio.gather(loading, asyncio.to_thread(_import_page))
        assistant, _ = await waiting(f"loading {options.model}", both, lambda: loader.share)
    notify(assistant.history.notice, *assistant.facts.notes, opening.warning)
    try:
        await _server(assistant, options, opening, listener).serve([listener])
    finally:
        await assistant.close()


def _import_page() -> None:
    with without_network(), without_stubs():
        import_module("ui.page")


@contextmanager
def _sigterm_cancels() -> Iterator[None]:
    """While the model loads, a SIGTERM cancels this task through the loop.

    SIGINT, which it is turned into later, is blocked for moments while a process is started, and a
    SIGTERM was once seen to get lost there.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None  # called inside a task
    if sys.platform == "win32":  # loops have no signal handlers there
        yield
        return
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    """Clean up as after Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def _server(
    assistant: "Assistant", options: cli.ServeOptions, opening: Opening, listener: socket.socket
) -> "Server":
    from app.server.app import create_app
    from app.server.door import Access
    from app.server.guard import WILDCARDS, literal
    from app.server.listen import Server
    from ui import page as blocks

    settings = options.settings
    access = Access(opening.keys, blocks.login, settings.host_names, settings.cors_origins)
    closed = opening.keys is not None
    shown = sys.stderr.write if options.access_log else None
    app = create_app(assistant, options.host, shown, access)
    with without_network():
        blocks.mount(app, blocks.build(assistant, closed=closed), closed=closed)
    host = "localhost" if options.host in WILDCARDS else literal(options.host)
    scheme = "http" if opening.tls is None else "https"
    url = f"{scheme}://{host}:{listener.getsockname()[1]}"
    return Server(app, partial(_announce, url, browser=options.browser), opening.tls)


def _announce(url: str, *, browser: bool) -> None:
    sys.stdout.write(f"Slipstream is at {url} (programs: {url}/v1). Ctrl-C stops it.\n")
    sys.stdout.flush()
    if browser:
        threading.Thread(target=open_browser, args=(url,), daemon=True).start()


def open_browser(url: str) -> None:
    """Open ``url`` in a browser with a window; never in one that runs in the terminal."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return
    if type(browser) is not webbrowser.GenericBrowser:
        browser.open(url)
