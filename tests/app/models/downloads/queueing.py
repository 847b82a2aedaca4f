"""What tests of the queue start, wait for, and find at the end."""

import hashlib
import time
from pathlib import Path

from app.models.downloads.manifest import Manifest, manifests_for
from app.models.downloads.queue import Downloads
from app.models.downloads.staging import INCOMPLETE
from app.models.hub.client import Hub
from tests.app.models.downloads.hub import StandInHub

MIB = 1 << 20
WEIGHTS = "org/tiny/model.safetensors"


def order(hub: Hub, repo: str = "org/tiny") -> Manifest:
    return manifests_for(hub, (), repo)[0]


def run(downloads: Downloads, made: Manifest):
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


def start_slow(downloads, hub, stand_in) -> Manifest:
    made = order(hub)
    stand_in.rate = 2 * MIB
    downloads.add([made])
    wait_for(lambda: stand_in.sent[WEIGHTS] > 400_000)
    return made
