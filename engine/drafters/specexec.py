"""SpecExec (arXiv 2406.02532): the likeliest continuations under a draft model, best first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from engine.drafting.draft_cache import NewNodes
from engine.drafting.draft_model import ModelDrafter
from engine.interfaces.drafter import Budget, Context, DrafterResources, StopRule
from engine.interfaces.target import Capability
from engine.request import Option
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree
from engine.statistics.pass_cost import DraftCost

MOST_WAVE, MOST_BRANCH = 128, 64
# A child is strictly worse than its parent even when the draft is certain.
DECAY = Option("decay", "factor on a node's probability for each level", 0.95, 0.01)
WAVES = Option("waves", "most passes of the draft model for one tree", 32, 1, 4096)
WAVE = Option("wave", "nodes expanded in one draft pass; 0: an eighth of the tree", 0, 0, MOST_WAVE)
BRANCH = Option("branch", "children of one node; 0: a quarter of the tree", 0, 0, MOST_BRANCH)
CROWDED = 4  # budgets' worth of nodes that a search holds before it drops what fell out
# Of a wave's probability so much becomes its gain; first waves of the bundled pair: 0.35 to 0.85.
HARVEST = 0.5
DEEP, MOST_NODES = 32, 2048  # the largest tree for a streamed model


@dataclass(frozen=True, slots=True)
class _Limits:
    """What one tree may be; scores are logarithms."""

    wave: int  # W: candidates expanded in one draft pass
    branch: int  # K: children proposed by one node
    depth: int
    nodes: int  # B, without the root
    fade: float  # added per level
    floor: float  # of a node that is worth its row
    budget: Budget


class _Search:
    """One request's tree while it grows.

    A node's score is the decayed log-probability of its path under the draft. ``bar`` is the
    score that a node needs to be among the best ``nodes``; nodes below it stay until a cut, but
    never come back, since the bar only rises. Candidates that lose a wave's cut stay open.
    """

    def __init__(self, context: Context, limits: _Limits) -> None:
        self.context, self.limits = context, limits
        self.bar = limits.floor
        self.wave = [0]  # nodes that the next draft pass expands; the root's own pass is ``start``
        self._tokens, self._parents = [context.ids[-1]], [-1]
        self._scores = np.zeros(1)
        self._depths = np.zeros(1, dtype=np.int64)
        self._open = np.ones(1, dtype=bool)

    @property
    def grows(self) -> bool:
        """Whether the limits leave room for a single node."""
        return min(self.limits.depth, self.limits.nodes) > 0

    @property
    def crowded(self) -> bool:
        """Whether nodes that fell below the bar take more room than the budget."""
        return len(self._tokens) > CROWDED * self.limits.nodes + 1

    @property
    def size(self) -> int:
        """Rows of the target's pass if the tree were scored now."""
        return 1 + int((self._scores[1:] >= self.bar).sum())

    @property
    def gain(self) -> float:
        """Tokens that the nodes so far are expected to bring, if the draft is right about them."""
        scores = self._scores[1:]
        return float(np.exp(scores[scores >= self.bar]).sum())

    @property
    def promise(self) -> float:
        """Probability that the target's walk passes through the wave: no wave can gain more."""
        return float(np.exp(self._scores[self.wave]).sum())

    def choose(self) -> bool:
        """Set the wave: the best candidates whose children could pass the bar, in tree order."""
        found = np.flatnonzero(self._open & (self._scores + self.limits.fade > self.bar))
        if len(found) > self.limits.wave:
            ranked = np.argpartition(-self._scores[found], self.limits.wave)
            found = np.sort(found[ranked[: self.limits.wave]])
        self.wave = found.tolist()
        return bool(self.wave)

    def growth(self) -> NewNodes:
        """The wave as the draft model is fed with it."""
        return NewNodes(self.context.slot, self.wave, self._tokens, self._parents)

    def expand(self, logits: Tensor) -> None:
        """Append those children of the wave, logits [n, V], that pass the bar."""
        wave = np.array(self.wave)
        above = self._scores[wave] + self.limits.fade
        width = min(self.limits.branch, self.limits.nodes, logits.shape[-1])
        rows, tokens, likely = _likeliest(logits, width, self.bar - above)
        scores = above[rows] + likely
        self._raise_bar(scores)
        passed = scores >= self.bar
        self._open[wave] = False
        self._append(wave[rows[passed]], tokens[passed], scores[passed])

    def paying(self) -> int:
        """How many of the best nodes to score: those that gain most over what their rows must bring.

        The first row more may cost far more than the next: then it is many of them, or none.
        """
        if not self.limits.budget.prices:
            return self.limits.nodes
        chances = np.exp(np.sort(self._scores[1:])[::-1][: self.limits.nodes])
        return self.limits.budget.worth(chances.tolist()).drafted

    def cut(self, most: int) -> dict[int, int]:
        """Keep the best ``most`` nodes; old -> new numbers.

        Closed under ancestors: no child scores above its parent, and of equals the older stays.
        """
        ranked = np.argsort(-self._scores[1:], kind="stable")[:most] + 1
        kept = np.sort(np.append(ranked, 0))
        place = {node: i for i, node in enumerate(kept.tolist())}
        self._parents = [-1, *(place[self._parents[node]] for node in kept[1:].tolist())]
        self._tokens = [self._tokens[node] for node in place]
        self._scores, self._depths = self._scores[kept], self._depths[kept]
        self._open = self._open[kept]
        return place

    def tree(self) -> DraftTree:
        """What is left after the last cut."""
        return DraftTree(tuple(self._tokens), tuple(self._parents))

    def _raise_bar(self, fresh: np.ndarray) -> None:
        """The B-th best score among nodes and new scores [m], once there are as many."""
        known = np.concatenate((self._scores[1:], fresh))
        known = known[known >= self.bar]
        if len(known) >= self.limits.nodes:
            self.bar = np.partition(known, -self.limits.nodes)[-self.limits.nodes]

    def _append(self, parents: np.ndarray, tokens: np.ndarray, scores: np.ndarray) -> None:
        """New candidates; an answer ends with its stop token, so nothing hangs below one."""
        names, depths = tokens.tolist(), self._depths[parents] + 1
        ends = [name in self.context.stop_tokens for name in names]
        self._tokens += names
        self._parents += parents.tolist()
        self._scores = np.concatenate((self._scores, scores))
        self._depths = np.concatenate((self._depths, depths))
        hopeful = (depths < self.limits.depth) & ~np.array(ends, dtype=bool)
        self._open = np.concatenate((self._open, hopeful))


class SpecExec(ModelDrafter):
    """Grows by parallel best-first search (section 4.2); candidates are deterministic.

    Draft probabilities only order the search and never enter verification, so any tree is exact.
    They are the draft's own at temperature 1. Sharpened to 0.6 they lost 4 % to 5 % of the tokens
    per pass of a request at 0.6 and 0 % to 3 % of a greedy one, in trees of 16 and 64 nodes of the
    bundled pair on 20 word problems, and took more waves; 0.8 made no clear difference.

    An exact budget is spent whole. Otherwise nodes below ``Budget.floor`` are left out, and a
    wave needs to earn its pass: its expected tokens per second must be at least those of the
    round without it. At ``Budget.prices`` the tree is cut where it gains most. Waves of all
    requests of a step share one pass.
    """

    title = "Draft tree"
    summary = "A small model searches for the likeliest continuations, best first."
    elsewhere = "draft model"
    accepted = "were guessed by the small draft model"
    needs = frozenset({Capability.TREE, Capability.DRAFT_MODEL})
    max_draft = Budget(depth=8, nodes=24)
    plan_when = ("draft model", "streamed", "dense")
    plan_reason = (
        "a pass that reads {streamed} again costs the same for hundreds of drafted tokens, so the "
        "resident draft model grows large trees"
    )
    stop_rules = frozenset({StopRule.FLOOR})
    default_length = "goodput"

    options = (WAVE, BRANCH, WAVES, DECAY)

    def __init__(self, parts: DrafterResources) -> None:
        """Take the draft model; W is 8 to 128 and K 16 to 64 where the options do not set them."""
        super().__init__(parts)
        self._target_cost, self._wave_cost = parts.cost, DraftCost()
        self.max_draft = _largest(self.max_draft, parts.cost.hidden)
        self._wave = int(WAVE.of(parts.options))
        self._branch = int(BRANCH.of(parts.options))
        self._waves = int(WAVES.of(parts.options))
        self._fade = math.log(DECAY.of(parts.options))

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context."""
        searches = [self._search(c, b) for c, b in zip(batch, budgets, strict=True)]
        growing = [search for search in searches if search.grows]
        if growing:
            self._grow(growing)
        return [search.tree() for search in searches]

    def _search(self, context: Context, budget: Budget) -> _Search:
        # a price for rows would also prune those that reading hides, which cost nothing
        hidden = self._target_cost.hidden > 1
        floored = budget.floor > 0 and not budget.exact and not hidden
        limits = _Limits(
            wave=self._wave or min(max(budget.nodes // 8, 8), MOST_WAVE),
            branch=self._branch or min(max(budget.nodes // 4, 16), MOST_BRANCH),
            depth=min(budget.depth, self._cache.room(context)),
            nodes=budget.nodes,
            fade=self._fade,
            floor=math.log(budget.floor) if floored else -math.inf,
            budget=budget,
        )
        return _Search(context, limits)

    @torch.inference_mode()
    def _grow(self, searches: list[_Search]) -> None:
        starts = self._cache.start([search.context for search in searches])
        for search, grown in zip(searches, starts, strict=True):
            search.expand(grown.logits)
        for done in range(1, self._waves):
            growing = [search for search in searches if search.choose()]
            if not growing or not self._worth(searches, growing, done):
                break
            self._run_wave(growing)
        for search in searches:
            self._cut(search, search.paying())

    def _run_wave(self, growing: list[_Search]) -> None:
        started = self._clock()
        fed = self._cache.grow([search.growth() for search in growing])
        for search, grown in zip(growing, fed, strict=True):
            search.expand(grown.logits)
            if search.crowded:
                self._cut(search, search.limits.nodes)
        self._wave_cost.observe(1, len(growing), self._clock() - started)

    def _worth(self, searches: list[_Search], growing: list[_Search], done: int) -> bool:
        """Whether one more pass brings tokens at least as fast as the round without it."""
        if any(search.limits.budget.exact for search in growing):
            return True
        # until a wave was measured, it costs what a step does
        wave = self._wave_cost.seconds(1, len(growing)) or self.step_seconds
        rows, context = sum(s.size for s in searches), sum(len(s.context.ids) for s in searches)
        rate = sum(1 + s.gain for s in searches) / (
            self._target_cost.seconds(rows, context, len(searches)) + done * wave
        )
        return HARVEST * sum(search.promise for search in growing) >= rate * wave

    def _cut(self, search: _Search, most: int) -> None:
        self._cache.relabel(search.context.slot, search.cut(most))


def _likeliest(
    logits: Tensor, count: int, needed: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, tokens and log-probabilities of at most ``count`` tokens of every row of logits [n, V].

    Those below ``needed`` [n] may be left out: once a tree is full hardly any are above, and a
    comparison finds them without ranking the vocabulary.
    """
    law = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)
    if np.isfinite(needed).all():
        passing = law >= torch.from_numpy(needed).to(law).unsqueeze(-1)
        if int(passing.count_nonzero()) <= count * len(law):  # row by row takes 20 times as long
            rows, tokens = passing.nonzero(as_tuple=True)
            if int(rows.bincount(minlength=1).max()) <= count:
                return _numpy(rows), _numpy(tokens), _numpy(law[rows, tokens].double())
    best = top_k(law, count)
    rows = torch.arange(len(law)).repeat_interleave(count)
    return _numpy(rows), _numpy(best.indices.flatten()), _numpy(best.values.flatten().double())


def _numpy(values: Tensor) -> np.ndarray:
    return values.cpu().numpy()


def _largest(usual: Budget, hidden: int) -> Budget:
    """The largest tree: as many nodes as rows that reading the weights hides.

    Section 4.1: with weights that are streamed a pass of hundreds of rows costs what one row does.
    """
    return usual if hidden <= usual.nodes else Budget(DEEP, min(hidden - 1, MOST_NODES))
