"""Samples as token ids with loss weights, packed into rows of one length."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import torch
from tokenizers import Tokenizer
from torch import Tensor

from engine.training.chores import draw_chore, is_held_out
from engine.training.dialogues import Turn, small_talk, unknown
from engine.training.own_answers import Answer
from engine.training.passages import Passages, Problem
from engine.training.tokenizer import ASSISTANT, BOS, END, USER, token_id

QUESTION_WEIGHT = 0.0  # with loss on the prompts the model did not learn to copy
SOURCE_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Sample:
    """One document: ids [T] and the loss weight of each as a prediction [T]."""

    ids: list[int]
    weights: list[float]


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch of packed rows, tokens [B, T] int64 and weights [B, T] float32."""

    tokens: Tensor
    weights: Tensor


@dataclass(frozen=True, slots=True)
class Mixture:
    """Relative frequency of each kind of sample."""

    problem: float = 0.16
    chore: float = 0.70
    talk: float = 0.09
    source: float = 0.02
    copying: float = 0.03  # repeated random tokens, so that copying is learnt early
    own: float = 0.0  # answers that the teacher wrote


class Corpus:
    """Endless shuffled samples; draws are a function of the seed alone."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        problems: Sequence[Problem],
        passages: Passages,
        seed: int,
        own: Sequence[Answer] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._problems = problems
        self._passages = passages
        self._own_answers = own
        self._rng = Random(seed)
        self._special = {name: token_id(tokenizer, name) for name in (BOS, USER, ASSISTANT, END)}

    def rows(self, mixture: Mixture, batch: int, length: int) -> Rows:
        """``batch`` rows of ``length`` tokens; each row starts with a whole sample."""
        packed = [self._pack(self._samples(mixture), length) for _ in range(batch)]
        return Rows(
            torch.tensor([s.ids for s in packed]), torch.tensor([s.weights for s in packed])
        )

    def _pack(self, samples: Iterator[Sample], length: int) -> Sample:
        ids: list[int] = []
        weights: list[float] = []
        while len(ids) < length:
            sample = next(samples)
            ids += sample.ids
            weights += sample.weights
        return Sample(ids[:length], weights[:length])

    def _samples(self, mixture: Mixture) -> Iterator[Sample]:
        kinds = {
            self._problem: mixture.problem,
            self._chores: mixture.chore,
            self._talk: mixture.talk,
            self._source: mixture.source,
            self._copying: mixture.copying,
            self._own: mixture.own,
        }
        while True:
            yield self._rng.choices(tuple(kinds), tuple(kinds.values()))[0]()

    def _problem(self) -> Sample:
        problem = self._rng.choice(self._problems)
        return self.conversation([(problem.question, problem.answer)], QUESTION_WEIGHT)

    def _chores(self) -> Sample:
        return self.conversation([self._chore() for _ in range(self._rng.choice((1, 1, 1, 2, 3)))])

    def _chore(self) -> Turn:
        while True:
            chore = draw_chore(self._rng, self._passages)
            if not is_held_out(chore.prompt):
                return chore.prompt, chore.answer

    def _talk(self) -> Sample:
        turns = [small_talk(self._rng) if self._rng.random() < 0.6 else unknown(self._rng)]
        if self._rng.random() < 0.3:
            turns.append(self._chore())
        if self._rng.random() < 0.2:
            turns.append(small_talk(self._rng))
        return self.conversation(turns)

    def _source(self) -> Sample:
        text = self._rng.choice(self._passages.sources)
        start = self._rng.randrange(max(1, len(text) - 2000))
        ids = self._tokenizer.encode(text[start : start + 2000]).ids
        return Sample(ids, [SOURCE_WEIGHT] * len(ids))

    def _copying(self) -> Sample:
        drawn = [self._rng.randrange(6, self._tokenizer.get_vocab_size()) for _ in range(40)]
        drawn = drawn[: self._rng.randint(8, 40)]
        return self._joined([(drawn, drawn)], 0.0)

    def _own(self) -> Sample:
        drawn = self._rng.choice(self._own_answers)
        weights = [0.0] * len(drawn.prompt) + [1.0] * len(drawn.answer)
        return Sample([*drawn.prompt, *drawn.answer], weights)

    def conversation(self, turns: Sequence[Turn], prompt_weight: float = 0.0) -> Sample:
        """Turns in the chat template; answers and their end tokens weigh 1."""
        encode = self._tokenizer.encode
        return self._joined([(encode(said).ids, encode(reply).ids) for said, reply in turns],
                            prompt_weight)  # fmt: skip

    def prompt(self, question: str) -> tuple[int, ...]:
        """The chat template up to where the answer begins."""
        return tuple(self.conversation([(question, "")]).ids[:-1])

    def _joined(self, turns: Sequence[tuple[list[int], list[int]]], prompt_weight: float) -> Sample:
        mark = self._special
        ids, weights = [mark[BOS]], [0.0]
        for said, reply in turns:
            ids += [mark[USER], *said, mark[END], mark[ASSISTANT], *reply, mark[END]]
            weights += [0.0] + [prompt_weight] * len(said) + [0.0, 0.0] + [1.0] * (len(reply) + 1)
        return Sample(ids, weights)
