"""Predicted outputs: how much of a prediction the answer has."""

from collections.abc import Sequence

from app.request import PredictionUsage


def compared(prediction: Sequence[int], answer: Sequence[int]) -> PredictionUsage:
    """How many tokens of ``prediction`` are in ``answer`` in the same order, and how many are not.

    The longest common subsequence, with one bit for each position of the prediction (Hyyro 2004): a
    thousand tokens against a thousand take a millisecond, 32 thousand a quarter second.
    """
    places: dict[int, int] = {}
    for at, token in enumerate(prediction):
        places[token] = places.get(token, 0) | 1 << at
    every = (1 << len(prediction)) - 1
    open_ = every  # a bit is cleared where one more token is matched
    for token in answer:
        here = open_ & places.get(token, 0)
        open_ = (open_ + here | open_ - here) & every
    accepted = len(prediction) - open_.bit_count()
    return PredictionUsage(accepted, len(prediction) - accepted)
