"""What is measured now, for every open page: one race or one benchmark at a time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from app.bench.compare.benchmark import SIZES, Benchmark, BenchmarkOptions, run_benchmark
from app.bench.compare.isolated_run import IsolatedRunner
from app.bench.compare.race import Race, RaceOptions, check_race, run_race
from app.bench.compare.record import record
from app.bench.compare.remote_run import RemoteRunner
from app.bench.compare.saved import SavedBenchmark, SavedBenchmarks
from app.bench.prompt_files import shipped_questions
from app.chat.assistant import Assistant
from app.chat.loaded_model import LoadedModel
from app.chat.remote.model import RemoteModel
from app.errors import UNEXPECTED, AppError, WorkerCrashed
from app.models.catalog import resolve
from app.observable import Observable
from engine.errors import EngineError, InvalidRequest

log = logging.getLogger(__name__)

_SWITCHED = "Another model was chosen meanwhile; start again to measure that one."


@dataclass(slots=True, eq=False)
class BenchmarkService(Observable):
    """Starts and stops measurements on the assistant's model; they continue when no page is open."""

    assistant: Assistant
    race: Race | None = None  # the latest
    benchmark: Benchmark | None = None  # the latest
    kept: SavedBenchmark | None = None  # what the latest benchmark became
    saved: tuple[
        SavedBenchmark, ...
    ] = ()  # every benchmark, newest first, as of the latest reading
    latest: type[Race | Benchmark] = Race  # what the latest measurement was
    problem: str = ""  # why the latest measurement broke off
    _task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether something is being measured."""
        return self._task is not None

    @property
    def racing(self) -> bool:
        """Whether that is a race."""
        return self.busy and self.latest is Race

    @property
    def measuring(self) -> bool:
        """Whether that is a benchmark."""
        return self.busy and self.latest is Benchmark

    @property
    def waiting(self) -> bool:
        """Whether it waits for the end of an answer in the chat."""
        return self.busy and self.assistant.answering > 0

    @property
    def shelf(self) -> SavedBenchmarks:
        """The saved benchmarks."""
        return SavedBenchmarks(self.assistant.settings.home)

    async def read_saved(self) -> None:
        """Look at the saved benchmarks again."""
        self.saved = tuple(await asyncio.to_thread(self.shelf.all))
        self.change()

    async def remove(self, name: str) -> None:
        """Delete a saved benchmark; raises OutputFileError."""
        try:
            await asyncio.to_thread(self.shelf.remove, name)
        finally:
            await self.read_saved()

    def start_race(self, options: RaceOptions) -> None:
        """Begin; raises InvalidRequest, UnknownModel, ModelUnusable."""
        self._check_free()
        own = self.assistant.current.here().entry.name
        check_race(options, self.assistant.current.here().facts)
        if options.rival == own:
            raise InvalidRequest(f"{own} is loaded already; choose another model to race with")
        if options.rival and self._remote(options.rival) is None:
            resolve(self.assistant.settings, options.rival)  # a wrong name shows at once
        race = Race(own, options, self.change)
        self.race, self.latest = race, Race
        self._begin(partial(self._race, race))

    def start_benchmark(self, options: BenchmarkOptions) -> None:
        """Begin; raises InvalidRequest."""
        self._check_free()
        lanes = options.lanes(self.assistant.current.here().facts)
        benchmark = Benchmark(
            options, lanes, shipped_questions(SIZES[options.size].each), self.change
        )
        self.benchmark, self.kept, self.latest = benchmark, None, Benchmark
        self._begin(partial(self._measure, benchmark))

    def cancel(self) -> None:
        """Break off what runs; the engine is free a pass later."""
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Wait until nothing is being measured."""
        if self._task is not None:
            await asyncio.wait([self._task])
            await asyncio.sleep(0)  # for the callbacks of the end

    def _remote(self, name: str) -> RemoteModel | None:
        """The model of another engine, if this names one."""
        engine = self.assistant.settings.engine_of(name)
        found = None if engine is None else self.assistant.current.named(name)
        return found if isinstance(found, RemoteModel) else None

    def _runner(self, model: LoadedModel, max_tokens: int) -> IsolatedRunner:
        return IsolatedRunner(self.assistant, model, max_tokens, self.change)

    async def _race(self, race: Race) -> None:
        """A rival is loaded next to the model for as long as the race lasts, if there is room."""
        options = race.options
        own = self._runner(self.assistant.current.here(), options.max_tokens)
        if not options.rival:
            await run_race(dict.fromkeys(race.lanes, own), race)
            return
        if (remote := self._remote(options.rival)) is not None:
            there = RemoteRunner(remote, options.max_tokens)
            await run_race({race.model: own, options.rival: there}, race)
            return
        rival = await LoadedModel.open(self.assistant.settings, options.rival)
        try:
            other = self._runner(rival, options.max_tokens)
            await run_race({race.model: own, options.rival: other}, race)
        finally:
            await rival.worker.close()

    async def _measure(self, benchmark: Benchmark) -> None:
        model = self.assistant.current.here()
        runner = self._runner(model, benchmark.size.max_tokens)
        measured = await run_benchmark(runner, benchmark)
        if not measured.samples:
            raise InvalidRequest("no prompt of the benchmark fits this model's context")
        whole = record(benchmark, measured, model)
        kept = await asyncio.to_thread(self.shelf.keep, whole)
        await self.read_saved()
        self.kept = kept

    def _check_free(self) -> None:
        if self.busy:
            raise InvalidRequest("a measurement is running; stop it, or wait for its end")
        if self.assistant.loading:
            raise InvalidRequest(f"{self.assistant.loading} is being loaded; wait for that")

    def _begin(self, work: Callable[[], Awaitable[None]]) -> None:
        self.problem = ""
        self._task = asyncio.create_task(self._guarded(work), name="measure")
        self._task.add_done_callback(self._end)
        self.change()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            self.problem = "Stopped; nothing of it was kept."
        self.change()

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        worker = self.assistant.current.here().worker
        try:
            await work()
        except WorkerCrashed as error:
            self.problem = _SWITCHED if worker.closed else str(error)
        except (AppError, EngineError) as error:
            self.problem = str(error)
        except Exception:
            log.exception("a measurement failed")
            self.problem = UNEXPECTED
