"""What acceptance heads learn from: drafts behind the target's own answers, each token judged.

The paper lets the draft model read answers in which each token was replaced by a drafted one with
chance 1 - 0.15, so that its states resemble those behind drafted tokens. Here drafts start from the
target's own text with chance 0.25 at each token and run on as they do when decoding: the states are
those that will be judged, and no label belongs to another context than its state.

Each prompt is answered twice, greedily and at temperature 1, and drafted for in the three ways in
which requests run: greedy; sampled with drawn candidates; seeded, with chosen candidates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor

from engine.build import load
from engine.draft_length.acceptance_head import Kind
from engine.errors import ModelUnusable
from engine.interfaces.target import Rows, Target
from engine.request import ModelSpec, SamplingParams
from engine.speculation.tree import DraftTree
from engine.training.own_answers import Asked, plain_answers

KINDS = (Kind(drawn=False, greedy=True), Kind(drawn=True, greedy=False), Kind(drawn=False, greedy=False))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what comes out, apart from models and prompts."""

    minutes: float = 20.0
    answer_tokens: int = 96
    start_share: float = 0.25  # of an answer's tokens start a draft; the paper's r is 0.15
    draft_tokens: int = 8
    reject_weight: float = 6.0  # the paper's w
    depth: int = 1  # the paper's D, 3 there
    epochs: int = 3
    batch: int = 512
    learning_rate: float = 2e-3
    warmup_share: float = 0.03
    together: int = 16  # prompts that are answered in one batch, and written in one file
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """The models, and the tokens that end an answer."""

    target: Target
    draft: Target
    stop_tokens: frozenset[int]


def load_pair(spec: ModelSpec, stop_tokens: frozenset[int]) -> Pair:
    """Load both models; raises ModelUnusable when they cannot work together."""
    parts, why_not = load(spec)
    if parts.draft_model is None:
        raise ModelUnusable(f"no head can be trained for {spec.name}: {why_not}")
    return Pair(parts.target, parts.draft_model, stop_tokens)


@dataclass(frozen=True, slots=True)
class Judged:
    """Drafted tokens with what the head may read and what it should say, [n] each."""

    states: Tensor  # [n, C] float16: proposed the token
    evidence: Tensor  # [n, 4]
    accepted: Tensor  # the label, 0 to 1
    reached: Tensor  # chance that verification gets there
    prompt: Tensor  # int64, the prompt's number

    def at(self, chosen: Tensor) -> "Judged":
        """Some of the rows."""
        return Judged(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence["Judged"]) -> "Judged":
        """All rows of several."""
        return cls(**{f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)})


def judged_drafts(
    pair: Pair, prompts: Sequence[tuple[int, ...]], first: int, recipe: Recipe
) -> Iterator[Judged]:
    """Drafts from answers to one batch of prompts; those that do not fit the contexts are left out."""
    room = min(pair.target.context, pair.draft.context) - recipe.answer_tokens
    numbered = [(n, p) for n, p in enumerate(prompts, first) if 0 < len(p) < room]
    for greedy in (True, False):
        answers = _answers(pair, numbered, recipe, greedy=greedy)
        for (number, prompt), answer in zip(numbered, answers, strict=True):
            for place, kind in enumerate(KINDS):
                if kind.greedy == greedy:
                    seed = (recipe.seed * 1_000_003 + number) * len(KINDS) + place
                    draft = _Draft(pair, kind, Generator().manual_seed(seed))
                    yield draft.judged((*prompt, *answer), len(prompt), recipe, number)


def _answers(
    pair: Pair, prompts: Sequence[tuple[int, tuple[int, ...]]], recipe: Recipe, *, greedy: bool
) -> list[tuple[int, ...]]:
    """The target's own answers, decoded plainly, all together."""
    asked = [
        Asked(p, SamplingParams() if greedy else SamplingParams(1.0, seed=recipe.seed + number))
        for number, p in prompts
    ]
    return plain_answers(pair.target, asked, recipe.answer_tokens, pair.stop_tokens)


@dataclass(frozen=True, slots=True)
class _Level:
    """The i-th tokens of several drafts."""

    parents: list[int]  # nodes that they hang on
    tokens: Tensor  # [A]
    logs: Tensor  # [A], log q of each
    states: Tensor  # [A, C]


@dataclass(frozen=True, slots=True)
class _Draft:
    """Drafts from many places of one text at once: branches of one tree whose trunk is the text."""

    pair: Pair
    kind: Kind
    generator: Generator

    @torch.inference_mode()
    def judged(self, text: Sequence[int], prompt: int, recipe: Recipe, number: int) -> Judged:
        """Every drafted token behind the text's first ``prompt`` tokens, labelled."""
        for model in (self.pair.target, self.pair.draft):
            model.crop(0, 0)
            if prompt > 1:
                model.feed(0, text[: prompt - 1])
        tokens = list(text[prompt - 1 :])  # the root is the prompt's last token
        parents = list(range(-1, len(tokens) - 1))
        levels = self._grow(tokens, parents, recipe)
        scores = self.pair.target.score([0], [DraftTree(tuple(tokens), tuple(parents))])[0].logits
        labels = torch.stack([self._label(level, scores) for level in levels])
        alive = torch.stack([self._goes_on(level) for level in levels]) * labels
        reached = torch.cat((torch.ones(1, labels.shape[1]), alive.cumprod(0)[:-1]))
        return Judged(
            states=torch.cat([level.states for level in levels]).half().cpu(),
            evidence=self.kind.evidence(torch.cat([level.logs for level in levels])),
            accepted=labels.flatten(),
            reached=reached.flatten(),
            prompt=torch.full((labels.numel(),), number),
        )

    def _grow(self, tokens: list[int], parents: list[int], recipe: Recipe) -> list[_Level]:
        """Append drafts to the tree level by level."""
        draws = torch.rand(len(tokens), generator=self.generator)
        first = int(draws.argmin())  # one start at least
        at = [n for n, draw in enumerate(draws.tolist()) if draw < recipe.start_share or n == first]
        grown = self.pair.draft.grow([Rows(0, tokens, parents)])[0]
        logits, states = grown.logits[at], grown.hidden[at]
        levels: list[_Level] = []
        while True:
            levels.append(self._level(at, logits, states))
            drafted = levels[-1].tokens.tolist()
            parents += at
            at = list(range(len(tokens), len(tokens) + len(at)))
            tokens += drafted
            if len(levels) == recipe.draft_tokens:
                return levels
            rows = Rows(0, drafted, parents[-len(drafted) :])
            grown = self.pair.draft.grow([rows])[0]
            logits, states = grown.logits, grown.hidden

    def _level(self, at: Sequence[int], logits: Tensor, states: Tensor) -> _Level:
        """The next token of each draft: drawn at temperature 1, or the likeliest."""
        logs = logits.float().log_softmax(-1).cpu()
        if self.kind.drawn:
            tokens = logs.exp().multinomial(1, generator=self.generator)[:, 0]
        else:
            tokens = logs.argmax(-1)
        return _Level(list(at), tokens, _of(logs, tokens), states)

    def _label(self, level: _Level, scores: Tensor) -> Tensor:
        """Chance that verification accepts each token, [A]; ``scores`` [N, V] of all nodes."""
        logits = scores[level.parents].float().cpu()
        if self.kind.greedy:
            return (logits.argmax(-1) == level.tokens).float()
        wanted = _of(logits.log_softmax(-1), level.tokens)
        return (wanted - level.logs).exp().clamp(max=1) if self.kind.drawn else wanted.exp()

    def _goes_on(self, level: _Level) -> Tensor:
        """0 behind a token that ends the answer, else 1."""
        stops = torch.tensor(sorted(self.pair.stop_tokens))
        return (~torch.isin(level.tokens, stops)).float()


def _of(rows: Tensor, tokens: Tensor) -> Tensor:
    """The entry of each row [A, V] at its token."""
    return rows.gather(1, tokens[:, None])[:, 0]
