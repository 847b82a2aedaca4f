"""A process that is killed while it writes loses no message that was reported as stored."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.history.store import History

ROOT = Path(__file__).parents[3]
WRITER = """
import sys
from pathlib import Path
from app.history.store import History

history = History.open(Path(sys.argv[1]))
chat = history.create_conversation("killed").id
answer, number = None, 0
while True:
    number += 1
    answer = history.add_message(chat, answer and answer.id, "assistant", "begun")
    for part in range(3):
        history.rewrite(answer.id, f"{number}.{part}")
        print(chat, answer.id, f"{number}.{part}", flush=True)
"""
AT_ONCE = 5  # databases, each killed several times: starting Python is what takes time


@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_lose_nothing(kills: int, tmp_path: Path) -> None:
    rng = random.Random(11)
    acknowledged = 0
    for _ in range(kills // AT_ONCE):
        running = []
        for number in range(AT_ONCE):
            command = [sys.executable, "-c", WRITER, str(tmp_path / f"{number}.db")]
            writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            running.append(writer)
        for writer in running:
            assert writer.stdout is not None
            assert writer.stdout.readline()
        time.sleep(rng.uniform(0, 0.1))
        for number, writer in enumerate(running):
            writer.kill()
            # what the kill cut off in the middle of a line was not acknowledged
            lines = writer.communicate()[0].splitlines(keepends=True)
            acknowledged += _check(tmp_path / f"{number}.db", lines)
    assert acknowledged > kills


def _check(database: Path, lines: list[str]) -> int:
    whole = [line.split() for line in lines if line.endswith("\n")]
    history = History.open(database)
    try:
        assert history.notice is None
        newest = {answer: text for _, answer, text in whole}
        chats = {chat for chat, _, _ in whole}
        kept = {one.id: one.content for chat in chats for one in history.tree(chat)}
        for answer, text in newest.items():
            number, part = text.split(".")
            later = {f"{number}.{more}" for more in range(int(part), 3)}
            assert kept[answer] in later
        return len(whole)
    finally:
        history.close()
