"""A server with little patience in front of an engine that fails on demand, and what its tests share."""

import json
import threading
from collections.abc import Callable
from typing import Any

import openai
import psutil
import pytest

from tests.app.remote import faults
from tests.app.remote.far import FORMS, KEY, NAME, Answer, Far, user
from tests.app.remote.faults import Fault, chunk, event

Form = Callable[..., Answer]
HI = user("What is 17 + 25?")
GREEDY = {"temperature": 0}
PATIENCE = 2.0  # seconds that this server waits for a byte
MOST_MEMORY = 300 * 2**20  # bytes that one answer may take at most

both_forms = pytest.mark.parametrize("form", FORMS)


def spoilt(faulty: Far, form: Form, **fields: Any) -> openai.APIError:
    """The one error of an answer; it names the engine, in one line without a key."""
    with faulty.here() as here, pytest.raises(openai.APIError) as raised:
        form(here, faulty.name, HI, **GREEDY, **fields)
    check(raised.value)
    return raised.value


def check(error: openai.APIError) -> None:
    assert not isinstance(error, openai.APIConnectionError), "the connection to this server broke"
    assert NAME in error.message
    for part in ("\n", "<html", KEY, "Traceback"):
        assert part not in error.message
    assert len(error.message) < 1000


def answered(faulty: Far, form: Form) -> Answer | None:
    """The answer; None where it was one clear error."""
    try:
        with faulty.here() as here:
            return form(here, faulty.name, HI, **GREEDY)
    except openai.APIError as error:
        check(error)
        return None


def direct(faulty: Far) -> Answer:
    """What the engine itself answers."""
    with faulty.there() as there:
        return FORMS[0](there, faulty.model, HI, **GREEDY)


def says(status: int, message: str, **headers: str) -> Fault:
    body = {"error": {"message": message, "type": "x", "param": None, "code": status}}
    return faults.is_replaced(faults.whole(json.dumps(body).encode(), status, **headers))


# An answer that does not come to its end.
MIDDLE: dict[str, Fault] = {
    "breaks off": faults.breaks_off(4),
    "ends early": faults.ends_early(4),
    "ends before a word": faults.ends_early(1),
    "stalls": faults.stalls(4),
    "claims a longer body": lambda answer: faults.claims_more(faults.ends_early(4)(answer)),
    "half of JSON": faults.sends(faults.BROKEN["half of JSON"]),
    "no JSON": faults.sends(faults.BROKEN["no JSON"]),
    "bytes that are no text": faults.sends(faults.BROKEN["bytes that are no text"]),
    "an error": faults.sends(event({"error": {"message": "the batch failed", "type": "InternalServerError", "param": None, "code": 500}})),
    "an error in words": faults.sends(event({"error": "CUDA out of memory"})),
    "50 MiB in one event": faults.sends(chunk({"content": "x" * (50 * 2**20)})),
    "50 MiB without an end": faults.sends(b"data: " + b"x" * (50 * 2**20)),
}  # fmt: skip


class Memory:
    """The most that this process takes while it is watched, above what it took before."""

    def __enter__(self) -> "Memory":
        self._process, self._end = psutil.Process(), threading.Event()
        self._before = self.most = self._process.memory_info().rss
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            self.most = max(self.most, self._process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        return self.most - self._before
