"""Downloads that meet a bad network, a full disk, or what is left of earlier ones."""

import hashlib
import os
import subprocess

import pytest

from app.errors import DiskFull
from app.models.downloads.job import JobContext, State
from app.models.downloads.queue import Downloads
from app.models.downloads.staging import Space, Staging, unfinished
from tests.app.models.downloads.hub import Fixed, Repo, model_files
from tests.app.models.downloads.queueing import (
    MIB,
    WEIGHTS,
    check_whole,
    order,
    run,
    start_slow,
    wait_for,
)

# --- the network ----------------------------------------------------------------------------------

HEALED = [
    ["drop 300000"],
    ["drop 300000", "drop 1", "drop 700000"],
    ["drop 0"] * 6,
    ["503", "429", "500"],
    ["drop 300000", "403"],  # a signed address that expired
    ["drop 300000", "ignore range"],
    ["drop 300000", "wrong range"],
    ["drop 300000", "416"],
    ["gzip"],
    ["extra"],
    ["stall"],
    ["unsized"],
    ["early 300000", "early 0", "early 1"],
    ["drop 300000", "wrong bytes"],  # thrown away, and fetched again once
]


@pytest.mark.parametrize("faults", HEALED, ids=lambda faults: ", ".join(faults)[:40])
def test_a_fault_that_passes_costs_time_only(downloads, hub, models, stand_in, faults):
    made = order(hub)
    stand_in.faults = list(faults)
    assert run(downloads, made).error is None
    check_whole(models, stand_in)
    assert stand_in.faults == []


def test_a_broken_connection_continues_where_it_broke(downloads, hub, stand_in):
    made = order(hub)
    stand_in.faults = ["drop 300000", "drop 500000"]
    run(downloads, made)
    asked = [request.range for request in stand_in.fetched()]
    assert asked == [None, "bytes=300000-", "bytes=800000-"]
    assert stand_in.sent[WEIGHTS] == 2 * MIB


def test_too_many_failures_in_a_row_end_it_and_it_can_be_resumed(downloads, hub, models, stand_in):
    made = order(hub)
    stand_in.faults = ["drop 300000"] + ["503"] * 8
    seen = run(downloads, made)
    assert seen.state is State.FAILED
    assert "answered with status 503" in seen.error
    assert "kept, resume" in seen.error
    assert not (models / "tiny").exists()
    downloads.resume("tiny")
    assert downloads.wait(20)
    check_whole(models, stand_in)
    assert stand_in.sent[WEIGHTS] == 2 * MIB


def test_answers_that_end_well_but_early_are_not_asked_for_without_end(downloads, hub, stand_in):
    """An empty 206 was asked for again at once, 48,016 times in minutes, and nothing stopped it."""
    made = order(hub)
    stand_in.faults = ["early 300000"] + ["early 0"] * 20
    seen = run(downloads, made)
    assert seen.state is State.FAILED
    assert "the answer ended early, after 300000 of 2097152 bytes" in seen.error
    assert len(stand_in.fetched()) == 8


def test_a_download_whose_answers_end_early_can_be_paused(downloads, hub, stand_in, monkeypatch):
    monkeypatch.setattr("app.models.downloads.fetch.TRIES", 10**6)
    made = order(hub)
    stand_in.faults = ["early 300000"] + ["early 0"] * 5000
    downloads.add([made])
    wait_for(lambda: len(stand_in.fetched()) > 2)
    downloads.pause("tiny")
    assert downloads.wait(3)
    assert downloads.snapshots()[0].state is State.PAUSED


def test_wrong_bytes_are_never_visible_and_both_digests_are_named(downloads, hub, models, stand_in):
    made = order(hub)
    stand_in.faults = ["wrong bytes"]
    seen = run(downloads, made)
    assert seen.state is State.FAILED
    assert stand_in.repos["org/tiny"].digests["model.safetensors"][1] in seen.error
    assert hashlib.sha256(bytes(2 * MIB)).hexdigest() in seen.error
    assert not (models / "tiny").exists()
    assert not list(models.rglob("model.safetensors"))
    downloads.resume("tiny")
    assert downloads.wait(20)
    check_whole(models, stand_in)


def test_small_files_are_checked_too(downloads, hub, models, stand_in):
    made = order(hub)
    size = next(file.size for file in made.files if file.name == "config.json")
    for data, said in ((b"x" * (size - 2), "the hub lists"), (b"x" * size, "git digest")):
        stand_in.repos["org/tiny"].files["config.json"] = Fixed(data)
        assert said in run(downloads, made).error
    assert not (models / "tiny").exists()


def test_a_length_that_the_hub_did_not_list_is_refused(downloads, hub, stand_in):
    made = order(hub)
    stand_in.faults = ["short length"]
    assert "sends 2097151 bytes as model.safetensors" in run(downloads, made).error


# --- the disk -------------------------------------------------------------------------------------


def test_too_little_room_is_reported_before_the_first_byte(hub, models, stand_in):
    made = order(hub)
    queue = Downloads(JobContext(hub, models, Space(models, 1_000_000, lambda folder: 2_500_000)))
    with pytest.raises(
        DiskFull, match=r"tiny needs 2.0 MiB more and 976.6 KiB stay free"
    ) as caught:
        queue.add([made])
    assert "has 2.4 MiB; make room for 583.2 KiB" in str(caught.value)
    assert stand_in.fetched() == []
    assert not list(models.iterdir())


def test_the_room_of_everything_in_the_queue_counts(hub, models, stand_in):
    stand_in.rate = MIB
    stand_in.repos["org/second"] = Repo(model_files(2, 2 * MIB))
    queue = Downloads(JobContext(hub, models, Space(models, 0, lambda folder: 3_000_000)))
    queue.add([order(hub)])
    with pytest.raises(DiskFull, match="second needs"):
        queue.add([order(hub, "org/second")])
    queue.close()


def test_room_that_vanishes_meanwhile_pauses_it(hub, models, stand_in, monkeypatch):
    monkeypatch.setattr("app.models.downloads.job.CHECK_EVERY", 500_000)
    left = iter([9_000_000] * 3)
    space = Space(models, 0, lambda folder: next(left, 1000))
    queue = Downloads(JobContext(hub, models, space))
    made = order(hub)
    seen = run(queue, made)
    assert seen.state is State.FAILED
    assert "stay free" in seen.error
    assert 0 < Staging(models, "tiny").remaining(made) < 2 * MIB
    queue.close()


@pytest.mark.skipif(os.getuid() != 0, reason="mounting a small disk takes root")
def test_a_disk_that_is_really_full(hub, tmp_path, stand_in):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1500k", "none", disk], check=False
    )
    if mounted.returncode:
        pytest.skip("no right to mount here")
    try:
        queue = Downloads(JobContext(hub, disk, Space(disk, 0, lambda folder: 10 * MIB)))
        seen = run(queue, order(hub))
        assert seen.state is State.FAILED
        assert f"the disk of {disk}" in seen.error
        assert "of 2.0 MiB, which is kept; make room and resume" in seen.error
        assert seen.done > MIB
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        queue.resume("tiny")
        assert queue.wait(20)
        check_whole(disk, stand_in)
        assert stand_in.sent[WEIGHTS] < 2 * MIB + MIB
        queue.close()
    finally:
        subprocess.run(["umount", disk], check=True)


# --- left-overs -----------------------------------------------------------------------------------


def test_files_of_another_commit_do_not_stay(downloads, hub, models, stand_in):
    """A file that changed without changing its size was taken for the new one."""
    made = start_slow(downloads, hub, stand_in)
    downloads.pause("tiny")
    assert downloads.wait(5)
    stand_in.repos["org/tiny"] = Repo(model_files(2, 2 * MIB))
    staging = Staging(models, "tiny")
    (staging.files / "config.json").write_bytes(
        b"x" * sum(file.size for file in made.files if file.name == "config.json")
    )
    stand_in.rate = 0
    assert run(downloads, order(hub)).state is State.DONE
    check_whole(models, stand_in)


@pytest.mark.parametrize("size", [300_000, 2 * MIB, 2 * MIB + 1])
def test_a_part_with_damaged_bytes_is_fetched_again(downloads, hub, models, stand_in, size):
    made = order(hub)
    staging = Staging(models, "tiny")
    staging.write(made)
    (staging.files / "model.safetensors.part").write_bytes(bytes(size))
    assert run(downloads, made).state is State.DONE
    check_whole(models, stand_in)


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_files_without_a_readable_order_do_not_become_part_of_the_model(
    downloads, hub, models, stand_in, text
):
    staging = Staging(models, "tiny")
    staging.files.mkdir(parents=True)
    (staging.files / "stranger.safetensors").write_bytes(b"other")
    if text is not None:
        (staging.folder / "order.json").write_text(text)
    assert run(downloads, order(hub)).state is State.DONE


def test_leftovers_of_a_download_killed_at_its_very_end_are_removed(
    downloads, hub, models, stand_in
):
    made = order(hub)
    run(downloads, made)
    Staging(models, "tiny").write(made)
    assert run(downloads, made).state is State.DONE
    check_whole(models, stand_in)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "tiny", "files": [1]}'])
def test_a_damaged_order_is_not_offered(models, text):
    folder = Staging(models, "tiny").folder
    folder.mkdir(parents=True)
    (folder / "order.json").write_text(text)
    assert list(unfinished(models)) == []
