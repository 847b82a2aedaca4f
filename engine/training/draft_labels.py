"""Training data of acceptance heads: drafts after the target's own answers, each token labelled.

The paper feeds the draft model answers in which each token is replaced by a drafted one with
probability 1 - 0.15, so that its states resemble those after drafted tokens. Here a draft starts at
each token of the target's own text with probability 0.25 and continues as in decoding: states and
labels belong to the same context.

Each prompt is answered twice, greedily and at temperature 1, and drafted for in the three ways in
which requests run: greedy; sampled with sampled candidates; seeded with chosen candidates.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Generator, Tensor

from engine.build import assemble, load
from engine.draft_length.acceptance_head import Kind
from engine.errors import ModelUnusable, NumericalError
from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import Rows, Target
from engine.request import Done, FinishReason, GenerationRequest, ModelSpec, SamplingParams, Tokens
from engine.speculation.tree import DraftTree

KINDS = (Kind(drawn=False, greedy=True), Kind(drawn=True, greedy=False), Kind(drawn=False, greedy=False))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recipe:
    """All settings of a run, except models and prompts."""

    minutes: float = 20.0
    answer_tokens: int = 96
    start_share: float = 0.25  # of an answer's tokens that start a draft; the paper's r is 0.15
    draft_tokens: int = 8
    reject_weight: float = 6.0  # the paper's w
    depth: int = 1  # the paper's D, 3 there
    epochs: int = 3
    batch: int = 512
    learning_rate: float = 2e-3
    warmup_share: float = 0.03
    together: int = 16  # prompts per batch and per file
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """Target and draft model, and the tokens that end an answer."""

    target: Target
    draft: Target
    stop_tokens: frozenset[int]


def load_pair(spec: ModelSpec, stop_tokens: frozenset[int]) -> Pair:
    """Load both models; raises ModelUnusable if they do not fit each other."""
    parts, why_not = load(spec)
    if parts.draft_model is None:
        raise ModelUnusable(f"no head can be trained for {spec.name}: {why_not}")
    return Pair(parts.target, parts.draft_model, stop_tokens)


@dataclass(frozen=True, slots=True)
class LabelledTokens:
    """Drafted tokens with the head's inputs and labels, [n] each."""

    states: Tensor  # [n, C] float16: the draft model's state that proposed the token
    evidence: Tensor  # [n, 4]
    accepted: Tensor  # the label, 0 to 1
    reached: Tensor  # probability that verification gets there
    prompt: Tensor  # int64, index of the prompt

    def at(self, chosen: Tensor) -> "LabelledTokens":
        """The rows ``chosen``."""
        return LabelledTokens(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence["LabelledTokens"]) -> "LabelledTokens":
        """Concatenate several."""
        return cls(**{f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)})


def labelled_drafts(
    pair: Pair, prompts: Sequence[tuple[int, ...]], first: int, recipe: Recipe
) -> Iterator[LabelledTokens]:
    """Drafts for one batch of prompts; prompts that do not fit the contexts are skipped."""
    room = min(pair.target.context, pair.draft.context) - recipe.answer_tokens
    numbered = [(n, p) for n, p in enumerate(prompts, first) if 0 < len(p) < room]
    for greedy in (True, False):
        answers = _answers(pair, numbered, recipe, greedy=greedy)
        for (number, prompt), answer in zip(numbered, answers, strict=True):
            for place, kind in enumerate(KINDS):
                if kind.greedy == greedy:
                    seed = (recipe.seed * 1_000_003 + number) * len(KINDS) + place
                    draft = LabelledDraft(pair, kind, Generator().manual_seed(seed))
                    yield draft.labelled((*prompt, *answer), len(prompt), recipe, number)


def _answers(
    pair: Pair, prompts: Sequence[tuple[int, tuple[int, ...]]], recipe: Recipe, *, greedy: bool
) -> list[tuple[int, ...]]:
    """The target's own answers by plain decoding, in one batch; raises NumericalError."""
    spec = ModelSpec("target", "", slots=max(1, len(prompts)))
    engine = assemble(spec, DrafterResources(pair.target), "answers come from plain decoding")
    answers: dict[int, list[int]] = {}  # by request
    for number, prompt in prompts:
        law = SamplingParams() if greedy else SamplingParams(1.0, seed=recipe.seed + number)
        request = GenerationRequest(
            prompt, recipe.answer_tokens, law, pair.stop_tokens, drafter="none"
        )
        answers[engine.submit(request)] = []
    while engine.busy:
        for request_id, event in engine.step():
            if isinstance(event, Tokens):
                answers[request_id] += event.ids
            elif isinstance(event, Done) and event.reason is FinishReason.ERROR:
                raise NumericalError(event.error or "the target failed while it answered")
    return [tuple(answer) for answer in answers.values()]


@dataclass(frozen=True, slots=True)
class _Level:
    """The i-th tokens of several drafts."""

    parents: list[int]  # nodes of the tree
    tokens: Tensor  # [A]
    logs: Tensor  # [A], log q
    states: Tensor  # [A, C]


@dataclass(frozen=True, slots=True)
class LabelledDraft:
    """Drafts from many positions of one text at once: a tree with the text as its trunk."""

    pair: Pair
    kind: Kind
    generator: Generator

    @torch.inference_mode()
    def labelled(
        self, text: Sequence[int], prompt: int, recipe: Recipe, number: int
    ) -> LabelledTokens:
        """Draft after the first ``prompt`` tokens of the text, and label every drafted token."""
        for model in (self.pair.target, self.pair.draft):
            model.crop(0, 0)
            if prompt > 1:
                model.feed(0, text[: prompt - 1])
        tokens = list(text[prompt - 1 :])  # the root is the prompt's last token
        parents = list(range(-1, len(tokens) - 1))
        levels = self.grow(tokens, parents, recipe)
        scores = self.pair.target.score([0], [DraftTree(tuple(tokens), tuple(parents))])[0].logits
        labels = torch.stack([self._label(level, scores) for level in levels])
        alive = torch.stack([self._continues(level) for level in levels]) * labels
        reached = torch.cat((torch.ones(1, labels.shape[1]), alive.cumprod(0)[:-1]))
        return LabelledTokens(
            states=torch.cat([level.states for level in levels]).half().cpu(),
            evidence=self.kind.evidence(torch.cat([level.logs for level in levels])),
            accepted=labels.flatten(),
            reached=reached.flatten(),
            prompt=torch.full((labels.numel(),), number),
        )

    def grow(self, tokens: list[int], parents: list[int], recipe: Recipe) -> list[_Level]:
        """Append drafts to the tree level by level."""
        draws = torch.rand(len(tokens), generator=self.generator)
        first = int(draws.argmin())  # at least one
        at = [
            n for n, value in enumerate(draws.tolist()) if value < recipe.start_share or n == first
        ]
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
        """The next token of each draft: sampled at temperature 1, or the most likely one."""
        logs = logits.float().log_softmax(-1).cpu()
        if self.kind.drawn:
            tokens = logs.exp().multinomial(1, generator=self.generator)[:, 0]
        else:
            tokens = logs.argmax(-1)
        return _Level(list(at), tokens, _of(logs, tokens), states)

    def _label(self, level: _Level, scores: Tensor) -> Tensor:
        """Probability that verification accepts each token, [A]; ``scores`` [N, V] of all nodes."""
        logits = scores[level.parents].float().cpu()
        if self.kind.greedy:
            return (logits.argmax(-1) == level.tokens).float()
        wanted = _of(logits.log_softmax(-1), level.tokens)
        return (wanted - level.logs).exp().clamp(max=1) if self.kind.drawn else wanted.exp()

    def _continues(self, level: _Level) -> Tensor:
        """0 after a token that ends the answer, else 1."""
        stops = torch.tensor(sorted(self.pair.stop_tokens))
        return (~torch.isin(level.tokens, stops)).float()


def _of(rows: Tensor, tokens: Tensor) -> Tensor:
    """The entry of each row [A, V] at its token."""
    return rows.gather(1, tokens[:, None])[:, 0]
