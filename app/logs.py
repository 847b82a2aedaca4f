"""The log file in the user's folder, at the level that the settings name."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler

from typing_extensions import override

from app.settings import Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LARGEST_BYTES = 1_000_000
OURS = ("app", "engine", "ui")  # loggers that the level applies to; others write warnings


class _LogFile(RotatingFileHandler):
    """Reports once if it cannot be written; the app continues without a log."""

    _reported = False

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """Report an I/O error in one line, without a traceback for each record."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._report(error)
        else:
            super().handleError(record)

    @override
    def close(self) -> None:
        """Close the file; what is still buffered may fail to be written."""
        try:
            super().close()
        except OSError as error:
            self._report(error)

    def _report(self, error: OSError) -> None:
        if not self._reported:
            self._reported = True
            sys.stderr.write(
                f"slipstream: the log {self.baseFilename} cannot be written ({error.strerror}); "
                "check free space and permissions\n"
            )


@contextmanager
def logging_to_file(settings: Settings) -> Iterator[None]:
    """Write records to a file, so that people read sentences and not tracebacks."""
    level = settings.log_level.upper()
    handler = _LogFile(
        settings.logs / "slipstream.log",
        maxBytes=LARGEST_BYTES,
        backupCount=3,
        encoding="utf-8",
        errors="backslashreplace",  # file names may hold bytes that are not text
        delay=True,  # no file before the first record
    )
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.setLevel(level)
    logging.getLogger().addHandler(handler)
    loggers = [logging.getLogger(name) for name in OURS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(level)
    try:
        yield
    finally:
        for logger, old in zip(loggers, before, strict=True):
            logger.setLevel(old)
        logging.getLogger().removeHandler(handler)
        handler.close()
