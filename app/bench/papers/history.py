"""History: a second session starts where the first one ended, because it remembers what paid."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from app.bench.lanes import Lane
from app.bench.measure import Conversations, Order, Sample, finished, measure
from app.bench.options import Conditions
from app.bench.papers.harness import Harness, Loaded
from app.bench.rows import Check, Row, row
from app.bench.runners import EngineRunner, base_request, fresh_name
from app.history import records
from app.history.file import HistoryFile
from app.history.measurements import Measurements
from app.history.task_class import task_class, temperature_class
from app.placement.machine import machine_name
from app.request import Message
from engine.engine import Engine
from engine.request import AUTO, PLAIN, GenerationRequest, Prior, SamplingParams

INFLATE = 8
TOKENS, ANSWERS, REPEATS = 64, 5, 15


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
            file = Path(folder) / "history.db"
            first = _Session("end", instrument, loaded, file)
            for text in earlier:
                first.answer(text)
            again = _Session("with", instrument, loaded, file)
            forgotten = _Session("without", instrument, loaded, None)
            found = {s.lane: s.rate for s in _samples([first, again, forgotten], question)}
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


@dataclass
class _Session:
    """One engine from its start; what it measures goes to ``file``, and priors come from there."""

    name: str  # of its lane
    harness: Harness
    loaded: Loaded
    file: Path | None
    engine: Engine = field(init=False)
    drafters: str = field(default_factory=fresh_name)

    def __post_init__(self) -> None:
        """A first pass of each kind of work builds what later ones find; that is not learning."""
        self.engine = self.loaded.separate_engine()
        self.engine.submit(GenerationRequest((1, 2), 2, drafter=PLAIN))
        while self.engine.busy:
            self.engine.step()

    @property
    def lane(self) -> Lane:
        """Its only one."""
        return Lane(self.name, AUTO)

    def answer(self, question: str) -> None:
        """One answer, from which session and history learn."""
        [sample] = _samples([self], question)
        if self.file is not None:
            history = HistoryFile.open(self.file)
            Measurements(history).record(self._conditions(question), sample.stats)
            history.close()

    def runner(self, question: str) -> EngineRunner:
        """Asks with what history knows about such questions."""
        conditions = Conditions(max_tokens=TOKENS, repeats=1, warm_up=False)
        request = base_request(conditions, self.harness.text.stop_tokens)
        priors = () if self.file is None else tuple(self._priors(self.file, question))
        return EngineRunner(self.engine, replace(request, priors=priors), name=self.drafters)

    def _priors(self, file: Path, question: str) -> Sequence[Prior]:
        history = HistoryFile.open(file)
        try:
            return Measurements(history).priors(self._conditions(question))
        finally:
            history.close()

    def _conditions(self, question: str) -> records.Conditions:
        spec = self.loaded.spec
        return records.Conditions(
            model=spec.name,
            draft=Path(spec.draft_folder or "").name,
            machine=machine_name(spec.device, spec.dtype),
            temperature=temperature_class(SamplingParams()),
            task=task_class([Message("user", question)]),
        )


def _samples(sessions: Sequence[_Session], question: str) -> tuple[Sample, ...]:
    """Each session's answer; they take turns at every pass."""
    lanes = [session.lane for session in sessions]
    first = sessions[0]
    talks = Conversations(first.harness.text, first.loaded.parts.target.context, [(question,)])
    runners = {session.name: session.runner(question) for session in sessions}
    conditions = Conditions(max_tokens=TOKENS, repeats=1, warm_up=False)
    return finished(measure(lanes, talks, conditions, runners, order=Order.STEP)).samples
