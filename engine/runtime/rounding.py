"""Whether, and how far, rounding moves logits between passes of one row and passes of many, seen at load."""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import cycle
from statistics import median
from time import perf_counter
from typing import Self

import torch
from torch import Tensor

from engine.interfaces.target import Target
from engine.platform.instructions import multiplies_bfloat16
from engine.request import SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.sampling import probabilities
from engine.speculation.top_k import top_k
from engine.speculation.tree import chain

SAFE = 2.0  # times the largest change that was seen
BEGIN, ROWS, SECONDS = (
    16,
    64,
    1.5,
)  # tokens that are read, tokens after them, and the time for those
WIDTHS = (8, 3, 16, 2, 5)  # rows of one pass after the other
LIKELY = 16  # tokens of each row that are compared: others are not chosen
TEXT = SamplingParams(
    1.0, top_p=0.9
)  # drawn, since greedy answers to nothing soon repeat themselves

# The first token of a text hides differences: most models give it states a hundred times as large.
PREFIX = 12  # tokens before the rows that are compared
ALONE = 8  # rows that are decoded one by one; wider passes are compared in their first ones
ALONE_SECONDS = 0.5  # after which no more rows are decoded alone, of a large model
STEP = 7919  # between two of the tokens: a prime, so that they are all over the vocabulary


def exact_or_usual(exact: bool | None, backend: str) -> bool:  # noqa: FBT001 - a field of a spec
    """What was asked for; else exact where it costs less than 5 % of the speed."""
    if exact is not None:
        return exact
    if multiplies_bfloat16() or backend != "llama_cpp":
        return multiplies_bfloat16()
    from engine.models.gguf.library import llama_library

    return llama_library().attends_alike


class RowComparison:
    """Compares passes with rows decoded one by one, on slot 0, which is empty before and after."""

    def __init__(self, target: Target) -> None:
        """Decode the rows alone; one of the tokens may be damaged, which its requests find out."""
        self._target = target
        self._prefix = self._tokens(0, min(PREFIX, target.context // 2))
        self.most = target.context - len(self._prefix)  # rows of a pass
        self.seconds: dict[int, float] = {}  # of the latest pass, by rows
        self._alone: list[Tensor] = []
        self._states: list[bytes] = []  # after each of these rows, as hashes

    def __enter__(self) -> Self:
        """Read the prefix of all passes, and decode the rows alone."""
        self._target.feed(0, self._prefix)
        started, alone = perf_counter(), list[float]()
        for token in self._tokens(len(self._prefix), min(ALONE, self.most)):
            self._alone.append(self._score([token])[0].clone())
            alone.append(self.seconds[1])
            self._target.commit(0, [0])
            self._states.append(self._state())
            if perf_counter() - started > ALONE_SECONDS:
                break
        self.seconds = {1: median(alone)}
        return self

    def __exit__(self, *_: object) -> None:
        """Empty the slot."""
        self._target.crop(0, 0)

    def equal(self, rows: int) -> bool:
        """Whether a pass of at most ``rows`` rows gave each compared row the bits that it has alone."""
        self._target.crop(0, len(self._prefix))
        logits = self._score(self._tokens(len(self._prefix), min(rows, self.most)))
        pairs = zip(self._alone, logits, strict=False)
        alike = all(torch.equal(alone.nan_to_num(), row.nan_to_num()) for alone, row in pairs)
        return alike and self._left_alike(len(logits))

    def _left_alike(self, rows: int) -> bool:
        """Rounded inputs hide differences from logits that a running state keeps."""
        if rows > len(self._alone):
            return True
        self._target.commit(0, range(rows))
        return self._state() == self._states[rows - 1]

    def _state(self) -> bytes:
        return blake2b(self._target.running_state(0)).digest()

    def _score(self, tokens: Sequence[int]) -> Tensor:
        started = perf_counter()
        (scores,) = self._target.score([0], [chain(tokens)])
        self.seconds[len(tokens)] = perf_counter() - started
        return torch.as_tensor(scores.logits)

    def _tokens(self, first: int, count: int) -> list[int]:
        return varied(self._target, first, count)


def varied(target: Target, first: int, count: int) -> list[int]:
    """Tokens from all over the vocabulary: equal ones would all go through the same experts."""
    return [at * STEP % target.vocab for at in range(first, first + count)]


def measured_margin(target: Target) -> float:
    """The largest change of the difference of two likely tokens' logits, times ``SAFE``; in logits.

    The same tokens are decoded one at a time, and in passes of many rows that also write the keys and
    values which later rows read. Slot 0 must be empty, and is afterwards.
    """
    tokens, alone = _one_at_a_time(target)
    many = _in_wide_passes(target, tokens)
    likely = top_k(alone, min(LIKELY, alone.shape[-1])).indices
    moved = (many - alone).gather(-1, likely)
    return SAFE * float((moved.amax(-1) - moved.amin(-1)).max())


def _begin(target: Target) -> None:
    target.crop(0, 0)
    target.feed(0, [(37 * i * i + 11 * i) % target.vocab for i in range(BEGIN)])


def _one_at_a_time(target: Target) -> tuple[list[int], Tensor]:
    """Tokens [n] that the target says itself, and its logits [n, V] after each."""
    _begin(target)
    chance, started = SeededRandom(0), perf_counter()
    tokens, rows = [0], list[Tensor]()
    while len(rows) < min(ROWS, target.context - BEGIN):
        if rows and perf_counter() - started > SECONDS:
            break
        rows.append(_scored(target, tokens[-1:])[0])
        tokens.append(chance.draw(probabilities(rows[-1], TEXT)))
    return tokens[:-1], torch.stack(rows)


def _in_wide_passes(target: Target, tokens: list[int]) -> Tensor:
    """The logits [n, V] of the same tokens."""
    _begin(target)
    rows, widths = list[Tensor](), cycle(WIDTHS)
    while len(rows) < len(tokens):
        rows += _scored(target, tokens[len(rows) : len(rows) + next(widths)])
    target.crop(0, 0)
    return torch.stack(rows)


def _scored(target: Target, tokens: list[int]) -> list[Tensor]:
    """Decode and keep these tokens: their logits [V], float32 on the CPU."""
    [scores] = target.score([0], [chain(tokens)])
    target.commit(0, range(len(tokens)))
    return list(scores.logits.float().cpu().clone())
