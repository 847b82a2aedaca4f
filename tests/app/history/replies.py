"""What fills a history: replies with defaults that make sense, and years of conversations."""

import random
import sqlite3
from contextlib import closing
from dataclasses import replace

from app.history.records import Conditions
from app.history.search import teach
from app.history.store import History
from app.history.task_class import TaskClass, TemperatureClass
from engine.request import DepthCount, DrafterRun, Stats

CHAT = Conditions(
    model="pocket",
    draft="pocket-draft",
    machine="a processor, 2 cores, cpu, float32",
    temperature=TemperatureClass.GREEDY,
    task=TaskClass.CHAT,
)
EDIT = replace(CHAT, task=TaskClass.EDIT)


def run(
    drafter: str = "chain",
    depths: tuple[tuple[int, int], ...] = ((20, 15), (15, 9)),
    *,
    pace: float = 2.0,
    shares: tuple[float, ...] = (),
    share_weight: float = 0.0,
) -> DrafterRun:
    """Every pass drafts; the target adds a token to what it accepts."""
    passes, accepted = (depths[0][0] if depths else 20), sum(hits for _, hits in depths)
    emitted = passes + accepted
    return DrafterRun(
        drafter=drafter,
        passes=passes,
        emitted=emitted,
        drafted=4 * passes if depths else 0,
        accepted=accepted,
        seconds=emitted / 100 / pace,
        plain_seconds=emitted / 100,
        depths=tuple(DepthCount(*pair) for pair in depths),
        shares=shares,
        share_weight=share_weight,
    )


def stats(
    drafter: str = "auto",
    runs: tuple[DrafterRun, ...] = (),
) -> Stats:
    return Stats(
        drafter=drafter,
        why="the prompt repeats itself",
        prompt_tokens=40,
        cached_tokens=8,
        emitted=30,
        passes=10,
        drafted=50,
        accepted=20,
        depths=(),
        prompt_seconds=0.25,
        decode_seconds=1.5,
        runs=runs,
    )


MESSAGES = 10  # of each conversation
ROLES = ("user", None), ("assistant", "stop")
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in "klmnrst"]


def fill(history: History, conversations: int) -> None:
    """Conversations c0, c1, ... of ten messages with thirty words each."""
    rng = random.Random(7)
    texts = [" ".join(rng.choices(WORDS, k=30)) for _ in range(2000)]
    with closing(sqlite3.connect(history.upkeep.path)) as database, database:
        teach(database)
        database.executemany(
            "INSERT INTO conversations(id, title, created, touched) VALUES (?, ?, '2026', ?)",
            ((f"c{n}", " ".join(rng.choices(WORDS, k=4)), n) for n in range(conversations)),
        )
        database.executemany(
            "INSERT INTO messages(id, conversation, parent, role, finish_reason, content)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (
                (
                    f"m{n}-{k}",
                    f"c{n}",
                    f"m{n}-{k - 1}" if k else None,
                    *ROLES[k % 2],
                    rng.choice(texts),
                )
                for n in range(conversations)
                for k in range(MESSAGES)
            ),
        )
