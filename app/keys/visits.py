"""What a server remembers of the keys that are used: browsers that are logged in, and requests."""

import math
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.errors import AppError
from app.keys.key_file import Key, digest_of

SESSION_SECONDS = 7 * 86400.0  # after the last request
MOST_SESSIONS = 1000
MINUTE = 60.0

Clock = Callable[[], float]


class TooManyRequests(AppError):
    """A key has reached one of its limits."""

    def __init__(self, most: int, time: str, seconds: int) -> None:
        super().__init__(
            f"this key may send {most} request{'s' if most > 1 else ''} {time}; "
            f"try again in {seconds} second{'s' if seconds > 1 else ''}"
        )
        self.seconds = seconds


class Sessions:
    """Browsers that are logged in, by a random token; they end with the server."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._keys: OrderedDict[str, tuple[Key, float]] = (
            OrderedDict()
        )  # by digest, latest use last

    def begin(self, key: Key) -> str:
        """Log a browser in; returns its token."""
        token = secrets.token_urlsafe()
        self._keys[digest_of(token)] = key, self._clock()
        if len(self._keys) > MOST_SESSIONS:
            self._keys.popitem(last=False)
        return token

    def key(self, token: str) -> Key | None:
        """The key that the browser logged in with, if it did so and has been here lately."""
        digest = digest_of(token)
        key, used = self._keys.get(digest, (None, 0.0))
        if key is None:
            return None
        if self._clock() - used > SESSION_SECONDS:
            del self._keys[digest]
            return None
        self._keys[digest] = key, self._clock()
        self._keys.move_to_end(digest)
        return key

    def end(self, token: str) -> None:
        """Log the browser out."""
        self._keys.pop(digest_of(token), None)


@dataclass(slots=True)
class _Use:
    """Of one key."""

    running: int = 0
    begun: deque[float] = field(default_factory=deque)  # in the last minute

    def end(self) -> None:
        """One request has ended."""
        self.running -= 1


class Limits:
    """How many requests each key sends, in this process."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._uses: dict[str, _Use] = {}

    def begin(self, key: Key) -> Callable[[], None]:
        """Count a request that begins now; call the result at its end. Raises TooManyRequests."""
        use, now = self._uses.setdefault(key.digest, _Use()), self._clock()
        if key.at_a_time is not None and use.running >= key.at_a_time:
            raise TooManyRequests(key.at_a_time, "at a time", 1)
        while use.begun and now - use.begun[0] >= MINUTE:
            use.begun.popleft()
        if key.per_minute is not None:
            if len(use.begun) >= key.per_minute:
                left = math.ceil(MINUTE - (now - use.begun[0]))
                raise TooManyRequests(key.per_minute, "per minute", max(1, left))
            use.begun.append(now)
        use.running += 1
        return use.end

    @contextmanager
    def request(self, key: Key) -> Iterator[None]:
        """The time of one request; raises TooManyRequests at its start."""
        end = self.begin(key)
        try:
            yield
        finally:
            end()
