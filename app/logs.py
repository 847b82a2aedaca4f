"""The log file: warnings and errors of the app, in the user's own folder."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler

from typing_extensions import override

from app.settings import Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LARGEST_BYTES = 1_000_000


class _LogFile(RotatingFileHandler):
    """A log that cannot grow says so once, in one sentence; the app goes on without it."""

    _told = False

    @override
    def handleError(self, record: logging.LogRecord) -> None:
        """A record that was not written: of a full disk no traceback for each."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._tell(error)
        else:
            super().handleError(record)

    @override
    def close(self) -> None:
        """What could not be written before is tried once more."""
        try:
            super().close()
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            sys.stderr.write(
                f"slipstream: the log {self.baseFilename} cannot be written ({error.strerror}); "
                "check free space and permissions\n"
            )


@contextmanager
def logging_to_file(settings: Settings) -> Iterator[None]:
    """Meanwhile records go to a file, so that people read sentences and not tracebacks."""
    handler = _LogFile(
        settings.logs / "slipstream.log",
        maxBytes=LARGEST_BYTES,
        backupCount=3,
        encoding="utf-8",
        errors="backslashreplace",  # a file's name may hold bytes that are no text
        delay=True,  # no file while there is nothing to say
    )
    handler.setFormatter(logging.Formatter(FORMAT))
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
