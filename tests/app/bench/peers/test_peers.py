"""``bench peers`` on real programs in miniature: libraries in processes of their own, a server over HTTP."""

import asyncio
import json
import os
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.bench.lanes import Lane
from app.bench.measure import Prompt, Sample, Turn
from app.bench.options import PeersBench
from app.bench.peers import command, libraries, llama_server
from app.bench.peers.child import Library
from app.bench.peers.entrants import Entrant, Places, Slipstream, chosen, peers
from app.bench.peers.program import Chunk, Program, Question
from app.bench.peers.quiet import Taken, Watch
from app.bench.peers.report import LaneFacts, PeerReport
from app.bench.peers.runner import MOST_TRIES, PeerRunner
from app.bench.peers.shown import picture, table
from app.bench.report import Machine
from app.errors import LaneError, RequestFailed
from app.settings import load_settings
from engine.request import ModelSpec
from tests.app.bench.samples import sample
from tests.bundled import POCKET

QUESTION = Question((0, 2, 300, 400, 4, 3), 12, frozenset({4}))


async def answered(program: Program, *modes: str) -> list[tuple[int, ...]]:
    """All tokens of an answer in each mode, of a program that is started for them."""
    found = []
    try:
        await program.start()
        with program.running():
            for mode in modes:
                chunks = [chunk async for chunk in program.answer(mode, QUESTION)]
                found.append(tuple(token for chunk in chunks for token in chunk.ids))
        return found
    finally:
        program.resume()
        await program.close()


@pytest.fixture(scope="module")
def ours() -> tuple[int, ...]:
    """This program's plain answer in float32."""
    program = Slipstream(ModelSpec("pocket", str(POCKET), dtype="float32"))
    return asyncio.run(answered(program, "none"))[0]


def test_transformers_gives_the_same_answer_in_its_modes(ours):
    program = Library("transformers", libraries.load_transformers, (POCKET, None, "float32"))
    assert asyncio.run(answered(program, libraries.PLAIN, libraries.LOOKUP)) == [ours, ours]


@pytest.mark.parametrize("mode", [libraries.PLAIN, libraries.LOOKUP])
def test_llama_cpp_python_gives_the_same_answer_in_its_modes(ours, pocket_gguf, mode):
    program = Library("llama-cpp-python", libraries.load_llama_cpp, (pocket_gguf, 512, mode))
    assert asyncio.run(answered(program, mode)) == [ours]


def test_a_library_that_cannot_load_the_model_says_why(tmp_path):
    program = Library("transformers", libraries.load_transformers, (tmp_path, None, "float32"))
    with pytest.raises(RequestFailed, match=r"^transformers: "):
        asyncio.run(answered(program, libraries.PLAIN))


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A program that speaks as llama-server does."""
    file = tmp_path / "llama-server"
    script = Path(__file__).with_name("server.py")
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


class TestLlamaServer:
    def test_its_modes_are_read_from_its_help(self, server):
        found = llama_server.modes(server)
        assert list(found)[:3] == ["plain", "ngram-simple", "ngram-mod"]
        assert found["ngram-mod"] == ("--spec-type", "ngram-mod")
        assert found["plain, bf16 keys, flash"] == ("-fa", "on", "-ctk", "bf16", "-ctv", "bf16")

    def test_an_answer_comes_token_by_token_and_then_its_counts(self, server, tmp_path):
        async def chunks() -> list[Chunk]:
            program = llama_server.LlamaServer(server, tmp_path / "m", (), 512, tmp_path / "log")
            try:
                await program.start()
                return [chunk async for chunk in program.answer("plain", QUESTION)]
            finally:
                await program.close()

        found = asyncio.run(chunks())
        # token 4 stops
        assert [chunk.ids for chunk in found[:3]] == [(), (5,), (6,)]
        assert (found[-1].drafted, found[-1].accepted) == (7, 5)

    def test_one_that_ends_at_the_start_names_its_log(self, server, tmp_path):
        arguments, log = ("--spec-type", "ngram-mod"), tmp_path / "log"
        program = llama_server.LlamaServer(server, tmp_path / "m", arguments, 512, log)
        with pytest.raises(RequestFailed, match=f"ended with status 1; see {log}"):
            asyncio.run(answered(program, "ngram-mod"))
        assert "no such file" in log.read_text()

    def test_a_file_that_is_no_program_is_one_sentence(self, tmp_path):
        (tmp_path / "x").write_text("x")
        with pytest.raises(RequestFailed, match="cannot be started"):
            llama_server.modes(tmp_path / "x")


class Scripted(Program):
    """Answers with one token after the other."""

    pid = None

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    async def start(self) -> None:
        """Nothing to load."""

    async def answer(self, mode: str, question: Question):
        self.asked.append(question.ids)
        for token in (7, 8, 9):
            yield Chunk((token,))
        yield Chunk((), stopped=True)

    async def close(self) -> None:
        """Nothing to end."""


def taken(monkeypatch, *others: float) -> None:
    """The runs of a test lose so many seconds to others, one after another."""
    left = iter(others)
    monkeypatch.setattr(Watch, "taken", lambda self: Taken(1.0, next(left)))


async def samples(runner: PeerRunner, repeat: int = 1) -> list[Sample]:
    turn = Turn(Lane("x", "x"), (Prompt(1, ids=(1, 2)),), 1, repeat)
    return [step async for step in runner.run(turn) if isinstance(step, Sample)]


class TestDisturbedRuns:
    def test_they_are_done_again(self, monkeypatch):
        taken(monkeypatch, 0.5, 0.2, 0.01)
        runner = PeerRunner(Scripted(), "plain", 5, frozenset())
        [one] = asyncio.run(samples(runner))
        assert one.ids == (7, 8, 9)
        assert one.timed == 3  # behind the first: two tokens, and what stopped it
        assert (runner.repeated, runner.disturbed) == (2, set())

    def test_after_some_tries_the_prompt_is_noted(self, monkeypatch):
        taken(monkeypatch, *[0.5] * MOST_TRIES)
        runner = PeerRunner(Scripted(), "plain", 5, frozenset())
        assert len(asyncio.run(samples(runner))) == 1
        assert (runner.repeated, runner.disturbed) == (MOST_TRIES - 1, {1})

    @pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells")
    def test_work_of_this_process_is_not_others(self):
        watches, spent = (Watch((os.getpid(),)), Watch(())), time.process_time()
        while time.process_time() - spent < 0.3:
            sum(range(10_000))
        own, everybody = (watch.taken().others for watch in watches)
        assert 0.2 < everybody - own < 0.4 + time.process_time() - spent


def test_the_warm_up_asks_nothing_that_is_asked_later(monkeypatch):
    taken(monkeypatch, 0.0, 0.0)
    program = Scripted()
    runner = PeerRunner(program, "plain", 5, frozenset())
    for repeat in (0, 1):
        asyncio.run(samples(runner, repeat))
    warm_up, timed = program.asked
    assert (len(warm_up), timed) == (len(timed), (1, 2))
    assert warm_up != timed


FACTS = [
    LaneFacts(f"slipstream: {n}", "slipstream: plain", 1.0, 2 * 10**6, 1, frozenset())
    for n in ("plain", "auto")
]
KINDS = {1: "qa", 2: "edit"}
MACHINE = Machine("cpu", 2, 2, "2", "2026-11-30")


def report() -> PeerReport:
    """auto takes half of the time for edits and as long for questions."""
    ids = tuple(range(10))
    rows = [("plain", 1, 1.0), ("plain", 2, 1.0), ("auto", 1, 1.0), ("auto", 2, 0.25)]
    found = tuple(sample(f"slipstream: {lane}", (n, 1), ids, seconds) for lane, n, seconds in rows)
    return PeerReport(MACHINE, "m", "c", tuple(FACTS), found, KINDS)


def test_the_mean_is_over_kinds_and_the_worst_is_named():
    found = report()
    assert found.mean("slipstream: auto") == pytest.approx(2.0)
    assert found.worst("slipstream: auto") == (1.0, "qa")
    printed = "\n".join(table(found))
    assert "1.00 qa" in printed
    assert "2/2" in printed
    assert "in 2 runs" in printed


def test_a_prompt_that_was_disturbed_in_one_lane_counts_in_none():
    found = report()
    noisy = replace(
        found, lanes=(found.lanes[0], replace(found.lanes[1], disturbed=frozenset({2})))
    )
    assert noisy.mean("slipstream: auto") == pytest.approx(1.0)
    assert [sample.prompt for sample in noisy.of("slipstream: plain")] == [1]
    assert "disturbed in every try: 1" in "\n".join(table(noisy))


def test_the_picture_is_a_drawing_with_every_lane():
    tree = ElementTree.fromstring(picture(report()))
    told = [text for element in tree.iter() if (text := element.text)]
    assert {"slipstream: plain", "slipstream: auto", "2.00"} <= set(told)


def test_lanes_are_compared_with_plain_of_the_same_settings(server, tmp_path):
    places = Places(ModelSpec("m", "m.gguf", backend="llama_cpp"), 512, (tmp_path / "m",), server, tmp_path)  # fmt: skip
    plain = {entrant.lane.name: entrant.plain for entrant in peers(places)}
    assert plain["llama-server: ngram-mod"] == "llama-server: plain"
    settings = "bf16 keys, flash"
    assert plain[f"llama-server: ngram-mod, {settings}"] == f"llama-server: plain, {settings}"
    assert set(plain.values()) <= set(plain)


def test_lanes_are_chosen_by_patterns_and_the_first_always_runs():
    made = [Entrant(Lane(name, "x"), "x", Scripted, "") for name in ("a: plain", "a: auto", "b: x")]
    names = [entrant.lane.name for entrant in chosen(made, ("b*",))]
    assert names == ["a: plain", "b: x"]
    with pytest.raises(LaneError, match="no lane is named 'c'; known: a: plain; a: auto; b: x"):
        chosen(made, ("c",))


def test_the_command_races_real_programs_and_writes_all_files(
    pocket_gguf, tmp_path, capsys, home, monkeypatch
):
    monkeypatch.setattr(Taken, "disturbed", False)
    prompts = tmp_path / "p.jsonl"
    prompts.write_text(
        '{"turns": ["Repeat: a b c"], "category": "copy"}\n{"turns": ["What is 2 + 3?"]}\n'
    )
    options = PeersBench(
        load_settings(), str(pocket_gguf), None, prompts, 1, 8, 1, (), None,
        ("slipstream: auto", "llama-cpp-python: plain"), tmp_path / "out.json", tmp_path / "out.svg",
    )  # fmt: skip
    assert command.run(options) == 0
    printed = capsys.readouterr().out
    written = json.loads((tmp_path / "out.json").read_text())
    lanes = [lane["name"] for lane in written["lanes"]]
    assert lanes == ["slipstream: plain", "slipstream: auto", "llama-cpp-python: plain"]
    assert all(lane in printed for lane in lanes)
    assert {one["kind"] for one in written["answers"]} == {"copy", "all"}
    assert written["lanes"][1]["same_answers"] == 2
    assert written["lanes"][0]["load_seconds"] > 0
    ElementTree.fromstring((tmp_path / "out.svg").read_text())
