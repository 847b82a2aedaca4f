"""Measured rates are rates, leave no files, and only sound ones are accepted; the GPU report runs."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.hardware import limits
from engine.hardware.limits import this_machine
from engine.hardware.profile import Gpu, Rates, rates_from
from engine.hardware.rates import disk_rate, matrix_rate, measure, read_rate

RATE = st.floats(1, 1e15)
SLOWEST, FASTEST = 1e7, 1e13  # bytes or operations per second of any machine that runs this


def test_rates_are_rates_of_a_machine() -> None:
    cpu = torch.device("cpu")
    for rate in (read_rate(16 * 2**20), matrix_rate(cpu, torch.float32)):
        assert SLOWEST < rate < FASTEST


def test_the_disk_is_measured_with_a_file_that_goes_away(tmp_path: Path) -> None:
    rate = disk_rate(tmp_path)
    assert rate is not None
    assert SLOWEST / 10 < rate < FASTEST
    assert not list(tmp_path.iterdir())
    assert disk_rate(tmp_path / "nowhere") is None


def test_a_large_model_is_read_in_place_of_a_scratch_file(tmp_path: Path) -> None:
    model = tmp_path / "one/model.gguf"
    model.parent.mkdir()
    model.write_bytes(bytes(64 * 2**20))
    tmp_path.joinpath("other.txt").write_text("no model")
    before = model.stat()
    assert disk_rate(tmp_path) is not None
    after = model.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@NO_GPU
def test_all_rates_of_a_machine_without_a_gpu(tmp_path: Path) -> None:
    rates = measure(tmp_path)
    assert rates.gpus == ()
    assert all((rates.memory, rates.matrix, rates.disk))


@given(
    st.builds(
        Rates,
        st.none() | RATE,
        st.none() | RATE,
        st.none() | RATE,
        st.lists(st.tuples(RATE, RATE, RATE), max_size=2).map(tuple),
    )
)
def test_rates_survive_being_stored(rates: Rates) -> None:
    assert rates_from(json.loads(json.dumps(asdict(rates)))) == rates


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory": 0.0},
        {"disk": -1.0},
        {"matrix": float("nan")},
        {"memory": float("inf")},
        {"gpus": [[1.0, 2.0]]},
        {"gpus": None},
        {"disk": "fast"},
    ],
)
def test_what_is_no_rate_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises((TypeError, ValueError)):
        rates_from({**asdict(Rates()), **wrong})


def test_rates_belong_to_the_gpus_only_where_there_are_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Gpu("A", 1, 2), Gpu("B", 3, 4)
    rates = Rates(gpus=((1.0, 2.0, 3.0), (4.0, 5.0, 6.0)))
    monkeypatch.setattr(limits, "gpus", lambda: (one, two))
    rated = this_machine("p", tmp_path, rates).gpus
    assert [gpu.copy_rate for gpu in rated] == [1.0, 4.0]
    assert [gpu.upload_rate for gpu in rated] == [3.0, 6.0]
    monkeypatch.setattr(limits, "gpus", lambda: (one,))
    assert this_machine("p", tmp_path, rates).gpus == (one,)


def test_a_profile_of_a_folder_that_is_yet_to_come(tmp_path: Path) -> None:
    found = this_machine("p", tmp_path / "not/yet")
    assert found.disk_free > 0
    assert found.cores > 0
    assert 0 < found.ram.available <= found.ram.total
    assert found.rates == Rates()


# The GPU report, which runs from end to end without a GPU.


def report(*arguments, cwd):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path.cwd())}
    command = [sys.executable, "-m", "engine.hardware.gpu_report", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


@NO_GPU
def test_without_a_device_it_says_so_in_one_sentence(tmp_path):
    found = report(cwd=tmp_path)
    assert found.returncode == 2
    assert found.stderr.startswith("no CUDA device")
    assert len(found.stderr.splitlines()) == 1


def test_a_small_report_is_whole(tmp_path):
    pytest.importorskip("triton", reason="triton is not installed: pip install 'slipstream[test]'")
    found = report("--smoke", "--json", "out.json", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    rows = {row["name"]: row for row in document["rows"]}
    assert document["smoke"] is True
    assert rows["plain decoding"]["value"] > 0
    assert rows["pass of 4 rows, static"]["value"] > 0
    judged = [row for name, row in rows.items() if name.startswith("verify ")]
    assert len(judged) == 3
    assert all("same verdict" in row["note"] for row in judged)
    assert len(found.stdout.splitlines()) == len(document["rows"])
