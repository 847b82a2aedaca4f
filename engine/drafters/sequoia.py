"""Sequoia (arXiv 2402.12374): the tree that is worth most on this machine, drawn without replacement."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from engine.drafting.acceptance_model import AcceptanceModel
from engine.drafting.draft_model import ModelDrafter
from engine.drafting.rank_acceptance import RankEvidence, chosen_ranks, drawn_ranks, padded
from engine.drafting.tree_draft import AdaptiveTree, StaticTree, TreeDraft, TreeLimits
from engine.drafting.tree_shape import OptimalTree, uniform
from engine.drafting.tuning import TUNING
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.interfaces.target import Capability
from engine.request import Option, Prior
from engine.speculation.sampling import probabilities
from engine.speculation.tree import DraftTree
from engine.statistics.pass_cost import LinearFit
from engine.statistics.tuning import TUNING as STATISTICS

NAME = "sequoia"
WIDTH = TUNING.ranks
# Acceptance by rank before anything was measured: a power law after the first rank, as the paper
# finds for its pairs; these numbers lie between pocket's at temperatures 0.6 and 1.
DEFAULT = (0.64, *(0.12 * (rank - 1) ** -1.3 for rank in range(2, WIDTH + 1)))
DEFAULT_WEIGHT = 8.0  # nodes that it counts for
FORGETTING = 0.995  # weight of the past per measured node
MOVED = 0.05  # share of its mass that an acceptance moves before shapes are computed again
INNER = 0.6  # share of an optimal tree's nodes that have children, hence are fed to the draft
ASKED = 4  # rounds that a size is believed for: looking for it takes 0.3 ms
STATIC = Option("static", "1: the shape is fixed before the draft, as in the paper", 0)
ARITY = Option("arity", "children of every node in a uniform tree; 0: the best shape", 0, 0, 64)
REPLACEMENT = Option("replacement", "1: draw with replacement, as SpecInfer does", 0)
NO_TREE = (-1,)
LADDER = tuple(sorted({1, 3, *(base << k for k in range(12) for base in (2, 3))}))


@dataclass
class _Size:
    """Nodes, the root counted, and depth that were found to be the fastest, and under which limits."""

    fastest: tuple[int, int]
    limit: tuple[int, int, int]  # nodes, depth, requests in the batch
    rounds: int = 0  # of all requests, since it was found


@dataclass
class _Class:
    """What is known of requests that are judged alike: by temperature, and drawn or chosen."""

    evidence: RankEvidence
    ranks: int  # no more children than the vocabulary has tokens
    odds: AcceptanceModel = field(default_factory=AcceptanceModel)
    plan: OptimalTree | None = None  # for an acceptance that has hardly moved since
    size: _Size | None = None  # the newest

    def planned(self, nodes: int, depth: int) -> OptimalTree:
        """The best trees of up to ``nodes`` nodes, the root counted, and ``depth`` levels."""
        known, shares = self.plan, self.evidence.shares[: self.ranks]
        if known is not None and nodes <= known.nodes and depth <= known.depth:
            before = np.asarray(known.acceptance)
            if np.abs(shares - before).sum() <= MOVED * before.sum():
                return known
        if known is not None:
            nodes, depth = max(nodes, known.nodes), max(depth, known.depth)
        self.plan = OptimalTree(shares.tolist(), nodes, depth)
        return self.plan


class Sequoia(ModelDrafter):
    """Grows the tree that is worth most for the measured acceptance: one draft pass for each level.

    An exact budget is spent in full. Otherwise size and depth maximise G(n, d) / (t(n) + c(n, d)),
    tokens per second with the measured pass t of the target and c of the draft (section 3.3);
    whether a tree pays at all is decided by the length policy. Acceptance is computed from the scores of past rounds, by class of temperature.
    The paper's shape is fixed for a budget; here it is the plan for what is not drawn yet, and the
    nodes that are left are spread again at each level (``engine.drafting.node_allocation``). With pocket
    that keeps 4 to 8 % more tokens a pass with 16 nodes, 7 to 12 % with 64.

    The options are for comparisons; all of them keep the law.
    """

    title = "Optimal draft tree"
    summary = "A small model draws the tree that is worth most at the measured acceptance."
    elsewhere = "draft model"
    accepted = "were guessed by the small draft model"
    needs = frozenset({Capability.TREE, Capability.DRAFT_MODEL})
    max_draft = Budget(depth=8, nodes=32)
    default_length = "goodput"

    options = (STATIC, ARITY, REPLACEMENT)

    def __init__(self, parts: DrafterResources) -> None:
        """Take the draft model and the target's measured cost."""
        super().__init__(parts)
        self._pass = parts.cost
        self._level = LinearFit()  # a draft level's seconds over a target pass's
        self._ranks = min(WIDTH, parts.target.vocab)
        self._arity = int(ARITY.of(parts.options))
        self._replaced = bool(REPLACEMENT.of(parts.options))
        self._static = bool(STATIC.of(parts.options)) or self._replaced or self._arity > 0
        self._grown: dict[int, TreeDraft] = {}  # by request, until the outcome is known
        self._classes: dict[tuple[bool, int], _Class] = {}
        self._own: dict[int, RankEvidence] = {}  # by request, once it was drafted for

    @override
    @torch.inference_mode()
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context; all requests grow together, level by level."""
        sprouts = [
            self._sprout(context, budget, batch)
            for context, budget in zip(batch, budgets, strict=True)
        ]
        growing = [s for s in sprouts if s.open]
        if growing:
            self._grow(growing)
        self._grown |= {s.context.request: s for s in growing}
        return [s.tree() for s in sprouts]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the draft model's cache of accepted tokens; measure acceptance where the walk went."""
        super().observe(outcomes)
        for outcome in outcomes:
            grown = self._grown.pop(outcome.context.request, None)
            if grown is not None and outcome.scores is not None and outcome.tree.drafted:
                self._measure(outcome, outcome.scores.logits, grown)

    @override
    def forget(self, request: int, slot: int) -> None:
        """What the request showed stays with its class; the slot's cache may serve the next one."""
        self._own.pop(request, None)
        self._grown.pop(request, None)
        super().forget(request, slot)

    @override
    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """Share of nodes by rank of the taken child, first rank first; nodes measured."""
        own = self._own.get(request)
        if own is None:
            return (), 0.0
        return tuple(own.shares[: own.measured].tolist()), own.nodes

    def _class(self, context: Context) -> _Class:
        key = (context.draws, round(2 * context.sampling.temperature))
        if key not in self._classes:
            self._classes[key] = _Class(_started(context.priors.get(NAME)), self._ranks)
        return self._classes[key]

    def _sprout(self, context: Context, budget: Budget, batch: Sequence[Context]) -> TreeDraft:
        nodes, depth = budget.nodes + 1, min(budget.depth, self._cache.room(context))
        if min(depth, budget.nodes) < 1:
            return StaticTree(context, NO_TREE)
        if self._arity:
            return StaticTree(context, uniform(self._arity, nodes, depth), replaced=self._replaced)
        known = self._class(context)
        plan = known.planned(nodes, depth)
        if not budget.exact:
            nodes, depth = self._fastest(known, plan, (nodes, depth), batch)
        nodes = plan.largest(nodes, depth)
        if self._static:
            return StaticTree(context, plan.shape(nodes, depth), replaced=self._replaced)
        limits = TreeLimits(nodes - 1, depth, plan.table, known.odds, self._ranks)
        return AdaptiveTree(context, limits)

    def _fastest(
        self, known: _Class, plan: OptimalTree, limit: tuple[int, int], batch: Sequence[Context]
    ) -> tuple[int, int]:
        """Nodes, the root counted, and depth of most expected tokens per second."""
        last, many = known.size, len(batch)
        if last is not None and last.limit == (*limit, many) and last.rounds < (ASKED - 1) * many:
            last.rounds += 1
            return last.fastest
        sizes = [n for n in LADDER if 1 < n <= limit[0]]
        depths = range(1, min(limit[1], len(plan.table) - 1) + 1)
        gains = plan.table[1 : len(depths) + 1][:, sizes]
        rates = gains / self._seconds(sizes, depths, batch)
        deepest, widest = np.unravel_index(rates.argmax(), rates.shape)
        known.size = _Size((sizes[widest], depths[deepest]), (*limit, many))
        return known.size.fastest

    def _seconds(
        self, sizes: Sequence[int], depths: Sequence[int], batch: Sequence[Context]
    ) -> NDArray[np.float64]:
        """Expected seconds of a round, [depths, sizes], when every request drafts such a tree.

        The draft's cost is learned over the target's for as many rows: both are transformers on
        one machine, so their curves have one form, and a single noisy level cannot bend it.
        """
        many, context = len(batch), sum(len(c.ids) for c in batch)

        @cache
        def level(rows: int) -> float:
            return self._level.at(self._pass.seconds(rows, context))

        rows = [[max(many, round(INNER * many * n / d)) for n in sizes] for d in depths]
        draft = [[d * level(fed) for fed in row] for d, row in zip(depths, rows, strict=True)]
        judge = [self._pass.seconds(many * n, context) for n in sizes]
        return np.add(judge, draft, dtype=np.float64)

    def _grow(self, sprouts: list[TreeDraft]) -> None:
        """Draw until nothing is open; levels are timed, the first one only if no prompt was read."""
        began = self._clock()
        starts = self._cache.start([s.context for s in sprouts])
        for sprout, grown in zip(sprouts, starts, strict=True):
            sprout.extend(grown.logits[-1:])
        if all(s.context.request in self._own for s in sprouts):
            self._time(sprouts, len(sprouts), began)
        while growing := [s for s in sprouts if s.open]:
            began, rows = self._clock(), sum(len(s.open) for s in growing)
            fed = self._cache.grow([s.growth() for s in growing])
            for sprout, grown in zip(growing, fed, strict=True):
                sprout.extend(grown.logits)
            self._time(growing, rows, began)
        for sprout in sprouts:
            self._own.setdefault(sprout.context.request, RankEvidence())

    def _time(self, sprouts: Sequence[TreeDraft], rows: int, began: float) -> None:
        """One level of the draft took from ``began`` until now."""
        context = sum(len(s.context.ids) for s in sprouts)
        self._level.add(self._pass.seconds(rows, context), self._clock() - began)

    @torch.inference_mode()
    def _measure(self, outcome: Outcome, logits: Tensor, grown: TreeDraft) -> None:
        """Chance of every rank at the nodes that the walk reached: same context for p and q."""
        tree, known = outcome.tree, self._class(outcome.context)
        nodes = [node for node in outcome.verdict.path if tree.children[node]]
        if not nodes:
            return
        p = probabilities(logits[nodes], outcome.context.sampling)
        # equal draws with replacement left out, what remains is a draw without
        rows = [list(dict.fromkeys(grown.drawn(n))) for n in nodes]
        widest = max(TUNING.measured_draws, *(len(tree.children[n]) for n in nodes))
        tokens = padded(rows, min(widest, max(map(len, rows)))).to(p.device)
        if tree.q is None:
            ranks = chosen_ranks(p, tokens)
        else:
            ranks = drawn_ranks(p, torch.stack([tree.q[n] for n in nodes]).to(p), tokens)
        found = ranks.chances.double().numpy(force=True)
        known.evidence.add(found)
        for node, *measured in zip(nodes, found.tolist(), ranks.judged.tolist(), strict=True):
            known.odds.learn(grown.hints(node), *measured)
        if outcome.context.request in self._own:
            self._own[outcome.context.request].add(found)


def _started(prior: Prior | None) -> RankEvidence:
    """What is believed of a class before its first round here."""
    trials = np.full(WIDTH, DEFAULT_WEIGHT)
    shares = np.asarray(DEFAULT)
    if prior is not None and prior.shares and prior.share_weight > 0:
        measured = min(len(prior.shares), WIDTH)
        shares[:measured] = prior.shares[:measured]
        trials[:measured] += min(prior.share_weight, STATISTICS.prior_weight)
    return RankEvidence.believed(shares.tolist(), trials.tolist(), FORGETTING)
