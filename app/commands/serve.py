"""Without a command: the arguments of the chat page and the endpoint, which ``ui`` serves."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

from app.commands.arguments import (
    Run,
    add_dtype,
    add_loading,
    add_model,
    set_command,
    whole,
    with_loading,
)
from app.settings import Settings, expanded


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How the page and the endpoint are started."""

    settings: Settings
    host: str
    port: int
    model: str
    draft_model: str | None  # None is the catalogue's choice
    browser: bool
    access_log: bool


def add(parser: argparse.ArgumentParser, settings: Settings, run: Run[ServeOptions]) -> None:
    """Declare the arguments; ``settings`` holds the defaults."""
    parser.add_argument("--host", default=settings.host, help="address (default %(default)s)")
    parser.add_argument(
        "--port", type=whole(0, 65535), default=settings.port, help="port (default %(default)s)"
    )
    parser.add_argument(
        "--require-key",
        action="store_true",
        help="ask for an API key also on an address that only this machine reaches",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="certificate (PEM), to serve https")
    parser.add_argument("--tls-key", metavar="FILE", help="the certificate's key (PEM)")
    add_model(parser, settings.model)
    parser.add_argument(
        "--draft-model",
        metavar="MODEL",
        help="draft model (default: the model's own); layers:N is the first N layers of a GGUF file",
    )
    add_dtype(parser, settings.dtype)
    add_loading(parser)
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    parser.add_argument(
        "--no-reading-ahead",
        action="store_true",
        help="do not read a conversation or file before a question is asked; saves battery",
    )
    parser.add_argument(
        "--access-log", action="store_true", help="write a line for each request to the terminal"
    )
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> ServeOptions:
    chosen = replace(
        settings,
        dtype=given.dtype,
        read_ahead=settings.read_ahead and not given.no_reading_ahead,
        require_key=settings.require_key or given.require_key,
        tls_cert=_file(given.tls_cert) or settings.tls_cert,
        tls_key=_file(given.tls_key) or settings.tls_key,
    )
    return ServeOptions(
        with_loading(given, chosen),
        given.host.strip("[]"),  # around an address of version 6, as in a browser
        given.port,
        given.model,
        given.draft_model,
        not given.no_browser,
        given.access_log,
    )


def _file(given: str | None) -> Path | None:
    return None if given is None else expanded(Path(given)).absolute()
