"""Which messages the model still sees once a conversation is longer than the context."""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil

from app.request import Message

AROUND = 8  # tokens that a template puts around a message; more comes out of the answer's share
ANSWER = 0.25  # share of the context that is kept free for the answer


def first_seen(messages: Sequence[Message], sizes: Sequence[int], context: int) -> int:
    """The index of the question that the visible part starts with; 0 where all is visible.

    ``sizes`` are the tokens of the messages. A system prompt is always visible. The oldest messages
    are dropped in steps of half the room: dropping one exchange at a time would change the start of
    every prompt, so that all of it is read again each time. The sizes alone decide where a step is,
    so what was dropped once stays dropped.
    """
    system = 1 if messages and messages[0].role == "system" else 0
    room = int((1 - ANSWER) * context) - sum(size + AROUND for size in sizes[:system])
    before = [0, *accumulate(size + AROUND for size in sizes[system:])]
    if before[-1] <= room or room <= 1:
        return 0
    step = room / 2
    least = ceil((before[-1] - room) / step) * step
    questions = [n for n in range(system, len(messages)) if messages[n].role == "user"]
    later = (n for n in questions if before[n - system] >= least)
    return next(later, questions[-1] if questions else 0)
