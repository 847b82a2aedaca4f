"""The command ``verify``: the same prompts plain and with every drafter, compared token by token."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.bench.lanes import Lane, check_drafters
from app.bench.measure import (
    Conversations,
    Measurement,
    Progress,
    Watcher,
    finished,
    measure,
)
from app.bench.options import Conditions
from app.bench.prompt_files import Turns, read_prompts
from app.bench.runners import EngineRunner, base_request
from app.bench.summary import counts_of
from app.bench.table import difference_line
from app.commands.arguments import add_answer_tokens, add_dtype, add_model, add_prompts, set_command
from app.models.catalog import resolve
from app.placement.plans import dtype_name, place_with_dtype
from app.request import ALL_DRAFTERS, check_drafter
from app.settings import Settings
from app.terminal import show_progress, write_lines
from app.text.chat_text import ChatText
from app.worker.engine_process import build_engine
from engine.engine import Engine
from engine.request import PLAIN, ModelFacts, ModelSpec
from engine.speculation.common_prefix import common_prefix


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Which drafters to verify on which prompts."""

    settings: Settings
    model: str
    drafters: tuple[str, ...]  # names, or ``all``
    prompts: tuple[Turns, ...]
    max_tokens: int


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_model(parser)
    add_dtype(parser)
    parser.add_argument(
        "--draft",
        metavar="DRAFTERS",
        default=ALL_DRAFTERS,
        help="names with commas, or all (default %(default)s)",
    )
    add_prompts(parser)
    add_answer_tokens(parser)
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> VerifyOptions:
    drafters = tuple(dict.fromkeys(name.strip() for name in given.draft.split(",")))
    for name in drafters:
        if name != ALL_DRAFTERS:
            check_drafter(name)
    chosen = replace(settings, dtype=given.dtype)
    prompts = tuple(read_prompts(given.prompts, given.limit))
    return VerifyOptions(chosen, given.model, drafters, prompts, given.max_tokens)


@dataclass(frozen=True, slots=True)
class Verified:
    """What ran, and with which model."""

    facts: ModelFacts
    text: ChatText
    measurement: Measurement

    @property
    def agrees(self) -> bool:
        """Whether something ran, and every token of every drafter was plain's."""
        return bool(self.measurement.samples) and not self.measurement.differences


def run(options: VerifyOptions) -> int:
    """Print the table; 0 when every token agrees, 1 otherwise."""
    spec = serving_spec(options)
    text = ChatText.load(Path(spec.folder))
    try:
        show_progress(f"loading {spec.name}")
        verified = verify(build_engine(spec), text, options, Progress(show_progress))
    finally:
        show_progress("")
    write_lines(table(verified, dtype_name(spec)))
    return 0 if verified.agrees else 1


def serving_spec(options: VerifyOptions) -> ModelSpec:
    """What the server would run with the same settings."""
    settings = options.settings
    return place_with_dtype(settings, resolve(settings, options.model), settings.dtype).spec


def choose_drafters(names: Sequence[str], facts: ModelFacts) -> tuple[str, ...]:
    """What to compare with plain decoding; raises InvalidRequest for what cannot run."""
    if ALL_DRAFTERS in names:
        return tuple(name for name in facts.drafters if name != PLAIN)
    check_drafters(names, facts)
    return tuple(names)


def verify(
    engine: Engine, text: ChatText, options: VerifyOptions, watcher: Watcher | None = None
) -> Verified:
    """Greedy answers of plain decoding and each drafter, with caches as warm as a user finds them.

    Drafts are as long as they may be: those that an adaptive length would skip are verified too.
    Raises InvalidRequest, RequestFailed.
    """
    drafters = choose_drafters(options.drafters, engine.facts)
    lanes = [Lane(name, name, length="fixed") for name in (PLAIN, *drafters)]
    conditions = Conditions(max_tokens=options.max_tokens, repeats=1, warm_up=False)
    runner = EngineRunner(engine, base_request(conditions, text.stop_tokens, cold=False))
    runners = {lane.name: runner for lane in lanes}
    talks = Conversations(text, engine.facts.context, options.prompts)
    found = finished(measure(lanes, talks, conditions, runners, watcher))
    return Verified(engine.facts, text, found)


def table(verified: Verified, numbers: str = "float32") -> Iterator[str]:
    """The lines to print; ``numbers`` names the format of the weights."""
    facts, measurement = verified.facts, verified.measurement
    yield (
        f"{facts.name}, {numbers}, greedy, at most {measurement.conditions.max_tokens} tokens an "
        f"answer; {measurement.skipped} prompts skipped (past the context of {facts.context})"
    )
    yield f"{'drafter':<12}{'prompts':>9}{'tokens':>9}{'agree':>9}{'tokens per pass':>18}"
    for lane in measurement.lanes:
        yield _row(measurement, lane)
    yield from facts.notes
    for name, why in facts.refused:
        yield f"{name} cannot run with this model: {why}"
    for name, first in measurement.differences.items():
        yield difference_line(name, first, lambda n: f"{n} ({verified.text.decode([n])!r})")
    yield _conclusion(verified)


def agreeing_tokens(measurement: Measurement, lane: Lane) -> int:
    """Plain's tokens before the first difference of each prompt."""
    plain = measurement.of(measurement.lanes[0])
    pairs = zip(plain, measurement.of(lane), strict=True)
    return sum(common_prefix(ours.ids, theirs.ids) for ours, theirs in pairs)


def _row(measurement: Measurement, lane: Lane) -> str:
    plain = counts_of(measurement.of(measurement.lanes[0]))
    counts = counts_of(measurement.of(lane))
    agree = "-" if lane.plain else str(agreeing_tokens(measurement, lane))
    return (
        f"{lane.name:<12}{counts.answers:>9}{plain.emitted:>9}{agree:>9}"
        f"{counts.tokens_per_pass:>18.2f}"
    )


def _conclusion(verified: Verified) -> str:
    if verified.agrees:
        return "every token agrees"
    if not verified.measurement.samples:
        return "nothing was verified: no prompt fits the context"
    return "tokens differ"
