"""The command line: runs one command, reports a failure in one sentence and an exit code."""

import argparse
import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from typing_extensions import override

from app.commands import COMMANDS, serve
from app.commands.arguments import CommandParser, Options
from app.commands.serve import ServeOptions
from app.environment import tame_libraries
from app.errors import (
    AppError,
    AttachmentRefused,
    LaneError,
    ModelInUse,
    OutputFileError,
    PromptFileError,
    SettingsError,
    UnknownDrafter,
    UnknownModel,
    UnknownRepository,
)
from app.logs import logging_to_file
from app.settings import (
    HOME_VARIABLE,
    LEVELS,
    Settings,
    load_settings,
    prepare_home,
    user_folder,
)
from app.terminal import notify
from engine.errors import EngineError, InvalidRequest, ModelUnusable, TooLarge

__all__ = ["ServeOptions", "main"]

BAD_INPUT = (
    AttachmentRefused,
    InvalidRequest,
    LaneError,
    ModelInUse,
    ModelUnusable,
    OutputFileError,
    PromptFileError,
    SettingsError,
    UnknownDrafter,
    UnknownModel,
    UnknownRepository,
)
FAILED, MISUSED, INTERRUPTED = 1, 2, 130
FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO})

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its options, ready to run."""

    options: Options
    run: Callable[[Any], int]
    anyway: str  # what loads a model that seems too large


def main(argv: Sequence[str] | None, serve: Callable[[ServeOptions], int]) -> int:
    """Run one command; ``serve`` starts the page. Returns the exit code."""
    _open_streams()
    _replace_unknown_characters()
    try:
        return _run(parse(argv, load_settings(), serve))
    except BAD_INPUT as error:
        return _complain(error, MISUSED)
    except (AppError, EngineError) as error:
        return _complain(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        _drop_output()
        return FAILED
    except OSError as error:
        return _complain_of_file(error)


def parse(
    argv: Sequence[str] | None,
    settings: Settings,
    serve: Callable[[ServeOptions], int] = lambda _: 0,
) -> Command:
    """The command that was typed; exits with code 2 on bad usage.

    Raises AppError or InvalidRequest for values that argparse cannot check.
    """
    given = _parser(settings, serve).parse_args(argv)
    chosen = replace(settings, log_level=given.log_level)
    return Command(given.parse(given, chosen), given.run, given.anyway)


class _Version(argparse.Action):
    """Print the installed version and exit."""

    @override
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"slipstream {version('slipstream')}\n")
        parser.exit()


def _parser(settings: Settings, run: Callable[[ServeOptions], int]) -> CommandParser:
    """Everything that can be typed after ``slipstream``."""
    parser = CommandParser(
        prog="slipstream",
        allow_abbrev=False,
        description="A local assistant that answers faster without changing the answer. "
        "Without a command it opens the chat page and serves an OpenAI-style endpoint.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    _add_log_level(parser, settings.log_level)
    serve.add(parser, settings, run)
    _say_how_anyway(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, help_text) in COMMANDS.items():
        commands.add_parser(name, help=help_text).declare = partial(_declare, module)
    return parser


def _declare(module: str, parser: CommandParser) -> None:
    """Import a command's module and let it declare its arguments."""
    import_module(module).add(parser)
    _add_log_level(parser, argparse.SUPPRESS)
    _say_how_anyway(parser)


def _say_how_anyway(parser: CommandParser) -> None:
    """A command that loads a model to measure it has no flag for that."""
    flag = parser.get_default("load_anyway") is not None
    parser.set_defaults(anyway="--load-anyway" if flag else "SLIPSTREAM_LOAD_ANYWAY=1")


def _add_log_level(parser: CommandParser, default: str) -> None:
    parser.add_argument(
        "--log-level",
        choices=LEVELS,
        default=default,
        help="least severe records in the log file (default: warning)",
    )


def _run(command: Command) -> int:
    """Make the user's folder, and start."""
    settings = command.options.settings
    prepare_home(settings)
    if settings.home_is_temporary:
        usual = user_folder()
        why = f"{usual} cannot be written" if usual else "this user has no home folder"
        notify(
            f"slipstream: {why}; {settings.home} is used instead, which may be emptied at any time: "
            f"set {HOME_VARIABLE} to keep conversations"
        )
    tame_libraries(settings)
    with logging_to_file(settings):
        try:
            code = command.run(command.options)
            sys.stdout.flush()  # here, where a full disk can still be reported
        except TooLarge as error:
            raise ModelUnusable(f"{error}; {command.anyway} loads it all the same") from error
        except BrokenPipeError:
            raise
        except OSError:  # people read which file it was, the log has the traceback
            log.warning("a file could not be used", exc_info=True)
            raise
    return code


def _complain(error: Exception | str, code: int) -> int:
    notify(f"slipstream: {error}")
    return code


def _complain_of_file(error: OSError) -> int:
    """Bad user-supplied path: exit code 2. Disk full or I/O error: exit code 1."""
    what, place = error.strerror or str(error), error.filename2 or error.filename
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()
    if place is None:
        return _complain(f"the output, or a file, cannot be used: {what}", FAILED)
    shown = os.fsdecode(place) if isinstance(place, bytes) else place
    return _complain(f"{shown}: {what}", FAILED if error.errno in FULL else MISUSED)


def _drop_output() -> None:
    """Discard what is still buffered: Python would try to write it at exit, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Replace streams that the caller closed by ones that read and write nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - until exit


def _replace_unknown_characters() -> None:
    """Read and print a question mark for characters that the encoding lacks."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
