"""The command ``bench``: load, measure, print the table, write the file for machines."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from typing_extensions import override

from app.bench.lanes import parse_lane, with_baseline
from app.bench.measure import Conversations, Measurement, Progress, finished, measure
from app.bench.options import (
    CLAIMS,
    BenchOptions,
    Conditions,
    FixedBench,
    PeersBench,
    check_output,
)
from app.bench.prompt_files import Turns, read_prompts
from app.bench.report import BenchReport, as_record, describe_machine, write_record
from app.bench.runners import Clock, EngineRunner, base_request
from app.bench.summary import summarize
from app.bench.table import table
from app.commands.arguments import (
    add_answer_tokens,
    add_model,
    add_prompts,
    add_sampling,
    sampling,
    set_command,
    whole,
)
from app.errors import LaneError, RequestFailed
from app.models.catalog import resolve
from app.placement.plans import place_with_dtype
from app.settings import DTYPES, POCKET, Settings, default_model
from app.terminal import notify, show_progress, write_lines
from app.text.chat_text import ChatText
from app.worker.engine_process import build_engine
from engine.hardware.footprint import LLAMA_CPP
from engine.hardware.plan import PlanConstraints
from engine.request import ModelFacts, ModelSpec

EXACT = "float32"  # unless another is asked for
FIXED = {  # benchmarks with lanes of their own -> module, choices of --only, the name of one
    "seeds": ("app.bench.papers.parallel", CLAIMS, "claim"),
    "offload": ("app.bench.offload.command", (), ""),
}
PEERS, REPEATS = "peers", 3
EACH = 6  # prompts of every kind that ``bench peers`` asks by default


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    option = parser.add_argument
    option(
        "what",
        nargs="?",
        choices=(*FIXED, PEERS),
        help="seeds: check the claim of each built-in method, with lanes and prompts of its own; "
        "offload: stream a model of more than 4 GB through 1 GB of memory; "
        "peers: race against other programs on the same file",
    )
    option("--folder", type=Path, help="for offload: where large models are kept")
    option(
        "--only",
        metavar="NAMES",
        help="for seeds: only these claims; for peers: only lanes with these names, * matches "
        "any text; names with commas",
    )
    _add_peers(parser)
    add_model(parser)
    add_prompts(parser, required=False)
    add_answer_tokens(parser)
    option(
        "--lane",
        action="append",
        metavar="[NAME=]DRAFTER[:KEY=VALUE,...]",
        help="what to measure; repeat for more. Keys: length, depth, nodes, or the drafter's own",
    )
    option("--repeats", type=whole(1), help=f"runs of a prompt (default {REPEATS}, for peers 1)")
    option(
        "--concurrent", metavar="N", type=whole(1), default=1, help="prompts at once (default 1)"
    )
    add_sampling(parser, "the same seed gives the same tokens (default: random)")
    option("--dtype", choices=DTYPES, help=f"default {DTYPES[0]}; a GGUF file has its own")
    option(
        "--inflate",
        metavar="N",
        type=whole(1),
        default=1,
        help="make the model N times as wide: the same answers at a higher cost (default 1)",
    )
    option("--json", metavar="FILE", type=Path, help="also write every number to this file")
    set_command(parser, _options, run)


def _add_peers(parser: argparse.ArgumentParser) -> None:
    option = parser.add_argument
    option("--llama-server", metavar="FILE", type=Path, help="for peers: the program to race with")
    option(
        "--gguf",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="for peers: what llama.cpp's programs load where the model is no GGUF file; repeat for more",
    )
    option(
        "--each",
        metavar="N",
        type=whole(1),
        default=EACH,
        help="for peers: prompts of every kind (default %(default)s)",
    )
    option("--picture", metavar="FILE", type=Path, help="for peers: also draw it, as SVG")


def _options(
    given: argparse.Namespace, settings: Settings
) -> BenchOptions | FixedBench | PeersBench:
    for file in filter(None, (given.json, given.picture)):
        check_output(file)
    if given.what is None:
        return _lanes(given, settings)
    if given.prompts is not None:
        _prompts(given)  # a bad file is reported before anything is measured
    if given.what == PEERS:
        return _peers(given, settings)
    _, known, noun = FIXED[given.what]
    only = _only(given.only, known, noun) if known else ()
    return FixedBench(
        what=given.what,
        settings=settings,
        # the claims need weights that can be widened, and layers that exit early
        model=POCKET if given.model == default_model() else given.model,
        prompts=given.prompts,
        json=given.json,
        folder=given.folder,
        limit=given.limit,
        only=only,
    )


def _peers(given: argparse.Namespace, settings: Settings) -> PeersBench:
    for file in filter(None, (given.llama_server, *given.gguf)):
        if not file.is_file():
            raise LaneError(f"there is no file {file}")
    return PeersBench(
        settings=settings,
        model=given.model,
        dtype=given.dtype,
        prompts=given.prompts,
        each=given.each,
        max_tokens=given.max_tokens,
        repeats=given.repeats or 1,
        ggufs=tuple(given.gguf),
        llama_server=given.llama_server,
        only=tuple(name.strip() for name in (given.only or "").split(",") if name.strip()),
        json=given.json,
        picture=given.picture,
    )


def _lanes(given: argparse.Namespace, settings: Settings) -> BenchOptions:
    if not given.lane or given.prompts is None:
        raise LaneError("bench needs at least one --lane and the --prompts to measure on")
    drawn = sampling(given)
    drawn.check()
    return BenchOptions(
        settings=settings,
        model=given.model,
        prompts=_prompts(given),
        lanes=with_baseline([parse_lane(text) for text in given.lane]),
        conditions=Conditions(drawn, given.max_tokens, given.repeats or REPEATS, given.concurrent),
        dtype=given.dtype,
        inflate=given.inflate,
        json=given.json,
    )


def _only(given: str | None, known: Sequence[str], noun: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in given.split(",")) if given else ()
    if unknown := [name for name in names if name not in known]:
        raise LaneError(f"there is no {noun} {unknown[0]!r}; choose from {', '.join(known)}")
    return names


def _prompts(given: argparse.Namespace) -> tuple[Turns, ...]:
    return tuple(read_prompts(given.prompts, given.limit))


def run(options: BenchOptions | FixedBench | PeersBench) -> int:
    """Measure and print a table; returns the exit code."""
    if isinstance(options, PeersBench):
        from app.bench.peers import command

        return command.run(options)
    if isinstance(options, FixedBench):
        code: int = import_module(FIXED[options.what][0]).run(options)
        return code
    # in this process: the pipe to a separate engine process would be measured too
    report = _measured(options, bench_spec(options))
    write_lines(table(report))
    sys.stdout.flush()
    return 0


def bench_spec(options: BenchOptions) -> ModelSpec:
    """What to load: as many slots as requests at once, each with a whole context."""
    concurrent = options.conditions.concurrent
    spec = replace(
        resolve(options.settings, options.model), inflate=options.inflate, slots=concurrent
    )
    exact = None if spec.backend == LLAMA_CPP else EXACT
    wishes = PlanConstraints(batch=concurrent)
    return place_with_dtype(options.settings, spec, options.dtype or exact, wishes).spec


class _Written(Progress):
    """Writes the file for machines as the figures come."""

    def __init__(self, spec: ModelSpec, facts: ModelFacts, file: Path | None) -> None:
        super().__init__(show_progress)
        self._known, self._file = (describe_machine(), spec, facts), file

    @override
    def update(self, measurement: Measurement) -> None:
        if self._file is not None:
            write_record(self._file, as_record(self.report(measurement)))

    def report(self, measurement: Measurement) -> BenchReport:
        """With what is known of model and machine."""
        return BenchReport(*self._known, measurement, summarize(measurement))


def _measured(options: BenchOptions, spec: ModelSpec) -> BenchReport:
    text, conditions = ChatText.load(Path(spec.folder)), options.conditions
    try:
        show_progress(f"loading {spec.name}")
        engine = build_engine(spec)
        notify(*engine.facts.notes)
        context, together = engine.facts.context, conditions.together
        prompts = Conversations(text, context, options.prompts, together)
        clock = Clock.DECODING if together == 1 else Clock.WALL
        runner = EngineRunner(engine, base_request(conditions, text.stop_tokens), clock)
        runners = {lane.name: runner for lane in options.lanes}
        watcher = _Written(spec, engine.facts, options.json)
        measured = finished(measure(options.lanes, prompts, conditions, runners, watcher))
    finally:
        show_progress("")
    if not measured.samples:
        raise RequestFailed(f"nothing was measured: no prompt fits the context of {context} tokens")
    report = watcher.report(measured)
    write_record(options.json, as_record(report))
    return report
