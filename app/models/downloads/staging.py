"""Where a model is while it is incomplete; the disk's free space, and files that are linked."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from app.errors import DiskFull, DownloadFailed
from app.files import replace_file, sync_folder
from app.models.catalog import ModelRecord
from app.models.downloads.manifest import Manifest, stored_manifest
from app.models.downloads.partial_file import shown_bytes
from app.models.hub.repository import RemoteFile

RESERVE = 512 * 2**20  # stays free: conversations and history live on the same disk
CHECK_EVERY = 256_000_000


def free_bytes(folder: Path) -> int:
    """What this user may still write to the disk of ``folder``."""
    return shutil.disk_usage(folder).free


@dataclass(frozen=True, slots=True)
class Space:
    """The room on one disk; ``free`` is replaced where another limit than the disk counts."""

    folder: Path
    reserve: int = RESERVE
    free: Callable[[Path], int] = free_bytes

    def check(self, what: str, needed: int) -> None:
        """Raise DiskFull unless ``needed`` more bytes leave the reserve free."""
        there = self.free(self.folder)
        lacking = needed + self.reserve - there
        if needed and lacking > 0:
            raise DiskFull(
                f"{what} needs {shown_bytes(needed)} more and {shown_bytes(self.reserve)} stay "
                f"free, but {self.folder} has {shown_bytes(there)}; make room for "
                f"{shown_bytes(lacking)}, or set SLIPSTREAM_HOME to another disk"
            )


def cached_blob(caches: Sequence[Path], repo: str, file: RemoteFile) -> Path | None:
    """A cache's copy of ``file``, which it keeps under its digest; checked, or None."""
    for cache in caches:
        blob = cache / f"models--{repo.replace('/', '--')}" / "blobs" / file.digest.value
        try:
            same = blob.is_file() and blob.stat().st_size == file.size
            if same and file.digest.matches(blob):
                return blob
        except OSError:
            continue  # unreadable to us: then it is downloaded
    return None


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


INCOMPLETE = ".incomplete"  # in the models' own folder: moving must not cross disks
ORDER = "order.json"


@dataclass(frozen=True, slots=True)
class Staging:
    """The places of one model, by its name."""

    models_folder: Path
    name: str

    @property
    def folder(self) -> Path:
        """Everything of an unfinished download."""
        return self.models_folder / INCOMPLETE / self.name

    @property
    def files(self) -> Path:
        """What becomes the model's folder."""
        return self.folder / "files"

    @property
    def installed(self) -> Path:
        """The model's folder when it is whole."""
        return self.models_folder / self.name

    def lock(self) -> FileLock:
        """Held by the one thread, of whatever process, that writes here; free when it dies."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder.with_name(f"{self.name}.lock"), thread_local=False)

    def write(self, order: Manifest) -> None:
        """Remember the order before its first byte; nothing of another order stays."""
        earlier = stored_manifest(self.folder / ORDER)
        if earlier is None:
            self.discard()
        for file in set(earlier.files if earlier else ()) - set(order.files):
            place = self.place(file)
            for left in (place, place.with_name(f"{place.name}.part")):
                left.unlink(missing_ok=True)
        self.files.mkdir(parents=True, exist_ok=True)
        replace_file(self.folder / ORDER, order.to_json())

    def place(self, file: RemoteFile) -> Path:
        """Where a file comes to be; GGUF files lie at the top, whatever folder the hub has them in."""
        name = file.name.rpartition("/")[2] if file.name.endswith(".gguf") else file.name
        return self.files / name

    def present(self, file: RemoteFile) -> bool:
        """Whether a checked file is here; only checked files have their names."""
        place = self.place(file)
        return place.is_file() and place.stat().st_size == file.size

    def remaining(self, order: Manifest) -> int:
        """Bytes of the order that are not here yet."""
        if self.installed.exists():
            return 0
        return sum(file.size - self._arrived(file) for file in order.files)

    def install(self, order: Manifest) -> None:
        """Make the whole model appear under its name in one step."""
        source = f"{order.repo}@{order.commit}"
        ModelRecord(order.name, source, order.licence, order.draft).write(self.files)
        self.files.rename(self.installed)
        sync_folder(self.models_folder)
        self.discard()

    def discard(self) -> None:
        """Take away what is incomplete; the caller holds the lock."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def discard_unlocked(self) -> int:
        """Take away what is incomplete, as bytes; raises DownloadFailed while a process works."""
        if not self.folder.is_dir():
            return 0
        freed = self.size()
        with self.held():
            self.discard()
        return freed

    def size(self) -> int:
        """Bytes that discarding frees; files that are linked from elsewhere stay there."""
        found = (file.stat() for file in self.files.rglob("*") if file.is_file())
        return sum(file.st_size for file in found if file.st_nlink == 1)

    def in_work(self) -> bool:
        """Whether a thread, of whatever process, holds the lock now."""
        try:
            with self.held():
                return False
        except DownloadFailed:
            return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """The lock, or DownloadFailed at once while another thread or process has it."""
        lock = self.lock()
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise DownloadFailed(
                f"{self.name} is being downloaded by another process; stop it there first"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def _arrived(self, file: RemoteFile) -> int:
        if self.present(file):
            return file.size
        place = self.place(file)
        part = place.with_name(f"{place.name}.part")
        return min(part.stat().st_size, file.size) if part.is_file() else 0


def unfinished(models_folder: Path) -> Iterator[Manifest]:
    """Every download that some process began and none finished, by name.

    A process that was killed after its model had its name may have left the manifest here.
    """
    incomplete = models_folder / INCOMPLETE
    for folder in sorted(incomplete.iterdir()) if incomplete.is_dir() else ():
        order = stored_manifest(folder / ORDER)
        if order is None or order.name != folder.name:
            continue
        if not Staging(models_folder, order.name).installed.exists():
            yield order


def abandoned(models_folder: Path) -> Iterator[Staging]:
    """What imports left that were killed, by name: they cannot be resumed.

    Not what has the name of a model that is here: by that name, the model would be removed.
    """
    incomplete = models_folder / INCOMPLETE
    known = {order.name for order in unfinished(models_folder)}
    for folder in sorted(incomplete.iterdir()) if incomplete.is_dir() else ():
        staging = Staging(models_folder, folder.name)
        if folder.name in known or staging.installed.exists() or not staging.files.is_dir():
            continue
        if not staging.in_work():
            yield staging
