"""Progress of a long command: one line that is written over, for people only."""

import sys


def show_progress(text: str) -> None:
    """Replace the line; an empty text takes it away. Nothing when standard error is no terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()
