"""What an early exit costs and brings: DEL's tokens per layer, over seconds of this machine.

DEL (arXiv 2504.05598) chooses an exit and the depth of a chain. Here a width is chosen
too: where a few more rows cost nothing, each token of the chain gets the exit's next likeliest tokens
as siblings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Context, Outcome
from engine.statistics.pass_cost import LinearFit, PassCost


@dataclass(frozen=True, slots=True)
class ExitChoice:
    """The best exit, depth and width; at depth 0 the exit is the best of those that lose."""

    exit: int
    depth: int
    rate: float  # expected tokens per unit of cost
    width: int = 1  # candidates of every drafted token


@dataclass(frozen=True)
class ExitOdds:
    """How often exits after layers 1..E are right, and what share of their misses siblings catch."""

    alpha: np.ndarray  # [E], acceptance of a drafted token
    caught: np.ndarray  # [E, K], share of the refused tokens that the k-th sibling is

    def caught_by(self, width: int) -> np.ndarray:
        """Share [E] of the refused tokens that are among ``width`` - 1 siblings."""
        return np.asarray(self.caught[:, : width - 1].sum(1))


@dataclass(frozen=True)
class RoundCost:
    """Cost of a round for every exit, depth and width."""

    chains: np.ndarray  # [E, D + 1]; column 0 is a plain pass
    passes: np.ndarray | None = (
        None  # [D + 1], seconds of 1, 2, .. rows of each request; None: unmeasured
    )
    shares: np.ndarray | None = None  # [E], of the layers below each exit

    def shallower(self, deepest: int, cost: float) -> "RoundCost":
        """The same where drafting with more than ``deepest`` layers costs ``cost``."""
        chains = self.chains.copy()
        chains[deepest:, 1:] = cost
        return replace(self, chains=chains)

    def upto(self, depth: int) -> "RoundCost":
        """Of drafts with at most ``depth`` levels and nodes."""
        passes = None if self.passes is None else self.passes[: depth + 1]
        return replace(self, chains=self.chains[:, : depth + 1], passes=passes)

    def wide(self, width: int) -> np.ndarray:
        """[E, D + 1] with ``width`` candidates of every token; infinite where there is no room."""
        if width == 1 or self.passes is None or self.shares is None:
            return self.chains if width == 1 else np.full_like(self.chains, np.inf)
        depths = np.arange(self.chains.shape[1])
        siblings, most = depths * (width - 1), len(self.passes) - 1
        late, rows = np.minimum(siblings, most), np.minimum(depths + siblings, most)
        below = self.passes[late] - self.passes[0]
        above = self.passes[rows] - self.passes[np.minimum(depths, most)]
        extra = self.shares[:, None] * below + (1 - self.shares[:, None]) * above
        return np.asarray(np.where(depths + siblings <= most, self.chains + extra, np.inf))

    def siblings(self, exit_layer: int, drafted: int) -> np.ndarray:
        """What 0, 1, .. siblings of a chain of ``drafted`` tokens cost, as many as have room.

        They run through the layers below the exit with the chain's last row, in the pass.
        """
        if self.passes is None or self.shares is None:
            return np.zeros(1)
        share, room = self.shares[exit_layer - 1], len(self.passes) - drafted
        below, above = self.passes[:room], self.passes[drafted : drafted + room]
        return np.asarray(share * (below - below[0]) + (1 - share) * (above - above[0]))


def best_exit(odds: ExitOdds, cost: RoundCost) -> ExitChoice:
    """Argmax over exit l, depth d and width of expected tokens over cost; ties go to plain decoding.

    A chain brings 1 + alpha_l + .. + alpha_l^d tokens (DEL). A sibling brings one more
    where the chain ends early, which has the chance 1 - alpha_l^d.
    """
    plain = 1 / float(cost.chains[0, 0])
    best = ExitChoice(1, 0, 0.0)
    for width in _widths(cost):
        rates = _rates(odds, cost, width)
        layer, depth = divmod(int(rates[:, 1:].argmax()), rates.shape[1] - 1)
        rate = float(rates[layer, depth + 1])
        if rate > best.rate:
            best = ExitChoice(layer + 1, depth + 1, rate, width)
    return best if best.rate > plain else replace(best, depth=0, rate=plain)


def best_rate(exit_layer: int, odds: ExitOdds, cost: RoundCost) -> float:
    """Expected tokens over cost of this exit at its best depth and width."""
    widths = _widths(cost)
    return max(float(_rates(odds, cost, width)[exit_layer - 1].max()) for width in widths)


def _widths(cost: RoundCost) -> tuple[int, ...]:
    """Widths to choose among; chains alone where the cost of rows was not measured."""
    return TUNING.widths if cost.passes is not None else TUNING.widths[:1]


def _rates(odds: ExitOdds, cost: RoundCost, width: int) -> np.ndarray:
    """Expected tokens of every exit and depth per unit of cost, [E, D + 1]."""
    powers = odds.alpha[:, None] ** np.arange(cost.chains.shape[1])
    siblings = odds.caught_by(width)[:, None] * (1 - powers)
    return np.asarray((powers.cumsum(1) + siblings) / cost.wide(width))


class ExitCost:
    """What a round costs for every exit and depth.

    A draft step is measured in plain passes of one row and is a line over the exit's share of the
    layers: head and overhead are its height at 0. It starts as the paper's l / L, with enough weight
    that a slow first call does not overturn it.
    """

    def __init__(self, cost: PassCost, layers: int, *, paper: bool) -> None:
        """``paper``: the cost is always d l + L."""
        self._cost = PassCost() if paper else cost
        self._layers = layers
        self._shares = np.arange(1, layers) / layers
        self._step = LinearFit()
        for share in (0.0, 1.0) * TUNING.exit_guess_calls:
            self._step.add(share, share)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """One drafting call; requests with the same exit took their steps together."""
        drafting = [o for o in outcomes if o.tree.drafted and o.tree.warm is not None]
        if not drafting or not self._cost.knots:
            return
        steps: dict[int, int] = {}
        for outcome in drafting:
            assert outcome.tree.warm is not None
            layer, fed = outcome.tree.warm.layer, outcome.tree.warm.states.shape[1]
            steps[layer] = max(steps.get(layer, 0), fed)
        taken = sum(steps.values())
        depth = sum(layer * count for layer, count in steps.items()) / taken / self._layers
        plain = self._cost.seconds(len(drafting), _held([o.context for o in drafting]))
        self._step.add(depth, drafting[0].draft_seconds / taken / plain)

    def table(self, batch: Sequence[Context], depth: int) -> RoundCost:
        """Seconds of a round in which all of ``batch`` draft alike, with ``depth`` levels and nodes.

        The last row runs through all layers in the pass; the others only through those above the
        exit. While unmeasured, a pass counts 1 and this is the paper's d l + L over L.
        """
        held, requests, shares = _held(batch), len(batch), self._shares
        widths = range(requests, requests * (depth + 1) + 1, requests)
        passes = np.array(self._cost.each(widths, held))
        plain, start = passes[0], self._step.at(0.0)
        steps = plain * (start + shares * (self._step.at(1.0) - start))
        # Layers above the exit run over all rows; those below it over the newest one, in the pass.
        drafts = steps[:, None] * np.arange(depth + 1)
        chains = np.asarray(drafts + passes + shares[:, None] * (plain - passes))
        return RoundCost(chains, passes, shares) if self._cost.knots else RoundCost(chains)


def _held(batch: Sequence[Context]) -> int:
    """Cached tokens that a pass over this batch attends to."""
    return sum(len(context.ids) for context in batch)
