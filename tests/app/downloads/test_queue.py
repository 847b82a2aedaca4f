"""Downloads against a hub on real sockets: every fault, and what a person does meanwhile."""

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads.job import Surroundings
from app.downloads.order import Order, orders_for
from app.downloads.queue import Downloads
from app.downloads.snapshot import State
from app.downloads.space import Space
from app.downloads.staging import INCOMPLETE, Staging, unfinished
from app.errors import DiskFull, DownloadFailed
from app.hub.client import Hub
from app.model_record import read_record
from tests.app.downloads.hub import Content, Fixed, Repo, StandInHub, model_files

MIB = 1 << 20
WEIGHTS = "org/tiny/model.safetensors"


def order(hub: Hub, repo: str = "org/tiny") -> Order:
    return orders_for(hub, (), repo)[0]


def run(downloads: Downloads, made: Order):
    downloads.add([made])
    assert downloads.wait(30)
    return next(seen for seen in downloads.snapshots() if seen.name == made.name)


def wait_for(seen, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


def check_whole(models: Path, stand_in: StandInHub, repo: str = "org/tiny") -> None:
    """Every file is the hub's, nothing is left over, and only what a model needs came."""
    folder = models / repo.rpartition("/")[2]
    names = {"config.json", "tokenizer.json", "model.safetensors"}
    assert {file.name for file in folder.iterdir()} == {*names, "slipstream.json"}
    for name in names:
        data = (folder / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == stand_in.repos[repo].digests[name][1]
    assert not [
        file for file in (models / INCOMPLETE).rglob("*") if not file.name.endswith(".lock")
    ]


# --- the good way ---------------------------------------------------------------------------------


def test_a_model_arrives_whole_and_says_where_it_came_from(downloads, hub, models, stand_in):
    seen = run(downloads, order(hub))
    assert (seen.state, seen.done, seen.error) == (State.DONE, seen.total, None)
    check_whole(models, stand_in)
    record = read_record(models / "tiny")
    assert (record.name, record.licence) == ("tiny", "apache-2.0")
    assert record.source == f"org/tiny@{'c' * 40}"
    assert stand_in.sent[WEIGHTS] == 2 * MIB


def test_opening_a_queue_asks_nobody(downloads, stand_in):
    assert (stand_in.requests, downloads.snapshots()) == ([], ())


def test_progress_grows_to_the_total_with_speed_and_time_left(downloads, hub, stand_in):
    stand_in.rate = 3 * MIB
    made = order(hub)
    downloads.add([made])

    async def follow():
        return [seen[0] async for seen in downloads.follow(0.02)]

    seen = asyncio.run(follow())
    moving = [one for one in seen if one.state is State.DOWNLOADING]
    assert [one.done for one in seen] == sorted(one.done for one in seen)
    assert seen[-1].state is State.DONE
    assert seen[-1].share == 1
    assert any(0.3 * MIB < one.speed < 4 * MIB for one in moving)
    assert all(one.seconds_left is None or one.seconds_left < 60 for one in moving)
    assert {one.file for one in moving} >= {"model.safetensors"}


def test_several_at_once_and_the_rest_waits(hub, models, stand_in):
    for number in range(4):
        stand_in.repos[f"org/m{number}"] = Repo(model_files(number, MIB))
    stand_in.rate = 4 * MIB
    queue = Downloads(Surroundings(hub, models, Space(models, reserve=0)), at_once=2)
    queue.add([order(hub, f"org/m{number}") for number in range(4)])
    states = [seen.state for seen in queue.snapshots()]
    assert states[2:] == [State.QUEUED, State.QUEUED]
    most = 0
    while not queue.wait(0.01):
        most = max(most, sum(seen.state is State.DOWNLOADING for seen in queue.snapshots()))
    assert most == 2
    for number in range(4):
        check_whole(models, stand_in, f"org/m{number}")
    queue.close()


def test_folders_and_empty_files_of_a_repository(downloads, hub, models, stand_in):
    names = ("Q4/m.gguf", "Q4/empty.gguf", "deep/er/config.json")
    stand_in.repos["org/odd"] = Repo({name: Fixed(name.encode()) for name in names})
    stand_in.repos["org/odd"] = Repo({**stand_in.repos["org/odd"].files, names[1]: Fixed(b"")})
    orders = [orders_for(hub, (), "org/odd", [name])[0] for name in names]
    files = tuple(file for made in orders for file in made.files)
    assert run(downloads, replace(orders[0], name="odd", files=files)).state is State.DONE
    # Loading looks for GGUF files at the top.
    assert (models / "odd" / "m.gguf").read_bytes() == b"Q4/m.gguf"
    assert (models / "odd" / "empty.gguf").read_bytes() == b""
    assert (models / "odd" / "deep" / "er" / "config.json").read_bytes() == b"deep/er/config.json"


# --- faults ---------------------------------------------------------------------------------------

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
    ["drop 300000", "wrong bytes"],  # thrown away, and fetched anew once
]


@pytest.mark.parametrize("faults", HEALED, ids=lambda faults: ", ".join(faults)[:40])
def test_a_fault_that_passes_costs_time_only(downloads, hub, models, stand_in, faults):
    made = order(hub)
    stand_in.faults = list(faults)
    assert run(downloads, made).error is None
    check_whole(models, stand_in)
    assert stand_in.faults == []


def test_a_broken_connection_goes_on_where_it_broke(downloads, hub, stand_in):
    made = order(hub)
    stand_in.faults = ["drop 300000", "drop 500000"]
    run(downloads, made)
    asked = [request.range for request in stand_in.fetched()]
    assert asked == [None, "bytes=300000-", "bytes=800000-"]
    assert stand_in.sent[WEIGHTS] == 2 * MIB
    assert all(request.if_range for request in stand_in.fetched()[1:])


def test_a_changed_etag_starts_the_file_over(downloads, hub, models, stand_in):
    made = order(hub)
    stand_in.faults = ["drop 300000", "503"]
    downloads.add([made])
    wait_for(lambda: stand_in.sent[WEIGHTS] >= 300000)
    stand_in.etag_salt = "new"
    assert downloads.wait(20)
    check_whole(models, stand_in)


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


# --- what a person does ---------------------------------------------------------------------------


def start_slow(downloads, hub, stand_in) -> Order:
    made = order(hub)
    stand_in.rate = 2 * MIB
    downloads.add([made])
    wait_for(lambda: stand_in.sent[WEIGHTS] > 400_000)
    return made


def test_pause_keeps_what_arrived_and_resume_goes_on(downloads, hub, models, stand_in):
    start_slow(downloads, hub, stand_in)
    downloads.pause("tiny")
    assert downloads.snapshots()[0].state is State.PAUSED
    assert downloads.wait(5)
    assert downloads.snapshots()[0].done > 200_000
    time.sleep(0.3)  # what the sockets still held
    before = stand_in.sent[WEIGHTS]
    time.sleep(0.3)
    assert stand_in.sent[WEIGHTS] == before
    stand_in.rate = 0
    downloads.resume("tiny")
    assert downloads.wait(20)
    check_whole(models, stand_in)
    assert stand_in.sent[WEIGHTS] < 2 * MIB + 300_000


def test_cancel_takes_away_what_arrived(downloads, hub, models, stand_in):
    start_slow(downloads, hub, stand_in)
    downloads.cancel("tiny")
    assert downloads.wait(5)
    assert downloads.snapshots()[0].state is State.CANCELLED
    assert not list(unfinished(models))
    assert not (models / INCOMPLETE / "tiny").exists()


def test_cancel_of_a_paused_one_and_asking_again(downloads, hub, models, stand_in):
    made = start_slow(downloads, hub, stand_in)
    downloads.pause("tiny")
    assert downloads.wait(5)
    downloads.cancel("tiny")
    assert not list(unfinished(models))
    stand_in.rate = 0
    assert run(downloads, made).state is State.DONE


def test_quick_changes_of_mind_end_well(downloads, hub, models, stand_in):
    made = start_slow(downloads, hub, stand_in)
    stand_in.rate = 0
    for _ in range(5):
        downloads.pause("tiny")
        downloads.resume("tiny")
    downloads.cancel("tiny")
    downloads.add([made])
    assert downloads.wait(20)
    check_whole(models, stand_in)


def test_a_new_queue_knows_the_unfinished_and_waits_for_a_person(downloads, hub, models, stand_in):
    start_slow(downloads, hub, stand_in)
    downloads.close()
    asked = len(stand_in.requests)
    again = Downloads(Surroundings(Hub(stand_in.url), models, Space(models, reserve=0)))
    [seen] = again.snapshots()
    assert (seen.name, seen.state) == ("tiny", State.PAUSED)
    assert seen.done > 200_000
    time.sleep(0.2)
    assert len(stand_in.requests) == asked
    stand_in.rate = 0
    again.resume("tiny")
    assert again.wait(20)
    check_whole(models, stand_in)
    assert stand_in.fetched()[-1].range is not None
    again.close()


def test_what_nobody_started_cannot_be_paused(downloads):
    with pytest.raises(DownloadFailed, match="there is no download of nobody"):
        downloads.pause("nobody")


# --- two at the same model ------------------------------------------------------------------------


def test_two_queues_on_one_model_fetch_it_once(downloads, hub, models, stand_in):
    made = start_slow(downloads, hub, stand_in)
    other = Downloads(Surroundings(Hub(stand_in.url), models, Space(models, reserve=0)))
    other.add([made])
    wait_for(lambda: other.snapshots()[0].state is State.WAITING)
    with pytest.raises(DownloadFailed, match="by another process"):
        Staging(models, "tiny").discard_unlocked()
    stand_in.rate = 0
    assert other.wait(20)
    assert downloads.wait(20)
    assert {queue.snapshots()[0].state for queue in (downloads, other)} == {State.DONE}
    check_whole(models, stand_in)
    assert stand_in.sent[WEIGHTS] == 2 * MIB
    other.close()


def test_the_one_that_waits_takes_over_from_one_that_stops(downloads, hub, models, stand_in):
    made = start_slow(downloads, hub, stand_in)
    other = Downloads(Surroundings(Hub(stand_in.url), models, Space(models, reserve=0)))
    other.add([made])
    wait_for(lambda: other.snapshots()[0].state is State.WAITING)
    downloads.pause("tiny")
    stand_in.rate = 0
    assert other.wait(20)
    check_whole(models, stand_in)
    other.close()


# --- the disk -------------------------------------------------------------------------------------


def test_too_little_room_is_told_before_the_first_byte(hub, models, stand_in):
    made = order(hub)
    queue = Downloads(Surroundings(hub, models, Space(models, 1_000_000, lambda folder: 2_500_000)))
    with pytest.raises(DiskFull, match=r"tiny needs 2.1 MB more and 1.0 MB stay free") as caught:
        queue.add([made])
    assert "has 2.5 MB; make room for 597.2 kB" in str(caught.value)
    assert stand_in.fetched() == []
    assert not list(models.iterdir())


def test_the_room_of_everything_in_the_queue_counts(hub, models, stand_in):
    stand_in.rate = MIB
    stand_in.repos["org/second"] = Repo(model_files(2, 2 * MIB))
    queue = Downloads(Surroundings(hub, models, Space(models, 0, lambda folder: 3_000_000)))
    queue.add([order(hub)])
    with pytest.raises(DiskFull, match="second needs"):
        queue.add([order(hub, "org/second")])
    queue.close()


def test_room_that_vanishes_meanwhile_pauses_it(hub, models, stand_in, monkeypatch):
    monkeypatch.setattr("app.downloads.job.CHECK_EVERY", 500_000)
    left = iter([9_000_000] * 3)
    space = Space(models, 0, lambda folder: next(left, 1000))
    queue = Downloads(Surroundings(hub, models, space))
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
        queue = Downloads(Surroundings(hub, disk, Space(disk, 0, lambda folder: 10 * MIB)))
        seen = run(queue, order(hub))
        assert seen.state is State.FAILED
        assert f"the disk of {disk}" in seen.error
        assert "of 2.1 MB, which is kept; make room and resume" in seen.error
        assert seen.done > MIB
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        queue.resume("tiny")
        assert queue.wait(20)
        check_whole(disk, stand_in)
        assert stand_in.sent[WEIGHTS] < 2 * MIB + MIB
        queue.close()
    finally:
        subprocess.run(["umount", disk], check=True)


# --- what huggingface_hub has already -------------------------------------------------------------


def cached(tmp_path: Path, stand_in: StandInHub, data: bytes | None = None) -> Path:
    cache = tmp_path / "cache"
    blobs = cache / "models--org--tiny" / "blobs"
    blobs.mkdir(parents=True)
    content: Content = stand_in.repos["org/tiny"].files["model.safetensors"]
    whole = b"".join(content.pieces())
    name = stand_in.repos["org/tiny"].digests["model.safetensors"][1]
    (blobs / name).write_bytes(whole if data is None else data)
    return cache


def test_files_of_the_hubs_cache_are_linked(hub, models, tmp_path, stand_in):
    cache = cached(tmp_path, stand_in)
    queue = Downloads(Surroundings(hub, models, Space(models, reserve=0), cache))
    assert run(queue, order(hub)).state is State.DONE
    check_whole(models, stand_in)
    assert stand_in.fetched() == []
    assert (models / "tiny" / "model.safetensors").stat().st_nlink == 2
    queue.close()


def test_a_damaged_file_of_the_cache_is_downloaded(hub, models, tmp_path, stand_in):
    cache = cached(tmp_path, stand_in, bytes(2 * MIB))
    queue = Downloads(Surroundings(hub, models, Space(models, reserve=0), cache))
    assert run(queue, order(hub)).state is State.DONE
    check_whole(models, stand_in)
    queue.close()


# --- left-overs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("journal", ["", "{", "[]", '{"digest": "other"}'])
def test_a_part_that_belongs_to_nothing_known_is_not_used(
    downloads, hub, models, stand_in, journal
):
    made = order(hub)
    staging = Staging(models, "tiny")
    staging.write(made)
    (staging.files / "model.safetensors.part").write_bytes(b"other" * 1000)
    (staging.files / "model.safetensors.part.json").write_text(journal)
    assert run(downloads, made).state is State.DONE
    check_whole(models, stand_in)


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


def test_a_part_with_damaged_bytes_is_fetched_anew(downloads, hub, models, stand_in):
    made = start_slow(downloads, hub, stand_in)
    downloads.pause("tiny")
    assert downloads.wait(5)
    part = Staging(models, "tiny").files / "model.safetensors.part"
    part.write_bytes(bytes(part.stat().st_size))
    stand_in.rate = 0
    assert run(downloads, made).state is State.DONE
    check_whole(models, stand_in)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"name": "tiny", "files": [1]}'])
def test_a_damaged_order_is_not_offered(models, text):
    folder = Staging(models, "tiny").folder
    folder.mkdir(parents=True)
    (folder / "order.json").write_text(text)
    assert list(unfinished(models)) == []


def test_no_thread_stays(hub, models, stand_in):
    before = threading.active_count()
    queue = Downloads(Surroundings(hub, models, Space(models, reserve=0)))
    start_slow(queue, hub, stand_in)
    queue.close()
    assert threading.active_count() <= before + 2  # the stand-in's own


def test_nothing_is_imported_that_talks_by_itself():
    code = "import sys, app.downloads.queue; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & {"huggingface_hub", "torch", "transformers", "gradio"}
