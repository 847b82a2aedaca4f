"""The command ``bench peers``: every program loads the model, then all answer the prompts by turns."""

import asyncio
import signal
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from app.bench.measure import Measurement, Progress, Prompt, Prompts, measure
from app.bench.options import Conditions, PeersBench
from app.bench.peers.entrants import Entrant, Make, Places, Slipstream, chosen, own, peers
from app.bench.peers.program import Program
from app.bench.peers.report import LaneFacts, PeerReport, as_record
from app.bench.peers.runner import PeerRunner
from app.bench.peers.shown import picture, table
from app.bench.prompt_files import Tagged, questions_of, shipped_questions
from app.bench.report import describe_machine, write_record
from app.errors import OutputFileError
from app.files import replace_file
from app.history.task_class import task_class
from app.models.catalog import resolve
from app.placement.plans import dtype_name, place_with_dtype
from app.request import Message
from app.terminal import show_progress, write_lines
from app.text.chat_text import ChatText
from engine.hardware.footprint import LLAMA_CPP
from engine.request import ModelSpec

CONTEXT = 8192  # tokens: prompt and answer; longer prompts are left out


@dataclass
class _Loaded:
    """Programs that run, by what makes them; each is paused unless it answers."""

    programs: dict[Make, Program] = field(default_factory=dict)
    seconds: dict[Make, float] = field(default_factory=dict)

    async def add(self, make: Make, ends: AsyncExitStack) -> Program:
        """Start it; the others wait meanwhile."""
        program = make()
        started = time.perf_counter()
        ends.push_async_callback(program.close)
        ends.callback(program.resume)  # before it is closed
        with program.running():
            await program.start()
        self.programs[make] = program
        self.seconds[make] = time.perf_counter() - started
        return program


def run(options: PeersBench) -> int:
    """Measure, print the tables, write the files; returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # paused programs must be ended, too
    report = asyncio.run(_measured(options))
    show_progress("")
    write_lines(table(report))
    write_record(options.json, as_record(report))
    if options.picture is not None:
        try:
            replace_file(options.picture, picture(report))
        except OSError as error:
            raise OutputFileError(
                f"the file {options.picture} cannot be written: {error.strerror}"
            ) from error
    return 0


async def _measured(options: PeersBench) -> PeerReport:
    spec = resolve(options.settings, options.model)
    spec = place_with_dtype(options.settings, spec, options.dtype).spec
    text = ChatText.load(Path(spec.folder))
    loaded, ours = _Loaded(), Slipstream(spec)
    with tempfile.TemporaryDirectory(prefix="slipstream-peers-") as logs:
        async with AsyncExitStack() as ends:
            show_progress(f"loading {spec.name}")

            def make() -> Program:
                return ours

            await loaded.add(make, ends)
            assert ours.facts is not None, "it is loaded"
            places = Places(spec, CONTEXT, _ggufs(options, spec), options.llama_server, Path(logs))
            known = [*own(make, ours.facts), *peers(places)]
            entrants = chosen(known, options.only)
            for entrant in entrants:
                if entrant.make not in loaded.programs:
                    show_progress(f"loading {entrant.lane.name}")
                    await loaded.add(entrant.make, ends)
            return await _race(options, spec, text, loaded, entrants)


def _ggufs(options: PeersBench, spec: ModelSpec) -> tuple[Path, ...]:
    """The files for programs that read nothing else; by default the model's own."""
    return options.ggufs or ((Path(spec.folder),) if spec.backend == LLAMA_CPP else ())


async def _race(
    options: PeersBench,
    spec: ModelSpec,
    text: ChatText,
    loaded: _Loaded,
    entrants: Sequence[Entrant],
) -> PeerReport:
    asked = _questions(options)
    prompts = [_prompt(text, number, one) for number, one in enumerate(asked, 1)]
    fits = [prompt for prompt in prompts if len(prompt.ids) + options.max_tokens < CONTEXT]
    conditions = Conditions(max_tokens=options.max_tokens, repeats=options.repeats)
    runners = {
        one.lane.name: PeerRunner(
            loaded.programs[one.make], one.mode, options.max_tokens, text.stop_tokens
        )
        for one in entrants
    }
    kinds = {prompt.number: asked[prompt.number - 1].category for prompt in fits}

    def report(measurement: Measurement) -> PeerReport:
        lanes = tuple(_facts(one, loaded, runners[one.lane.name]) for one in entrants)
        told = (
            f"{len(fits)} prompts of {len(set(kinds.values()))} kinds, at most {options.max_tokens} tokens "
            f"an answer, greedy, nothing cached, lanes taking turns, the others paused"
        )
        model = f"{spec.name}, {dtype_name(spec)}"
        return PeerReport(describe_machine(), model, told, lanes, measurement.samples, kinds)

    class Written(Progress):
        @override
        def update(self, measurement: Measurement) -> None:
            write_record(options.json, as_record(report(measurement)))

    lanes = [entrant.lane for entrant in entrants]
    groups = Prompts([[prompt] for prompt in fits])
    return report(await measure(lanes, groups, conditions, runners, Written(show_progress)))


def _facts(entrant: Entrant, loaded: _Loaded, runner: PeerRunner) -> LaneFacts:
    program = loaded.programs[entrant.make]
    return LaneFacts(
        name=entrant.lane.name,
        plain=entrant.plain,
        load_seconds=loaded.seconds[entrant.make],
        peak_bytes=program.peak_bytes,
        repeated=runner.repeated,
        disturbed=frozenset(runner.disturbed),
    )


def _questions(options: PeersBench) -> tuple[Tagged, ...]:
    """First turns, the same number of every kind: of the file, or the package's."""
    if options.prompts is None:
        return shipped_questions(options.each)
    return questions_of(options.prompts, options.each)


def _prompt(text: ChatText, number: int, asked: Tagged) -> Prompt:
    messages = (Message("user", asked.turns[0]),)
    return Prompt(number, messages, tuple(text.encode_chat(messages)), task_class(messages))
