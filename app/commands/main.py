"""The command line: arguments to options, failures to one sentence and an exit code."""

import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence

from app.bench.options import BenchOptions, GgufOptions, OffloadOptions, SeedsOptions
from app.commands.hardware_options import DoctorOptions, HardwareOptions, PlanOptions
from app.commands.models_options import ModelsOptions
from app.commands.options import (
    AskOptions,
    ExportGgufOptions,
    HistoryOptions,
    Options,
    ServeOptions,
    TrainHeadOptions,
    VerifyOptions,
    parse,
)
from app.errors import (
    AppError,
    LaneError,
    ModelInUse,
    OutputFileError,
    PromptFileError,
    SettingsError,
    UnknownDrafter,
    UnknownModel,
    UnknownRepository,
)
from app.settings import load_settings, prepare_home, tame_libraries
from engine.errors import EngineError, InvalidRequest, ModelUnusable

__all__ = ["ServeOptions", "main"]

BAD_INPUT = (
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


def main(argv: Sequence[str] | None, serve: Callable[[ServeOptions], int]) -> int:
    """Run one command; ``serve`` starts the page. Returns the exit code."""
    _open_streams()
    _write_any_text()
    try:
        return _run(parse(argv, load_settings()), serve)
    except BAD_INPUT as error:
        return _complain(error, MISUSED)
    except (AppError, EngineError) as error:
        return _complain(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has had enough
        _drop_output()
        return FAILED
    except OSError as error:
        return _complain_of_file(error)


def _run(options: Options, serve: Callable[[ServeOptions], int]) -> int:
    """Make the user's folder, and start."""
    from app.logs import logging_to_file

    prepare_home(options.settings)
    tame_libraries()
    with logging_to_file(options.settings):
        try:
            code = _command(options, serve)
            sys.stdout.flush()  # here, where a full disk can still be told
        except BrokenPipeError:
            raise
        except OSError:  # people are told which file it was, the log says where it was used
            log.warning("a file could not be used", exc_info=True)
            raise
    return code


def _command(options: Options, serve: Callable[[ServeOptions], int]) -> int:
    """The command itself; only now is anything heavy imported."""
    match options:
        case ServeOptions():
            return serve(options)
        case AskOptions():
            from app.commands.ask import ask

            return ask(options)
        case VerifyOptions():
            from app.commands.verify import prove

            return prove(options)
        case BenchOptions() | SeedsOptions() | OffloadOptions() | GgufOptions():
            return _bench(options)
        case TrainHeadOptions() | ExportGgufOptions():
            return _make(options)
        case _:
            return _keep(options)


def _make(options: TrainHeadOptions | ExportGgufOptions) -> int:
    """What is made of models: heads and files."""
    if isinstance(options, ExportGgufOptions):
        from app.commands.export_gguf import export_gguf

        return export_gguf(options)
    from app.commands.train_head import train_head

    return train_head(options)


def _keep(options: HistoryOptions | ModelsOptions | HardwareOptions) -> int:
    """What is kept on this machine, measurements and models; what the machine can do."""
    if isinstance(options, PlanOptions | DoctorOptions):
        return _hardware(options)
    if isinstance(options, HistoryOptions):
        from app.commands.history import report

        return report(options)
    from app.commands.models import models

    return models(options)


def _hardware(options: HardwareOptions) -> int:
    if isinstance(options, DoctorOptions):
        from app.commands.doctor import doctor

        return doctor(options)
    from app.commands.plan import report

    return report(options)


def _bench(options: BenchOptions | SeedsOptions | OffloadOptions | GgufOptions) -> int:
    if isinstance(options, GgufOptions):
        from app.bench.gguf.command import bench_gguf

        return bench_gguf(options)
    if isinstance(options, OffloadOptions):
        from app.bench.offload.command import bench_offload

        return bench_offload(options)
    if isinstance(options, SeedsOptions):
        from app.bench.papers.command import show_claims

        return show_claims(options)
    from app.commands.bench import bench

    return bench(options)


def _complain(error: Exception | str, code: int) -> int:
    sys.stderr.write(f"slipstream: {error}\n")
    return code


def _complain_of_file(error: OSError) -> int:
    """A file that a person named is his to mend; a full disk, or an output that fails, is not."""
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
    """What is still to be written goes nowhere: the end of the process would try again, and fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """A stream that the caller closed is none; what is read and written there is nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - to the end of the process


def _write_any_text() -> None:
    """An answer may hold characters that the terminal's encoding lacks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
