"""The API keys: made, listed and withdrawn in a file that only its owner reads; it has hashes only."""

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from app.errors import SettingsError
from app.files import replace_file
from app.history.records import utc_now
from app.model_names import did_you_mean

PREFIX = "sk-slip-"  # clients of OpenAI's protocol expect "sk-"
RANDOM_BYTES = 32
PATIENCE_SECONDS = 10.0  # how long a command waits for another one
MAKE_ONE = "make one with: slipstream keys add NAME"
_NAME = re.compile(r"[\w.@+-]{1,64}")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Key:
    """One key, without the key itself; limits of None are none."""

    name: str
    digest: str = field(repr=False)  # SHA-256, hexadecimal: 256 random bits need no slow hash
    created: str  # UTC, ISO 8601
    at_a_time: int | None = None  # requests
    per_minute: int | None = None  # requests


_FORMAT = TypeAdapter(tuple[Key, ...])


class Keys:
    """The keys of one file, as it is now: other processes may change it at any time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._state: Sequence[int] = ()  # of the file when it was read
        self._keys: tuple[Key, ...] = ()

    def all(self) -> tuple[Key, ...]:
        """By age; raises SettingsError once for a file that cannot be read, which then has none."""
        state = self._look()
        if state != self._state:
            self._state, self._keys = state, ()
            self._keys = self._read()
        return self._keys

    def find(self, given: str) -> Key | None:
        """The key that is ``given``; takes the same time wherever they differ."""
        digest, found = digest_of(given), None
        for key in self._readable():
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def holds(self, key: Key) -> bool:
        """Whether this very key is still there, not only its name."""
        return any(one.digest == key.digest for one in self._readable())

    def add(self, name: str, at_a_time: int | None = None, per_minute: int | None = None) -> str:
        """Make a key and return it: it cannot be read again. Raises SettingsError."""
        if not _NAME.fullmatch(name):
            raise SettingsError(
                f"{name!r} is no name for a key; take 1 to 64 letters, digits and . _ - @ +"
            )
        with self._changing():
            if any(key.name == name for key in self.all()):
                raise SettingsError(
                    f"there is a key named {name!r} already; choose another name, or withdraw it with: "
                    f"slipstream keys remove {name}"
                )
            made = f"{PREFIX}{secrets.token_urlsafe(RANDOM_BYTES)}"
            key = Key(name, digest_of(made), utc_now(), at_a_time, per_minute)
            self._write((*self.all(), key))
        return made

    def remove(self, name: str) -> None:
        """Withdraw a key; a server that runs refuses it from now on. Raises SettingsError."""
        with self._changing():
            names = [key.name for key in self.all()]
            if name not in names:
                known = did_you_mean(name, names) or f"; keys: {', '.join(names) or 'none'}"
                raise SettingsError(f"there is no key named {name!r}{known}")
            self._write([key for key in self.all() if key.name != name])

    def _readable(self) -> tuple[Key, ...]:
        """None of a file that cannot be read: then no key is valid."""
        try:
            return self.all()
        except SettingsError:
            log.exception("no key is accepted")
            return ()

    def _look(self) -> Sequence[int]:
        try:
            found = self._file.stat()
        except OSError:  # reading says why
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size

    def _read(self) -> tuple[Key, ...]:
        try:
            return _FORMAT.validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise SettingsError(f"{self._file} cannot be read: {error.strerror}") from error
        except ValidationError as error:
            raise SettingsError(
                f"{self._file} has no keys that this version can read; move it away and {MAKE_ONE}"
            ) from error

    def _write(self, keys: Sequence[Key]) -> None:
        text = _FORMAT.dump_json(tuple(keys), indent=1).decode()
        replace_file(self._file, f"{text}\n", private=True)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """One command at a time; what goes wrong with the file is a SettingsError."""
        try:
            with FileLock(f"{self._file}.lock", timeout=PATIENCE_SECONDS, mode=0o600):
                yield
        except Timeout as error:
            raise SettingsError(
                f"{self._file} is being changed by another command; try again"
            ) from error
        except OSError as error:
            raise SettingsError(
                f"{self._file} cannot be written ({error.strerror}); check free space and permissions"
            ) from error


def digest_of(secret: str) -> str:
    """What is kept of a key."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
