"""The loop of the engine's process, run here with a pipe and a fake engine."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from app.worker import engine_process
from app.worker.engine_process import TOGETHER, serve
from app.worker.messages import (
    Broken,
    Cancel,
    Measured,
    Progress,
    Ready,
    Stop,
    Submit,
)
from engine.request import (
    Calibration,
    Done,
    Event,
    FinishReason,
    GenerationRequest,
    ModelSpec,
    Tokens,
)
from tests.app.fake_engine import FakeEngine

SPEC = ModelSpec("fake", "/nowhere")
Client = Callable[[Connection], None]


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def served(client: Client, build: Callable[[ModelSpec], FakeEngine] = FakeEngine) -> list[object]:
    """Everything the loop sent, while ``client`` talked to it."""
    ours, theirs = Pipe()
    got: list[object] = []

    def talk() -> None:
        client(ours)
        try:
            while True:
                got.append(ours.recv())
        except EOFError:
            ours.close()

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        serve(theirs, SPEC, build)
    finally:
        theirs.close()
        talker.join()
    return got


def test_ready_is_first_and_stop_ends():
    def client(pipe: Connection) -> None:
        pipe.send(Cancel(99))  # unknown keys are over already
        pipe.send(Stop())

    [ready] = served(client)
    assert isinstance(ready, Ready)


class Reading(FakeEngine):
    """Steps like a long prompt: only a cancel that is heard in the middle ends them."""

    def step(self) -> list[tuple[int, Event]]:
        deadline = time.monotonic() + 10
        while not any(one.cancelled for one in self._running.values()):
            assert time.monotonic() < deadline
            self.listen()
        return super().step()


def test_a_cancel_is_heard_in_the_middle_of_a_step():
    def client(pipe: Connection) -> None:
        pipe.recv()
        pipe.send(Submit(1, GenerationRequest((1,), 50)))
        pipe.send(Submit(2, GenerationRequest((1,), 50)))  # waits for the step's end
        pipe.send(Cancel(1))
        ended.append(done(pipe))
        pipe.send(Cancel(2))
        ended.append(done(pipe))
        pipe.send(Stop())

    def done(pipe: Connection) -> tuple[int, FinishReason]:
        while True:
            for key, event in pipe.recv().events:
                if isinstance(event, Done):
                    return key, event.reason

    ended: list[tuple[int, FinishReason]] = []
    served(client, Reading)
    assert ended == [
        (1, FinishReason.CANCELLED),
        (2, FinishReason.CANCELLED),
    ]


def sent_by(build: Callable[[ModelSpec], FakeEngine], tokens: int) -> list[Progress]:
    """All messages of one answer."""

    def client(pipe: Connection) -> None:
        pipe.recv()
        pipe.send(Submit(1, GenerationRequest((1,), tokens)))
        while not ended:
            got.append(pipe.recv())
            ended.extend(e for _, e in got[-1].events if isinstance(e, Done))
        pipe.send(Stop())

    got: list[Progress] = []
    ended: list[Done] = []
    served(client, build)
    return got


def test_events_of_short_passes_come_together_and_in_order():
    got = sent_by(partial(FakeEngine, width=1), 40)
    events = [event for message in got for _, event in message.events]
    assert [token for e in events[:-1] for token in e.ids] == list(range(2, 42))
    assert isinstance(events[-1], Done)
    assert len(got) < 20
    assert len(got[0].events) == 1  # the first words wait for nothing


def test_events_of_long_passes_come_one_by_one():
    got = sent_by(partial(FakeEngine, width=1, pause=TOGETHER), 4)
    assert [len(message.events) for message in got] == [1, 1, 1, 2]


def test_an_engine_that_breaks_has_sent_all_that_it_made():
    class Breaking(FakeEngine):
        def step(self) -> list[tuple[int, Event]]:
            if any(one.emitted == 3 for one in self._running.values()):
                raise RuntimeError("the fake broke")
            return super().step()

    def client(pipe: Connection) -> None:
        pipe.recv()
        pipe.send(Submit(1, GenerationRequest((1,), 40)))
        while not isinstance(one := pipe.recv(), Broken):
            got.extend(one.events)

    got: list[tuple[int, Tokens]] = []
    with pytest.raises(SystemExit):
        served(client, partial(Breaking, width=1))
    assert [event.ids for _, event in got] == [(2,), (3,), (4,)]


def test_what_is_no_cancel_waits_for_the_end_of_a_step_and_is_not_lost():
    class Watched(Reading):
        inside = False

        def submit(self, request: GenerationRequest) -> int:
            nested.append(self.inside)
            return super().submit(request)

        def step(self) -> list[tuple[int, Event]]:
            self.inside = True
            try:
                return super().step()
            finally:
                self.inside = False

    def client(pipe: Connection) -> None:
        for message in (1, 2):
            pipe.send(Submit(message, GenerationRequest((1,), 50)))
            time.sleep(0.05)  # the first step runs when the second request comes
        pipe.send(Stop())
        pipe.send(Cancel(1))

    nested: list[bool] = []
    served(client, Watched)  # returns, since the stop was kept
    assert nested == [False, False]


def test_an_app_that_is_gone_in_the_middle_of_a_step_ends_the_loop():
    """The app had gone before the engine was ready, so no step ever began."""

    class Orphan(FakeEngine):
        def step(self) -> list[tuple[int, Event]]:
            ours.close()
            self.listen()
            steps.append("ended")  # nothing was raised into the pass
            return []

    steps: list[str] = []
    ours, theirs = Pipe()
    ours.send(Submit(1, GenerationRequest((1,), 50)))
    serve(theirs, SPEC, Orphan)  # returns
    theirs.close()
    assert steps == ["ended"]


def test_the_last_word_names_the_error():
    def build(spec: ModelSpec) -> FakeEngine:
        raise KeyError("weights")

    got: list[object] = []
    with pytest.raises(SystemExit) as end:
        served(lambda pipe: got.append(pipe.recv()), build)
    [broken] = got
    assert end.value.code == 1
    assert isinstance(broken, Broken)
    assert broken.message == "KeyError: 'weights'"


def test_an_app_that_is_gone_ends_the_loop_quietly(capfd):
    ours, theirs = Pipe()
    ours.close()
    serve(theirs, SPEC, FakeEngine)
    theirs.close()
    assert capfd.readouterr() == ("", "")


class Left:
    """Something to measure: a number of attempts find no slot, or are interrupted by a message."""

    def __init__(self, *, measurable: bool = True, patient: bool = False) -> None:
        self.measurable, self.patient = measurable, patient
        self.runs = 0
        self.began = threading.Event()

    def run(self, interrupted: Callable[[], bool]) -> Calibration | None:
        self.runs += 1
        self.began.set()
        while self.patient and self.runs == 1:
            if interrupted():
                return None
            time.sleep(0.001)
        return Calibration(((1, 0.5),), 0.0, 0.0, 1) if self.measurable else None


def leaving(left: Left) -> Callable[[ModelSpec], FakeEngine]:
    def build(spec: ModelSpec) -> FakeEngine:
        engine = FakeEngine(spec)
        engine.later = left
        return engine

    return build


@pytest.mark.parametrize("left", [Left(), Left(measurable=False), Left(patient=True)])
def test_what_a_load_left_is_measured_while_nobody_asks(monkeypatch, left):
    monkeypatch.setattr(engine_process, "QUIET_SECONDS", 0.02)

    def client(pipe: Connection) -> None:
        left.began.wait()
        time.sleep(0.0 if left.patient else 0.1)  # until it is known that nothing came meanwhile
        pipe.send(Submit(1, GenerationRequest((1,), 3)))  # interrupts a patient one
        time.sleep(0.3)
        pipe.send(Stop())

    got = served(client, leaving(left))
    kinds = [type(message) for message in got]
    assert kinds[0] is Ready
    assert kinds.count(Measured) == left.measurable
    assert left.runs == 1 + left.patient  # where no slot was free it is not tried for ever
    if left.patient:
        assert kinds.index(Measured) > kinds.index(Progress)  # the request came first


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_request_that_a_measured_pass_receives_is_answered(monkeypatch, interrupted):
    """The first question of a session waited for ever: a long pass takes messages in, for cancels among them."""
    monkeypatch.setattr(engine_process, "QUIET_SECONDS", 0.02)
    sent, engines = threading.Event(), []

    class Listening(Left):
        def run(self, asked: Callable[[], bool]) -> Calibration | None:
            self.began.set()
            sent.wait()
            engines[0].listen()
            assert asked()
            return None if interrupted else super().run(asked)

    left = Listening()

    def build(spec: ModelSpec) -> FakeEngine:
        engines.append(leaving(left)(spec))
        return engines[0]

    def client(pipe: Connection) -> None:
        left.began.wait()
        pipe.send(Submit(1, GenerationRequest((1,), 3)))
        sent.set()
        while not isinstance(message := pipe.recv(), Progress) or not any(
            isinstance(event, Done) for _, event in message.events
        ):
            pass
        pipe.send(Stop())

    served(client, build)
