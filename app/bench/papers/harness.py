"""Instrument: one model at several costs, its engines made on demand, lanes measured on them."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import geometric_mean, median

from app.bench.lanes import Lane
from app.bench.measure import (
    Conversations,
    Measurement,
    Order,
    Progress,
    Sample,
    finished,
    measure,
)
from app.bench.options import Conditions
from app.bench.prompt_files import PromptSet, Turns
from app.bench.runners import Clock, EngineRunner, base_request, frozen_heap
from app.bench.summary import Run, counts_of, runs_of
from app.errors import RequestFailed
from app.models.catalog import resolve
from app.settings import Settings
from app.text.chat_text import ChatText
from engine.build import assemble, load
from engine.engine import Engine
from engine.errors import ModelUnusable
from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import Rows
from engine.models.own.target import TorchTarget
from engine.request import ModelSpec
from engine.speculation.tree import single
from engine.statistics.pass_cost import PassCost

OTHERWISE_RUN = "not the own decoder runs it, or its draft model"
DRAFTS, STEPS = 20, 5  # timings of a draft, and its tokens
COSTS = (1, 2, 4, 8, 16, 32)  # inflations to try


@dataclass(frozen=True, slots=True)
class Loaded:
    """Models in memory, from which fresh engines can be put together."""

    spec: ModelSpec
    parts: DrafterResources
    no_draft: str

    def engine(self, slots: int = 1) -> Engine:
        """An engine that has learnt nothing yet; it shares the weights, not the cost curve."""
        known = self.parts.cost
        cost = PassCost(dict(known.knots), known.per_context, known.per_row)
        return assemble(
            replace(self.spec, slots=slots), replace(self.parts, cost=cost), self.no_draft
        )

    def separate_engine(self, slots: int = 1) -> Engine:
        """An engine with caches of its own, which may run while others do.

        Raises ModelUnusable unless our own decoder runs both models.
        """
        target, draft = self.parts.target, self.parts.draft_model
        if not (isinstance(target, TorchTarget) and isinstance(draft, TorchTarget)):
            raise ModelUnusable(
                f"claims cannot be shown of {self.spec.name}: {self.no_draft or OTHERWISE_RUN}; "
                "choose pocket"
            )
        parts = replace(self.parts, target=target.twin(), draft_model=draft.twin())
        return replace(self, parts=parts).engine(slots)

    def draft_share(self) -> float:
        """Seconds of a draft-model step over those of a target pass, both of a single row.

        Steps are those of a draft: the first one finds caches that a pass has emptied.
        """
        target, draft = self.parts.target, self.parts.draft_model
        assert draft is not None
        passes, steps = [], []
        for _ in range(DRAFTS):
            started = time.perf_counter()
            target.score([0], [single(1)])
            passed = time.perf_counter()
            for row in range(STEPS):
                draft.grow([Rows(0, [1], [row - 1])])
            steps.append((time.perf_counter() - passed) / STEPS)
            passes.append(passed - started)
            target.crop(0, 0)
            draft.crop(0, 0)
        return median(steps) / median(passes)


@dataclass
class Harness:
    """What every claim is shown with."""

    settings: Settings
    model: str
    prompts: PromptSet
    progress: Callable[[str], None]
    _loaded: dict[int, Loaded] = field(default_factory=dict)

    def loaded(self, inflate: int) -> Loaded:
        """The model at this cost; the last one is dropped, since inflated weights are large."""
        if inflate not in self._loaded:
            self._loaded.clear()
            self.progress(f"loading {self.model} at {inflate} times its feed-forward width")
            spec = replace(resolve(self.settings, self.model), inflate=inflate)
            self._loaded[inflate] = Loaded(spec, *load(spec))
        return self._loaded[inflate]

    def inflation(self, seconds: float) -> int:
        """The largest one whose pass over a row takes at most ``seconds`` here; 1 if none does.

        So a claim is shown at passes that are as long everywhere: what a round takes besides weighs
        as much, and a bench takes as long, on a machine that is half as fast.
        """
        suiting = 1
        for inflate in COSTS:
            if self.loaded(inflate).parts.cost.nominal(1) > seconds:
                break
            suiting = inflate
        return suiting

    @cached_property
    def text(self) -> ChatText:
        """The model's tokenizer and template."""
        return ChatText.load(Path(resolve(self.settings, self.model).folder))

    def run(
        self,
        inflate: int,
        prompts: Sequence[Turns],
        lanes: Sequence[Lane],
        conditions: Conditions,
    ) -> Measurement:
        """The lanes, alternating, on a fresh engine."""
        engine = self.loaded(inflate).engine(conditions.concurrent)
        clock = Clock.DECODING if conditions.together == 1 else Clock.WALL
        runner = self._runner(engine, conditions, clock)
        return self._measured(prompts, conditions, dict.fromkeys(lanes, runner), Order.ANSWER)

    def race(
        self,
        inflate: int,
        prompts: Sequence[Turns],
        lanes: Sequence[Lane],
        conditions: Conditions,
    ) -> Measurement:
        """The lanes, alternating at every pass, each on a fresh engine of its own.

        Seconds of several prompts at once are those of their engine's own steps, without what
        reading them took.
        """
        loaded = self.loaded(inflate)
        clock = Clock.DECODING if conditions.together == 1 else Clock.STEPS
        engines = {lane: loaded.separate_engine(conditions.concurrent) for lane in lanes}
        runners = {lane: self._runner(one, conditions, clock) for lane, one in engines.items()}
        with frozen_heap():
            return self._measured(prompts, conditions, runners, Order.STEP)

    def _runner(self, engine: Engine, conditions: Conditions, clock: Clock) -> EngineRunner:
        return EngineRunner(engine, base_request(conditions, self.text.stop_tokens), clock)

    def _measured(
        self,
        prompts: Sequence[Turns],
        conditions: Conditions,
        runners: Mapping[Lane, EngineRunner],
        order: Order,
    ) -> Measurement:
        context = next(iter(runners.values())).engine.facts.context
        talks = Conversations(self.text, context, prompts, conditions.together)
        by_name = {lane.name: runner for lane, runner in runners.items()}
        work = measure(list(runners), talks, conditions, by_name, Progress(self.progress), order)
        return finished(work)


def rates(measurement: Measurement) -> dict[str, float]:
    """Tokens per second of every lane: all tokens over the sum of each group's median seconds."""
    return {lane.name: _rate(measurement.of(lane)) for lane in measurement.lanes}


Figure = Callable[[Measurement], dict[str, float]]  # one figure of every lane


@dataclass(frozen=True, slots=True)
class Baseline:
    """The best of several lanes, and how one more lane compares with it."""

    name: str  # the best over all repeats
    ratio: float  # of the other lane's rate over the best one's


def ranked(found: Mapping[str, float], lanes: Sequence[Lane]) -> list[Lane]:
    """Lanes by what a sweep found of them, the best first.

    A sweep is short. Its best lanes run again, for longer and next to the one that they are compared
    with, and only that counts: of many lanes the best one is partly the luckiest one.
    """
    return sorted(lanes, key=lambda lane: found[lane.name], reverse=True)


def over_best(measurement: Measurement, adaptive: Lane, figure: Figure = rates) -> Baseline:
    """A lane against the best of all others, none of which profits from luck of its own.

    So in each part of the measurement the lane to beat is the one that was best in the other parts,
    and the ratio is the geometric mean over the parts. Parts are repeats; of a single repeat every
    other group of prompts, since one lane happens to suit the words of a prompt in every repeat.
    With one group there is nothing else to choose by. Raises RequestFailed where nothing ran.
    """
    parts = _parts(measurement)
    if not parts:
        raise RequestFailed(
            f"nothing to compare with {adaptive.name} was measured: too few prompts for this claim"
        )
    ratios = []
    for part in parts:
        here = figure(_of(measurement, {part}))
        chosen = _best(figure(_of(measurement, set(parts) - {part} or {part})), adaptive)
        ratios.append(here[adaptive.name] / here[chosen])
    return Baseline(_best(figure(measurement), adaptive), geometric_mean(ratios))


Part = tuple[int, int]  # repeat, and which half of a single repeat


def _parts(measurement: Measurement) -> list[Part]:
    return sorted({_part_of(measurement, sample) for sample in measurement.samples})


def _part_of(measurement: Measurement, sample: Sample) -> Part:
    return sample.repeat, sample.group % 2 if measurement.conditions.repeats == 1 else 0


def _of(measurement: Measurement, parts: set[Part]) -> Measurement:
    kept = tuple(s for s in measurement.samples if _part_of(measurement, s) in parts)
    return replace(measurement, samples=kept)


def _best(found: dict[str, float], adaptive: Lane) -> str:
    others = [name for name in found if name != adaptive.name]
    return max(others, key=lambda name: found[name])


def per_pass(measurement: Measurement) -> dict[str, float]:
    """Of every lane, over all prompts and repeats."""
    return {n.name: counts_of(measurement.of(n)).tokens_per_pass for n in measurement.lanes}


def _rate(samples: Sequence[Sample]) -> float:
    groups: dict[int, list[Run]] = {}
    for run in runs_of(samples):
        groups.setdefault(run.group, []).append(run)
    tokens = sum(median(run.timed for run in group) for group in groups.values())
    seconds = sum(median(run.seconds for run in group) for group in groups.values())
    return tokens / seconds if seconds else 0.0
