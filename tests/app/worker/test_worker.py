"""The engine's process: streams, failures that stay with their caller, crashes, a clean end."""

import asyncio
import gc
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.errors import RequestFailed, WorkerCrashed
from app.worker import child, engine_process
from app.worker.child import Entry
from app.worker.worker import EngineWorker, Generation
from engine.errors import ContextOverflow, InvalidRequest, ModelUnusable
from engine.request import Done, Event, FinishReason, GenerationRequest, ModelSpec, Tokens
from tests.app import fake_engine
from tests.app.asynchronous import asynchronous
from tests.bundled import POCKET, ROOT
from tests.processes import run_python

SPEC = ModelSpec("fake", "/nowhere")
FOREVER = GenerationRequest((1,), 10**6)
REAL = ModelSpec("pocket", str(POCKET))
LOADS = """
import asyncio, sys
from app.worker import child, engine_process, worker
from engine.request import ModelSpec
child.AHEAD = (*child.AHEAD, "broken")
async def load():
    loaded = worker.EngineWorker(ModelSpec("pocket", sys.argv[1]), engine_process.main)
    print((await loaded.start()).name)
    await loaded.close()
asyncio.run(load())
"""


@asynccontextmanager
async def running(
    entry: Entry = fake_engine.counting, spec: ModelSpec = SPEC
) -> AsyncIterator[EngineWorker]:
    worker = EngineWorker(spec, entry)
    try:
        yield worker
    finally:
        await worker.close()


async def all_of(generation: Generation) -> list[Event]:
    return [event async for event in generation]


def ids_of(events: list[Event]) -> list[int]:
    return [token for event in events if isinstance(event, Tokens) for token in event.ids]


async def others_running(worker: EngineWorker) -> int:
    (count,) = ids_of(await all_of(worker.generate(GenerationRequest((fake_engine.CENSUS,), 1))))
    return count


def exists(pid: int) -> bool:
    """Whether the process is there, as a zombie too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class TestStreams:
    @asynchronous
    async def test_done_is_last_and_once_and_the_ids_come_in_order(self):
        async with running() as worker:
            facts = await worker.start()
            events = await all_of(worker.generate(GenerationRequest((1, 2), 5)))
        assert facts.name == "fake"
        assert [isinstance(event, Done) for event in events] == [False, False, False, True]
        assert ids_of(events) == [3, 4, 5, 6, 7]

    @asynchronous
    async def test_concurrent_streams_keep_to_their_own_ids(self):
        async with running() as worker:
            starts = [10, 20, 30, 40, 50]
            asks = [all_of(worker.generate(GenerationRequest((n,), 9))) for n in starts]
            for n, events in zip(starts, await asyncio.gather(*asks), strict=True):
                assert ids_of(events) == list(range(n + 1, n + 10))

    @asynchronous
    async def test_a_worker_starts_with_its_first_request(self):
        async with running() as worker:
            assert worker.pid is None
            assert ids_of(await all_of(worker.generate(GenerationRequest((1,), 1)))) == [2]


class TestReadingAhead:
    @asynchronous
    async def test_breaks_off_for_whatever_is_asked(self):
        async with running(fake_engine.slow_reader) as worker:
            ahead = worker.generate(GenerationRequest((0, 2, 7, 4), 1, ahead=True))
            reading = asyncio.create_task(all_of(ahead))
            await asyncio.sleep(0.05)
            answer = await all_of(worker.generate(GenerationRequest((0, 2, 7, 4), 4)))
            [broken_off] = await reading
        assert isinstance(broken_off, Done)
        assert broken_off.reason is FinishReason.CANCELLED
        assert ids_of(answer) == [7]

    @asynchronous
    async def test_an_older_one_breaks_off_for_a_newer_one_and_an_answer_does_not(self):
        async with running(fake_engine.slow_reader) as worker:
            older, newer = (
                worker.generate(GenerationRequest((0, 2, n, 4), 1, ahead=True)) for n in (7, 8)
            )
            reading = asyncio.create_task(all_of(older))
            await asyncio.sleep(0.05)
            answer = asyncio.create_task(
                all_of(worker.generate(GenerationRequest((0, 2, 9, 4), 4)))
            )
            [first], [second], answered = await asyncio.gather(reading, all_of(newer), answer)
        assert isinstance(first, Done)
        assert isinstance(second, Done)
        assert first.reason is FinishReason.CANCELLED
        assert ids_of(answered) == [9]


class TestFailuresOfOneRequest:
    @pytest.mark.parametrize(
        ("first", "error"),
        [(fake_engine.POISON, InvalidRequest), (fake_engine.SURPRISE, RequestFailed)],
    )
    @asynchronous
    async def test_reach_their_own_caller_only(self, first, error):
        async with running() as worker:
            good = worker.generate(GenerationRequest((1,), 30))
            await anext(good)
            with pytest.raises(error):
                await anext(worker.generate(GenerationRequest((first,), 5)))
            assert len(ids_of(await all_of(good))) == 28

    @asynchronous
    async def test_overflow_keeps_its_numbers(self):
        async with running() as worker:
            with pytest.raises(ContextOverflow, match="needs 70 tokens, the model holds 64") as e:
                await anext(worker.generate(GenerationRequest((1,) * 70, 5)))
            assert (e.value.needed, e.value.holds) == (70, 64)


class TestCancel:
    @pytest.mark.parametrize("loaded", [True, False])
    @asynchronous
    async def test_cancel_ends_with_done(self, loaded):
        async with running(fake_engine.endless) as worker:
            generation = worker.generate(FOREVER)
            if loaded:
                await anext(generation)
            generation.cancel()
            last = (await all_of(generation))[-1]
            assert isinstance(last, Done)
            assert last.reason is FinishReason.CANCELLED

    @asynchronous
    async def test_closing_frees_the_engine(self):
        async with running(fake_engine.endless) as worker:
            generation = worker.generate(FOREVER)
            await anext(generation)
            assert await others_running(worker) == 1
            await generation.aclose()
            assert await others_running(worker) in {0, 1}  # the cancel may take one step
            assert await others_running(worker) == 0
            assert await all_of(generation) == []

    @asynchronous
    async def test_a_generation_without_a_reader_is_cancelled(self):
        async with running(fake_engine.endless) as worker:
            await anext(worker.generate(FOREVER))
            gc.collect()
            await others_running(worker)
            assert await others_running(worker) == 0


@pytest.mark.parametrize("level", ["WARNING", "INFO"])
@asynchronous
async def test_what_the_engine_logs_is_in_the_log_of_the_app(level, caplog):
    caplog.set_level(logging.DEBUG)
    worker = EngineWorker(SPEC, fake_engine.talkative, level)
    try:
        await worker.start()
    finally:
        await worker.close()
    found = [(one.name, one.levelname, one.getMessage()) for one in caplog.records]
    assert ("engine.fake", "WARNING", "the cache of fake is small") in found
    assert (("engine.fake", "INFO", "a detail") in found) is (level == "INFO")


class TestKeepAlive:
    @asynchronous
    async def test_an_idle_engine_is_unloaded_and_the_next_request_loads_it_again(self):
        worker = EngineWorker(SPEC, fake_engine.counting, keep_alive=1.5)
        try:
            await worker.start()
            first = worker.pid
            assert len(ids_of(await all_of(worker.generate(GenerationRequest((1,), 30))))) == 30
            assert worker.pid == first
            while exists(first):
                await asyncio.sleep(0.02)
            assert worker.pid is None
            assert len(ids_of(await all_of(worker.generate(GenerationRequest((1,), 30))))) == 30
            assert worker.pid not in {None, first}
        finally:
            await worker.close()

    @asynchronous
    async def test_a_running_answer_keeps_it_loaded(self):
        worker = EngineWorker(SPEC, fake_engine.endless, keep_alive=0.1)
        try:
            generation = worker.generate(FOREVER)
            await anext(generation)
            await asyncio.sleep(0.5)
            assert exists(worker.pid)
            await anext(generation)
        finally:
            await worker.close()


class TestCrash:
    @asynchronous
    async def test_kill_in_mid_answer_keeps_what_came_and_the_next_request_works(self):
        async with running(fake_engine.endless) as worker:
            generations = [worker.generate(FOREVER), worker.generate(FOREVER)]
            kept = [await anext(one) for one in generations]
            dead = worker.pid
            os.kill(dead, signal.SIGKILL)
            for one in generations:
                with pytest.raises(WorkerCrashed, match="SIGKILL.*received so far is kept"):
                    kept += [event async for event in one]
            assert ids_of(kept)[0] == 2
            assert await others_running(worker) == 0
            assert worker.pid != dead
            assert not exists(dead)

    @asynchronous
    async def test_a_crash_in_native_code_is_named(self):
        async with running(fake_engine.segfaulting) as worker:
            with pytest.raises(WorkerCrashed, match="while it answered: .* ended by SIGSEGV"):
                await all_of(worker.generate(FOREVER))

    @asynchronous
    async def test_a_broken_engine_says_what_broke(self):
        async with running() as worker:
            with pytest.raises(WorkerCrashed, match="RuntimeError: the fake broke"):
                await all_of(worker.generate(GenerationRequest((fake_engine.FATAL,), 5)))
            assert await others_running(worker) == 0

    @asynchronous
    async def test_a_death_while_loading_is_reported_to_everyone_who_waits(self):
        async with running(fake_engine.dying) as worker:
            waiting = (worker.start(), all_of(worker.generate(FOREVER)))
            for error in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(error, WorkerCrashed)
                assert "while it loaded fake" in str(error)
                assert "exit code 7" in str(error)

    @asynchronous
    async def test_an_unusable_model_says_why(self):
        async with running(fake_engine.unusable) as worker:
            with pytest.raises(ModelUnusable, match="/nowhere has no config.json"):
                await worker.start()

    @asynchronous
    async def test_a_caller_that_gives_up_does_not_stop_the_load(self):
        async with running() as worker:
            impatient = asyncio.create_task(worker.start())
            await asyncio.sleep(0)
            impatient.cancel()
            assert (await worker.start()).name == "fake"


class TestEnd:
    @asynchronous
    async def test_close_leaves_no_process_and_ends_running_streams(self):
        async with running(fake_engine.endless) as worker:
            generation = worker.generate(FOREVER)
            await anext(generation)
            pid = worker.pid
            await worker.close()
            assert not exists(pid)
            with pytest.raises(WorkerCrashed, match="closed"):
                await all_of(generation)
            with pytest.raises(WorkerCrashed, match="open the model again"):
                await anext(worker.generate(FOREVER))

    @asynchronous
    async def test_close_ends_a_process_that_is_still_loading(self):
        async with running(fake_engine.loading) as worker:
            start = asyncio.create_task(worker.start())
            while (pid := worker.pid) is None:
                await asyncio.sleep(0.01)
            await worker.close()
            assert not exists(pid)
            with pytest.raises(WorkerCrashed):
                await start

    @asynchronous
    async def test_close_ends_a_process_that_hangs_within_five_seconds(self, monkeypatch):
        assert child.GRACE_SECONDS + 2 * child.TERM_SECONDS < 5
        monkeypatch.setattr(child, "GRACE_SECONDS", 0.2)
        monkeypatch.setattr(child, "TERM_SECONDS", 0.5)
        async with running(fake_engine.deaf) as worker:
            await worker.start()
            since = time.monotonic()
            await worker.close()
            assert time.monotonic() - since < 0.2 + 2 * 0.5 + 2
            assert not exists(worker.pid)

    @asynchronous
    async def test_closing_twice_and_closing_what_never_started(self):
        async with running() as worker:
            await worker.close()
            await worker.close()
            assert worker.pid is None

    @asynchronous
    async def test_the_engine_ignores_the_interrupt_key(self):
        async with running() as worker:
            await worker.start()
            os.kill(worker.pid, signal.SIGINT)
            assert len(ids_of(await all_of(worker.generate(GenerationRequest((1,), 9))))) == 9

    @pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="awaits a process by its pidfd")
    @pytest.mark.parametrize("entry", ["endless", "loading_for_ever"])
    def test_the_engine_ends_when_the_app_is_killed(self, entry, tmp_path):
        """Mid-answer, or in a load that hears nothing: the app gets no chance to say goodbye."""
        script, begun = Path(__file__).with_name("abandon.py"), tmp_path / "begun"
        command = [sys.executable, str(script), entry, str(begun)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as app:
            engine = os.pidfd_open(int(app.stdout.readline()))
            if entry == "endless":
                assert app.stdout.readline() == "loaded\n"
            while not (entry == "endless" or begun.exists()):
                time.sleep(0.01)
            app.kill()
        ended, _, _ = select.select([engine], [], [], 10)
        os.close(engine)
        assert ended


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere libraries do not survive a fork")
class TestRealEngines:
    """They are forked off a process that has imported torch."""

    @asynchronous
    async def test_a_killed_one_is_named_and_the_next_has_the_same_parent(self):
        async with running(engine_process.main, REAL) as worker:
            await worker.start()
            dead, parent = worker.pid, parent_of(worker.pid)
            assert parent != os.getpid()
            generation = worker.generate(GenerationRequest((1,), 200))
            await anext(generation)
            os.kill(dead, signal.SIGKILL)
            with pytest.raises(WorkerCrashed, match="SIGKILL"):
                await all_of(generation)
            assert await all_of(worker.generate(GenerationRequest((1,), 3)))
            assert (worker.pid != dead, parent_of(worker.pid)) == (True, parent)
            os.kill(worker.pid, signal.SIGINT)  # the app handles it
            assert await all_of(worker.generate(GenerationRequest((1,), 3)))
            pid = worker.pid
        assert not exists(pid)

    @asynchronous
    async def test_without_that_parent_there_is_another(self):
        async with running(engine_process.main, REAL) as worker:
            await worker.start()
            os.kill(parent_of(worker.pid), signal.SIGKILL)
            assert await all_of(worker.generate(GenerationRequest((1,), 3)))
            os.kill(worker.pid, signal.SIGKILL)
            await asyncio.sleep(0.5)  # until that is seen
            assert await all_of(worker.generate(GenerationRequest((1,), 3)))

    def test_where_that_parent_cannot_import_a_load_still_works(self, tmp_path):
        (tmp_path / "broken.py").write_text("raise OSError('no such library')", "utf-8")
        path = os.pathsep.join(map(str, (ROOT, tmp_path)))
        done = run_python(LOADS, str(POCKET), PYTHONPATH=path)
        assert (done.stdout, done.returncode) == ("pocket\n", 0), done.stderr
