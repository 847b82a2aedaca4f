"""Writes to disk that survive a crash or a power failure."""

import os
from contextlib import suppress
from pathlib import Path


def replace_file(file: Path, text: str, *, private: bool = False) -> None:
    """Write ``file`` so that a crash leaves the old or the new content, on the disk and whole.

    A ``private`` one is readable by its owner only, from its first byte on.
    """
    draft = file.with_name(f"{file.name}.new")
    try:
        if private:
            draft.unlink(missing_ok=True)  # the mode counts only for a file made here
            draft.touch(mode=0o600, exist_ok=False)
        with draft.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(file)
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)  # on a full disk, half of it is of no use
        raise OSError(error.errno, error.strerror, str(file)) from error  # a write names no file
    sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    """Make renames inside ``folder`` survive a power failure, where its disk can do that.

    Windows opens no folders, and some network disks refuse to sync one.
    """
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
