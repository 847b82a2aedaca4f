"""The log file: warnings and errors of the app, in the user's own folder."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler

from app.settings import Settings

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LARGEST_BYTES = 1_000_000


@contextmanager
def logging_to_file(settings: Settings) -> Iterator[None]:
    """Meanwhile records go to a file, so that people read sentences and not tracebacks."""
    handler = RotatingFileHandler(
        settings.logs / "slipstream.log",
        maxBytes=LARGEST_BYTES,
        backupCount=3,
        encoding="utf-8",
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
