"""Downloads against a hub on real sockets: the good way, and what a person does meanwhile."""

import asyncio
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from app.errors import DownloadFailed
from app.models.catalog import read_record
from app.models.downloads.job import WINDOW, JobContext, State, TransferRate
from app.models.downloads.manifest import manifests_for
from app.models.downloads.queue import Downloads
from app.models.downloads.staging import INCOMPLETE, Space, unfinished
from app.models.hub.client import Hub
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

# --- the good way ---------------------------------------------------------------------------------


def test_a_model_arrives_whole_with_a_record_of_its_source(downloads, hub, models, stand_in):
    seen = run(downloads, order(hub))
    assert (seen.state, seen.done, seen.error) == (State.DONE, seen.total, None)
    check_whole(models, stand_in)
    record = read_record(models / "tiny")
    assert (record.name, record.licence) == ("tiny", "apache-2.0")
    assert record.source == f"org/tiny@{'c' * 40}"
    assert stand_in.sent[WEIGHTS] == 2 * MIB


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
    queue = Downloads(JobContext(hub, models, Space(models, reserve=0)), at_once=2)
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
    names = ("Q4/m.gguf", "Q4/empty.json", "deep/er/config.json")
    stand_in.repos["org/odd"] = Repo({name: Fixed(name.encode()) for name in names})
    stand_in.repos["org/odd"] = Repo({**stand_in.repos["org/odd"].files, names[1]: Fixed(b"")})
    orders = [manifests_for(hub, (), "org/odd", [name])[0] for name in names]
    files = tuple(file for made in orders for file in made.files)
    assert run(downloads, replace(orders[0], name="odd", files=files)).state is State.DONE
    # Loading looks for GGUF files at the top.
    assert (models / "odd" / "m.gguf").read_bytes() == b"Q4/m.gguf"
    assert (models / "odd" / "Q4" / "empty.json").read_bytes() == b""
    assert (models / "odd" / "deep" / "er" / "config.json").read_bytes() == b"deep/er/config.json"


# --- what a person does ---------------------------------------------------------------------------


def test_pause_keeps_what_arrived_and_resume_continues(downloads, hub, models, stand_in):
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


@pytest.mark.parametrize("paused", [False, True])
def test_cancel_deletes_what_arrived_and_it_can_be_asked_for_again(
    downloads, hub, models, stand_in, paused
):
    made = start_slow(downloads, hub, stand_in)
    if paused:
        downloads.pause("tiny")
        assert downloads.wait(5)
    downloads.cancel("tiny")
    assert downloads.wait(5)
    assert downloads.snapshots()[0].state is State.CANCELLED
    assert not list(unfinished(models))
    assert not (models / INCOMPLETE / "tiny").exists()
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
    again = Downloads(JobContext(Hub(stand_in.url), models, Space(models, reserve=0)))
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


def test_an_unknown_download_cannot_be_paused(downloads):
    with pytest.raises(DownloadFailed, match="there is no download of nobody"):
        downloads.pause("nobody")


# --- two at the same model ------------------------------------------------------------------------


def test_the_one_that_waits_takes_over_from_one_that_stops(downloads, hub, models, stand_in):
    made = start_slow(downloads, hub, stand_in)
    other = Downloads(JobContext(Hub(stand_in.url), models, Space(models, reserve=0)))
    other.add([made])
    wait_for(lambda: other.snapshots()[0].state is State.WAITING)
    downloads.pause("tiny")
    stand_in.rate = 0
    assert other.wait(20)
    check_whole(models, stand_in)
    other.close()


# --- what huggingface_hub has already -------------------------------------------------------------


@pytest.mark.parametrize("damaged", [False, True])
def test_whole_files_of_the_hubs_cache_are_linked(hub, models, tmp_path, stand_in, damaged):
    blobs = tmp_path / "cache" / "models--org--tiny" / "blobs"
    blobs.mkdir(parents=True)
    repo, file = stand_in.repos["org/tiny"], "model.safetensors"
    whole = b"".join(repo.files[file].pieces())
    (blobs / repo.digests[file][1]).write_bytes(bytes(2 * MIB) if damaged else whole)
    context = JobContext(hub, models, Space(models, reserve=0), (tmp_path / "cache",))
    queue = Downloads(context)
    assert run(queue, order(hub)).state is State.DONE
    check_whole(models, stand_in)
    assert bool(stand_in.fetched()) is damaged
    assert (models / "tiny" / file).stat().st_nlink == (1 if damaged else 2)
    queue.close()


# --- the process it runs in -----------------------------------------------------------------------


def test_no_thread_stays(hub, models, stand_in):
    before = threading.active_count()
    queue = Downloads(JobContext(hub, models, Space(models, reserve=0)))
    start_slow(queue, hub, stand_in)
    queue.close()
    assert threading.active_count() <= before + 2  # the stand-in's own


def test_nothing_is_imported_that_talks_by_itself():
    code = "import sys, app.models.downloads.queue; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & {"huggingface_hub", "torch", "transformers", "gradio"}


# --- speed and time left --------------------------------------------------------------------------


def test_speed_is_of_the_last_seconds_and_falls_while_nothing_arrives():
    now = [100.0]
    meter = TransferRate(lambda: now[0])
    assert (meter.speed(), meter.seconds_left(10)) == (0.0, None)
    for count, size in ((100, 50), (int(WINDOW) + 2, 200)):
        for _ in range(count):
            now[0] += 1
            meter.add(size)
        assert meter.speed() == pytest.approx(size)
        assert meter.seconds_left(10 * size) == pytest.approx(10)
    now[0] += 30
    assert meter.speed() < 200 / 2
