"""kill -9 at random moments of ten downloads: every file is right, and hardly a byte comes twice."""

import hashlib
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.models.hub.repository import PIECE
from tests.app.models.downloads.hub import Repo, StandInHub, model_files

ROOT = Path(__file__).parents[4]
MB = 1_000_000
COUNT, KILLS = 10, 12
PACE = 20 * MB  # bytes per second of a connection
# What the system has taken in and the process never saw is no byte that it had: a busy machine may
# hold megabytes of them, so its sockets are made small.
CHILD = """
import socket
import sys
from pathlib import Path
from app.models.downloads.job import JobContext
from app.models.downloads.manifest import manifests_for
from app.models.downloads.queue import Downloads
from app.models.downloads.job import State
from app.models.downloads.staging import Space
from app.models.hub.client import Hub
class Small(socket.socket):
    def connect(self, address):
        self.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        super().connect(address)
socket.socket = Small
hub, folder = Hub(sys.argv[1]), Path(sys.argv[2])
queue = Downloads(JobContext(hub, folder, Space(folder, 0)))
names = [f"m{number}" for number in range(int(sys.argv[3]))]
queue.add(manifests_for(hub, (), f"org/{name}")[0] for name in names if not (folder / name).exists())
queue.wait()
failed = [seen for seen in queue.snapshots() if seen.state is not State.DONE]
sys.exit(str(failed) if failed else 0)
"""


def start(stand_in: StandInHub, folder: Path) -> subprocess.Popen[str]:
    call = [sys.executable, "-c", CHILD, stand_in.url, str(folder), str(COUNT)]
    return subprocess.Popen(call, cwd=ROOT, text=True, stderr=subprocess.PIPE)


def kill_at(child: subprocess.Popen[str], stand_in: StandInHub, sent: int) -> None:
    """SIGKILL once the hub sent so many bytes, in whatever the process does then."""
    while sum(stand_in.sent.values()) < sent and child.poll() is None:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.communicate()


def arrived(folder: Path) -> set[int]:
    """Bytes of each model file that an ended process left unfinished."""
    return {part.stat().st_size for part in folder.rglob("model.safetensors.part")} - {0}


def sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@pytest.mark.parametrize("size", [20 * MB, pytest.param(200 * MB, marks=pytest.mark.slow)])
def test_ten_downloads_killed_at_random_moments(tmp_path, size):
    repos = {f"org/m{number}": Repo(model_files(number, size)) for number in range(COUNT)}
    draw = random.Random(14)
    moments = sorted(draw.randrange(COUNT * size) for _ in range(KILLS))
    with StandInHub(repos, rate=PACE).running() as stand_in:
        kept: set[int] = set()
        for moment in moments:
            kill_at(start(stand_in, tmp_path), stand_in, moment)
            kept |= arrived(tmp_path)
        with start(stand_in, tmp_path) as child:
            _, errors = child.communicate()
        assert child.returncode == 0, errors
        resumed = [request for request in stand_in.fetched() if request.range]
    for name, repo in repos.items():
        folder = tmp_path / name.removeprefix("org/")
        for file in ("config.json", "tokenizer.json", "model.safetensors"):
            assert sha256(folder / file) == repo.digests[file][1]
        again = stand_in.sent[f"{name}/model.safetensors"] - size
        assert 0 <= again < PIECE + size // 100
    assert len(resumed) >= KILLS, "the kills must have hit downloads under way"
    assert {int(request.range.strip("bytes=-")) for request in resumed} <= kept, "a kept byte came"
    twice = sum(stand_in.sent.values()) - COUNT * size
    sys.stdout.write(f"{twice} bytes came twice in {len(resumed)} resumed requests\n")
