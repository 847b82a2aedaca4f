"""Files that huggingface_hub's cache has already: linked or copied, after their digest was checked."""

import os
import shutil
from pathlib import Path

from app.models.hub.repository import RemoteFile


def cached_blob(cache: Path | None, repo: str, file: RemoteFile) -> Path | None:
    """The cache's copy of ``file``, which it keeps under its digest; checked, or None."""
    if cache is None:
        return None
    blob = cache / f"models--{repo.replace('/', '--')}" / "blobs" / file.digest.value
    try:
        if not blob.is_file() or blob.stat().st_size != file.size:
            return None
        return blob if file.digest.matches(blob) else None
    except OSError:
        return None  # unreadable to us: then it is downloaded


def link_or_copy(source: Path, place: Path, *, copied: bool = False) -> None:
    """Put ``source`` at ``place``: linked where the disk allows, unless it must be ``copied``."""
    source = source.resolve()  # a link to a symbolic link would break with its target's folder
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.part")
    draft.unlink(missing_ok=True)
    if copied or not _link(source, draft):
        shutil.copyfile(source, draft)
    draft.replace(place)


def _link(source: Path, place: Path) -> bool:
    try:
        os.link(source, place)
    except OSError:  # another disk, or a file system without links
        return False
    return True
