"""One file from the hub: ranges, retries, and a check of the digest."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import httpx

from app.errors import ChecksumMismatch, DownloadFailed
from app.models.downloads.partial_file import PartialFile
from app.models.hub.client import TEMPORARY, Hub, asked_to_wait

TRIES = 8  # in a row without a byte of progress
SHORTEST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds
LONGEST_ASKED = 300.0  # seconds that a server's Retry-After is obeyed for
RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Watch(Protocol):
    """Observes a download byte by byte; may end it by raising."""

    def received(self, count: int) -> None:
        """``count`` bytes came over the network and are stored."""
        ...

    def recalled(self, count: int) -> None:
        """``count`` bytes were here already; below zero: they were discarded."""
        ...

    def wait(self, seconds: float) -> None:
        """Sleep before the next try, unless the download is paused or cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Source:
    """Where one file comes from: a repository at a commit."""

    hub: Hub
    repo: str
    commit: str


class _Retry(Exception):
    """This answer is no use, the next may be; ``after`` is what the server asks to wait."""

    def __init__(self, reason: str, after: float = 0.0) -> None:
        super().__init__(reason)
        self.after = after


def fetch(source: Source, part: PartialFile, watch: Watch) -> None:
    """Complete and check the file of ``part``, from the first missing byte.

    Raises DownloadFailed and its kinds, HubError, and whatever ``watch`` raises; what arrived stays
    for the next call unless its digest is wrong.
    """
    try:
        part.open(watch.recalled)
        _complete(source, part, watch)
        _finish(source, part, watch)
    finally:
        part.close()


def _finish(source: Source, part: PartialFile, watch: Watch) -> None:
    """A wrong digest of bytes from several answers may be our own mixture: download again, once."""
    pieced, size = part.pieced, part.size
    try:
        part.finish()
    except ChecksumMismatch:
        watch.recalled(-size)
        if not pieced:
            raise
        _complete(source, part, watch)
        part.finish()


def _complete(source: Source, part: PartialFile, watch: Watch) -> None:
    fruitless = 0
    while part.size < part.file.size:
        before = part.size
        try:
            _receive(source, part, watch)
        except (_Retry, httpx.TransportError) as error:
            fruitless = 1 if part.size > before else fruitless + 1
            if fruitless >= TRIES:
                raise DownloadFailed(
                    f"{part.file.name} stopped arriving ({str(error) or type(error).__name__}), {TRIES} "
                    "tries in a row; what is here is kept, resume when the network is better"
                ) from error
            watch.wait(_pause(fruitless, error.after if isinstance(error, _Retry) else 0.0))


def _pause(fruitless: int, asked: float) -> float:
    """Seconds before the next try: twice as long each time, jittered so that clients spread."""
    longest = min(SHORTEST_WAIT * 2.0 ** (fruitless - 1), LONGEST_WAIT)
    return max(longest * random.uniform(0.5, 1.0), min(asked, LONGEST_ASKED))


def _receive(source: Source, part: PartialFile, watch: Watch) -> None:
    """One answer, from the first missing byte to the last; raises _Retry when it ends before."""
    address = source.hub.file_address(source.repo, source.commit, part.file.name)
    headers = {"Range": f"bytes={part.size}-"} if part.size else None
    with source.hub.stream(address, headers) as response:
        _check_status(source, part, response, watch)
        for data in _body(response):
            if part.size + len(data) > part.file.size:
                _throw_away(part, watch)
                raise _Retry(f"more than the announced {part.file.size} bytes came")
            part.append(data)
            watch.received(len(data))
    if part.size < part.file.size:
        raise _Retry(f"the answer ended early, after {part.size} of {part.file.size} bytes")


def _body(response: httpx.Response) -> Iterator[bytes]:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise _Retry("the body came compressed, which was not asked for")
    return response.iter_raw()


def _check_status(
    source: Source, part: PartialFile, response: httpx.Response, watch: Watch
) -> None:
    """Place the next byte, or raise; 200 means from the start, whatever was asked."""
    match response.status_code:
        case httpx.codes.OK:
            _check_length(part, response)
            _throw_away(part, watch)
        case httpx.codes.PARTIAL_CONTENT:
            _check_range(part, response, watch)
            part.pieced = True
        case httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            _throw_away(part, watch)
            raise _Retry("the server has no such range")
        case status if status in TEMPORARY or not source.hub.is_own(response):
            # A signed address of another host expires; the next try gets a new one.
            raise _Retry(
                f"{response.url.host} answered with status {status}", asked_to_wait(response)
            )
        case _:
            source.hub.refuse(response, source.repo)


def _check_length(part: PartialFile, response: httpx.Response) -> None:
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) != part.file.size:
        raise DownloadFailed(
            f"{response.url.host} sends {int(length)} bytes as {part.file.name}, the hub lists "
            f"{part.file.size}; something between may replace files, try again later"
        )


def _check_range(part: PartialFile, response: httpx.Response, watch: Watch) -> None:
    found = RANGE.fullmatch(response.headers.get("content-range", ""))
    right = found and int(found[1]) == part.size and found[3] in (str(part.file.size), "*")
    if not right:
        _throw_away(part, watch)
        raise _Retry("the server sent another range than was asked for")


def _throw_away(part: PartialFile, watch: Watch) -> None:
    watch.recalled(-part.size)
    part.restart()
