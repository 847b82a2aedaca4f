"""Whether each row of a pass has the bits that it has alone, seen on a few tokens when a model is loaded."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.interfaces.target import Target
from engine.speculation.sampling import check_finite
from engine.speculation.tree import chain

# The first token of a text hides differences: most models give it states a hundred times as large.
PREFIX = 12  # tokens before the rows that are compared
ALONE = 8  # rows that are decoded one by one; wider passes are compared in their first ones
ALONE_SECONDS = 0.5  # after which no more rows are decoded alone, of a large model
STEP = 7919  # between two of the tokens: a prime, so that they are all over the vocabulary


class RowComparison:
    """Compares passes with rows decoded one by one, on slot 0, which is empty before and after."""

    def __init__(self, target: Target) -> None:
        """Decode the rows alone; raises NumericalError for logits that are not finite."""
        self._target = target
        self._prefix = self._tokens(0, min(PREFIX, target.context // 2))
        self.most = target.context - len(self._prefix)  # rows of a pass
        self._alone: list[Tensor] = []
        target.feed(0, self._prefix)
        started = time.perf_counter()
        for token in self._tokens(len(self._prefix), min(ALONE, self.most)):
            self._alone.append(self._score([token])[0].clone())
            target.commit(0, [0])
            if time.perf_counter() - started > ALONE_SECONDS:
                break
        target.crop(0, 0)

    def equal(self, rows: int) -> bool:
        """Whether a pass of at most so many rows gave each compared row the bits that it has alone."""
        self._target.feed(0, self._prefix)
        logits = self._score(self._tokens(len(self._prefix), min(rows, self.most)))
        self._target.crop(0, 0)
        pairs = zip(self._alone, logits, strict=False)
        return all(torch.equal(alone, row) for alone, row in pairs)

    def _score(self, tokens: Sequence[int]) -> Tensor:
        (scores,) = self._target.score([0], [chain(tokens)])
        check_finite(scores.logits[-1].amax())
        return torch.as_tensor(scores.logits)

    def _tokens(self, first: int, count: int) -> list[int]:
        return [at * STEP % self._target.vocab for at in range(first, first + count)]
