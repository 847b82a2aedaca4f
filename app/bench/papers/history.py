"""History: a second session starts where the first one ended, because it remembers what paid."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from app.bench.papers.harness import Harness, Loaded
from app.bench.papers.row import Check, Row, row
from app.bench.papers.shared_prefill import Readers
from app.bench.race import take_turns
from app.history.file import HistoryFile
from app.history.measurements import Measurements
from app.history.records import Conditions
from app.history.task_class import task_class, temperature_class
from app.placement.machine import machine_name
from app.request import Message
from engine.engine import Engine
from engine.request import Done, GenerationRequest, Prior, SamplingParams, Stats

INFLATE = 8
TOKENS, ANSWERS, REPEATS = 64, 5, 15
GREEDY = SamplingParams()


def show(instrument: Harness) -> Row:
    """First 64 tokens of a second session against the first one's last, with history and without.

    The first session ends, and the others begin, with the same question, asked once in each: each
    session is a fresh engine that has learnt nothing, over the same weights; priors come out of a
    real database. So that one and the same second of the machine decides, the three answers take
    turns at every pass; what history knows of is all answers of the first session but this last one.
    """
    loaded = instrument.loaded(INFLATE)
    ends: list[float] = []
    kept: list[float] = []
    lost: list[float] = []
    for repeat in range(REPEATS):
        instrument.progress(f"sessions, repeat {repeat + 1}")
        pool = instrument.prompts.problems
        shift = repeat * (ANSWERS + 1)
        *earlier, question = (pool[(shift + n) % len(pool)][0] for n in range(ANSWERS + 1))
        with TemporaryDirectory() as folder:
            bench = _Bench(instrument, loaded, Readers())
            first = _Session(bench, Path(folder) / "history.db")
            for text in earlier:
                first.answer(text)
            sessions = {"end": first, "with": first.again(), "without": first.forgotten()}
            found = _race(sessions, question)
        ends.append(found["end"])
        kept.append(found["with"] / found["end"])
        lost.append(found["without"] / found["end"])
    checks = [
        Check("with history, start over the first session's end", median(kept), 0.95),
        Check("without history it is slower by", 1 - median(lost), 0.05),
    ]
    figures = {
        "first session's end, tokens/s": median(ends), "with": median(kept), "without": median(lost),
    }  # fmt: skip
    return row("History", checks, figures)


class _Bench(NamedTuple):
    """What the sessions that are compared with each other have in common."""

    instrument: Harness
    loaded: Loaded
    readers: Readers


class _Session:
    """One engine from its start; what it measures goes to ``file``, and priors come from there."""

    def __init__(self, bench: _Bench, file: Path | None) -> None:
        self._bench, self._file = bench, file
        self._engine = bench.loaded.separate_engine(bench.readers)
        # A first pass of each kind of work builds what every later one finds; that is not learning.
        _decoded(self._engine, GenerationRequest((1, 2), 2, drafter="none"))

    def again(self) -> "_Session":
        """The next session with the same history."""
        return _Session(self._bench, self._file)

    def forgotten(self) -> "_Session":
        """The next session without it."""
        return _Session(self._bench, None)

    def answer(self, question: str) -> None:
        """One answer, from which session and history learn."""
        stats = _decoded(self._engine, self.request(question))
        if self._file is not None:
            history = HistoryFile.open(self._file)
            Measurements(history).record(self._conditions(question), stats)
            history.close()

    def passes(self, question: str) -> Iterator[Stats | None]:
        """An answer pass by pass; the last one gives what it took."""
        return _passes(self._engine, self.request(question))

    def request(self, question: str) -> GenerationRequest:
        """The question as the app would ask it, for TOKENS tokens."""
        conditions = self._conditions(question)
        return GenerationRequest(
            prompt=self._bench.instrument.text.encode_chat([Message("user", question)]),
            max_tokens=TOKENS,
            stop_tokens=self._bench.instrument.text.stop_tokens,
            task=conditions.task,
            drafter="auto",
            priors=() if self._file is None else tuple(self._priors(conditions)),
        )

    def _priors(self, conditions: Conditions) -> Sequence[Prior]:
        assert self._file is not None
        history = HistoryFile.open(self._file)
        try:
            return Measurements(history).priors(conditions)
        finally:
            history.close()

    def _conditions(self, question: str) -> Conditions:
        spec = self._bench.loaded.spec
        return Conditions(
            model=spec.name,
            draft=Path(spec.draft_folder or "").name,
            machine=machine_name(spec.device, spec.dtype),
            temperature=temperature_class(GREEDY),
            task=task_class([Message("user", question)]),
        )


def _race(sessions: Mapping[str, _Session], question: str) -> dict[str, float]:
    """Tokens per second of each session's answer, which take turns at every pass."""
    lanes = {name: session.passes(question) for name, session in sessions.items()}
    ends = {name: stats for name, stats in take_turns(lanes) if stats is not None}
    return {name: stats.emitted / stats.decode_seconds for name, stats in ends.items()}


def _decoded(engine: Engine, request: GenerationRequest) -> Stats:
    *_, stats = _passes(engine, request)
    assert stats is not None  # Done comes exactly once and last
    return stats


def _passes(engine: Engine, request: GenerationRequest) -> Iterator[Stats | None]:
    engine.submit(request)
    while engine.busy:
        ends = [event.stats for _, event in engine.step() if isinstance(event, Done)]
        yield ends[0] if ends else None
