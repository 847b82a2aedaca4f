"""``bench offload``: the large model is the same function; rows hold only for figures that reach them."""

import json
import mmap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.bench.measure import Sample
from app.bench.offload import command
from app.bench.offload.checkpoint import MARK, write_inflated
from app.bench.offload.process import (
    Found,
    Order,
    Task,
    direct_rate,
    lane_name,
    measured,
    peak_memory,
)
from app.bench.offload.rows import PLAIN, TREES, rows
from app.bench.options import FixedBench
from app.errors import RequestFailed
from app.settings import Settings
from engine.models.own.target import load_target
from engine.speculation.tree import chain
from tests.app.bench.samples import sample

SETTINGS = Settings(home=Path("/nowhere"))
BUNDLED = Path(__file__).resolve().parents[3] / "engine" / "bundled"
LIMIT = 1_000_000_000


def silent(_: str) -> None:
    """No progress."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large") / "model"
    write_inflated(BUNDLED / "pocket", 3, folder, silent)
    return folder


def test_the_written_model_is_the_same_function(large):
    ours = load_target(large, "float32", "cpu")
    theirs = load_target(BUNDLED / "pocket", "float32", "cpu")
    assert ours.parameters > 2 * theirs.parameters
    tree = chain(list(range(300, 340)))
    found = [target.score([0], [tree])[0].logits for target in (ours, theirs)]
    torch.testing.assert_close(found[0], found[1], atol=1e-3, rtol=1e-3)


def test_a_finished_folder_is_left_and_a_broken_one_is_written_again(large):
    shard = large / "model-00000.safetensors"
    before = shard.stat().st_mtime_ns
    write_inflated(BUNDLED / "pocket", 3, large, silent)
    assert shard.stat().st_mtime_ns == before
    (large / MARK).unlink()
    write_inflated(BUNDLED / "pocket", 3, large, silent)
    assert shard.stat().st_mtime_ns > before


def test_a_disk_without_room_is_refused_with_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr("app.bench.offload.checkpoint.SPARE", 1 << 60)
    with pytest.raises(RequestFailed, match=r"needs \d.* [GT]iB on the disk"):
        write_inflated(BUNDLED / "pocket", 2, tmp_path / "x", silent)
    assert not (tmp_path / "x").exists()


def test_one_process_measures_both_lanes(large):
    prompts = (tuple(range(100, 130)),)
    order = Order(
        folder=str(large),
        draft_folder=str(BUNDLED / "pocket-draft"),
        resident=60_000_000,
        stop_tokens=frozenset({4}),
        tasks=(Task(PLAIN, 0.0, prompts, 6), Task(TREES, 0.0, prompts, 6)),
        rounds=1,
    )
    said: list[str] = []
    found = measured(order, said.append)
    assert found.streamed > found.held > 0
    assert len(found.disk) == len(found.ordinary) == len(found.streaming) == 1
    [plain], [trees] = found.of(PLAIN, 0.0), found.of(TREES, 0.0)
    assert plain.ids == trees.ids
    assert len(plain.ids) == 6
    assert 0 < found.before <= found.peak
    assert len(said) >= 4


def test_a_process_that_breaks_is_reported_by_its_last_line(tmp_path):
    order = Order(str(tmp_path), str(tmp_path), 10**9, frozenset({4}), (), rounds=0)
    with pytest.raises(RequestFailed, match="the streamed model could not be measured"):
        command.found_by(order, silent)


def test_direct_reads_and_peak_memory_are_measured(large):
    block = mmap.mmap(-1, 1 << 20)
    assert direct_rate(sorted(large.glob("*.safetensors")), block) > 0
    assert direct_rate([], block) == 0
    assert peak_memory() > 50_000_000


def answers(drafter: str, temperature: float, ids: tuple[tuple[int, ...], ...], seconds: float):
    """Of one lane, each in ``seconds``."""
    name = lane_name(drafter, temperature)
    return [sample(name, (n, 1), one, seconds) for n, one in enumerate(ids, 1)]


def good() -> tuple[Found, Found]:
    """Figures that reach every bound."""
    whole = ((1, 2, 3, 4, 5, 6, 7, 8), (9, 8, 7, 6, 5, 4, 3, 2))
    short = tuple(ids[:4] for ids in whole)
    samples: list[Sample] = []
    for temperature in (0.0, 0.6):
        samples += answers(PLAIN, temperature, short, 4.0)
        samples += answers(TREES, temperature, whole, 1.5)
    streamed = Found(
        tuple(samples),
        disk=(2e9, 2e9),
        ordinary=(1e9, 1e9),
        streaming=(1.9e9, 1.8e9),
        peak=1_200_000_000,
        before=300,
    )
    return streamed, Found(tuple(answers(PLAIN, 0.0, whole, 0.5)))


def verdicts(streamed: Found, resident: Found) -> dict[str, bool]:
    return {one.claim: one.holds for one in rows(streamed, resident, LIMIT)}


def faults() -> Iterator[tuple[str, Found]]:
    """One bound missed at a time."""
    streamed, _ = good()
    yield "Streaming", replace(streamed, streaming=(1.0e9, 1.6e9))
    yield "Memory", replace(streamed, peak=1_300_000_001)
    for temperature in (0.0, 0.6):
        slow = lane_name(TREES, temperature)
        yield "SpecExec", altered(streamed, slow, seconds=4.5)
    for drafter in (PLAIN, TREES):
        yield "Same tokens", altered(streamed, lane_name(drafter, 0.0), ids=(1, 2, 3, 5))


def altered(found: Found, lane: str, **changes: object) -> Found:
    """Every sample of this lane changed."""
    samples = (replace(s, **changes) if s.lane == lane else s for s in found.samples)
    return replace(found, samples=tuple(samples))


def test_rows_hold_for_figures_that_reach_the_bounds():
    assert all(verdicts(*good()).values())


@pytest.mark.parametrize(("claim", "streamed"), list(faults()))
def test_one_missed_bound_is_one_missed_row(claim, streamed):
    found = verdicts(streamed, good()[1])
    assert not found.pop(claim)
    assert all(found.values()) or claim == "Same tokens"


@pytest.mark.parametrize("holds", [True, False])
def test_the_exit_code_is_the_verdict_and_the_last_line_a_summary(
    tmp_path, monkeypatch, capsys, holds
):
    streamed, resident = good()
    if not holds:
        streamed = replace(streamed, peak=2_000_000_000)
    orders: list[Order] = []

    def run(order: Order, _: object) -> Found:
        orders.append(order)
        return resident if order.resident is None else streamed

    monkeypatch.setattr(command, "found_by", run)
    monkeypatch.setattr(command, "INFLATE", 2)
    options = FixedBench("offload", Settings(home=tmp_path), "pocket", None, tmp_path / "out.json")
    assert command.run(options) == (0 if holds else 1)
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert ("every claim holds" in last) if holds else ("missed: Memory" in last)
    assert [order.resident for order in orders] == [LIMIT, None]
    assert len(json.loads((tmp_path / "out.json").read_text())["rows"]) == 4
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]  # the model is gone
