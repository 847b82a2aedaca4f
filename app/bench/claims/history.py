"""History: a second session starts where the first one ended, because it remembers what paid."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from app.bench.claims.instrument import Instrument, Loaded
from app.bench.claims.row import Check, Row, row
from app.history.file import HistoryFile
from app.history.machine import machine_name
from app.history.measurements import Measurements
from app.history.records import Conditions
from app.task_class import task_class, temperature_class
from app.turn import Message
from engine.engine import Engine
from engine.request import Done, GenerationRequest, Prior, SamplingParams, Stats

INFLATE = 8
TOKENS, ANSWERS, REPEATS = 64, 5, 15
GREEDY = SamplingParams()


def show(instrument: Instrument) -> Row:
    """First 64 tokens of a second session against the first one's last, with history and without.

    The first session ends, and the others begin, with the same question, asked once in each: each session is a fresh
    engine that has learnt nothing, over the same weights; priors come out of a real database.
    """
    loaded = instrument.loaded(INFLATE)
    first_rates, with_history, without = [], [], []
    for repeat in range(REPEATS):
        instrument.progress(f"sessions, repeat {repeat + 1}")
        pool = instrument.prompts.problems
        shift = repeat * (ANSWERS + 1)
        *earlier, question = (pool[(shift + n) % len(pool)][0] for n in range(ANSWERS + 1))
        with TemporaryDirectory() as folder:
            session = _Session(instrument, loaded, Path(folder) / "history.db")
            for text in earlier:
                session.answer(text, learn=True, priors=True)
            last = session.answer(question, learn=True, priors=True)
            remembered = session.again().answer(question, learn=False, priors=True)
        fresh = _Session(instrument, loaded, None).answer(question, learn=False)
        first_rates.append(last)
        with_history.append(remembered / last)
        without.append(fresh / last)
    kept, lost = median(with_history), median(without)
    checks = [
        Check("with history, start over the first session's end", kept, 0.95),
        Check("without history it is slower by", 1 - lost, 0.05),
    ]
    figures = {"first session's end, tokens/s": median(first_rates), "with": kept, "without": lost}
    return row("History", checks, figures)


class _Session:
    """One engine from its start; what it measures goes to ``file``."""

    def __init__(self, instrument: Instrument, loaded: Loaded, file: Path | None) -> None:
        self._instrument, self._loaded, self._file = instrument, loaded, file
        self._engine = loaded.engine()
        # A first pass of each kind of work builds what every later one finds; that is not learning.
        _decoded(self._engine, GenerationRequest((1, 2), 2, drafter="none"))

    def again(self) -> "_Session":
        """The next session with the same history."""
        return _Session(self._instrument, self._loaded, self._file)

    def answer(self, question: str, *, learn: bool, priors: bool = False) -> float:
        """Tokens per second of the first TOKENS tokens."""
        conditions = self._conditions(question)
        request = GenerationRequest(
            prompt=self._instrument.text.encode_chat([Message("user", question)]),
            max_tokens=TOKENS,
            stop_tokens=self._instrument.text.stop_tokens,
            task=conditions.task,
            drafter="auto",
            priors=tuple(self._priors(conditions)) if priors else (),
        )
        stats = _decoded(self._engine, request)
        if learn and self._file is not None:
            history = HistoryFile.open(self._file)
            Measurements(history).record(conditions, stats)
            history.close()
        return stats.emitted / stats.decode_seconds

    def _priors(self, conditions: Conditions) -> Sequence[Prior]:
        assert self._file is not None
        history = HistoryFile.open(self._file)
        try:
            return Measurements(history).priors(conditions)
        finally:
            history.close()

    def _conditions(self, question: str) -> Conditions:
        spec = self._loaded.spec
        return Conditions(
            model=spec.name,
            draft=Path(spec.draft_folder or "").name,
            machine=machine_name(spec.device, spec.dtype),
            temperature=temperature_class(GREEDY),
            task=task_class([Message("user", question)]),
        )


def _decoded(engine: Engine, request: GenerationRequest) -> Stats:
    engine.submit(request)
    done: Done | None = None
    while engine.busy:
        done = next((e for _, e in engine.step() if isinstance(e, Done)), done)
    assert done is not None  # the engine is idle, and Done comes exactly once
    return done.stats
