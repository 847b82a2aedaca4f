"""Which messages of a conversation the model still sees, once it has outgrown the context."""

from collections.abc import Sequence
from itertools import accumulate
from math import ceil

from app.request import Message

AROUND = 8  # tokens that a template puts around a message; more is taken from the answer's room
ANSWER = 0.25  # of the context, that is kept free for the answer


def first_seen(messages: Sequence[Message], sizes: Sequence[int], context: int) -> int:
    """The place of the question that the model's view begins with; 0: it sees all.

    ``sizes`` are the messages' tokens. A system prompt in front is always seen. The oldest go in
    steps of half of what there is room for: were it one exchange for every new one, each prompt
    would begin differently, and all of it had to be read anew each time. Where a step falls is told
    by the sizes alone, so what was once left out is not asked about again.
    """
    told = 1 if messages and messages[0].role == "system" else 0
    room = int((1 - ANSWER) * context) - sum(size + AROUND for size in sizes[:told])
    before = [0, *accumulate(size + AROUND for size in sizes[told:])]
    if before[-1] <= room or room <= 1:
        return 0
    step = room / 2
    least = ceil((before[-1] - room) / step) * step
    questions = [n for n in range(told, len(messages)) if messages[n].role == "user"]
    later = (n for n in questions if before[n - told] >= least)
    return next(later, questions[-1] if questions else 0)
