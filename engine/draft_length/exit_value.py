"""What an early exit costs and brings: DEL's tokens per layer (arXiv 2504.05598), over seconds of this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Context, Outcome
from engine.statistics.pass_cost import LinearFit, PassCost


@dataclass(frozen=True, slots=True)
class ExitChoice:
    """The best exit and depth; at depth 0 the exit is the best of those that lose."""

    exit: int
    depth: int
    rate: float  # expected tokens per unit of cost


@dataclass(frozen=True, slots=True)
class RoundCost:
    """Cost of a round for every exit and depth."""

    chains: np.ndarray  # [E, D + 1]; column 0 is a plain pass
    passes: np.ndarray  # [D + 1], of 1, 2, .. rows of each request

    def upto(self, depth: int) -> "RoundCost":
        """Of drafts with at most ``depth`` levels and nodes."""
        return RoundCost(self.chains[:, : depth + 1], self.passes[: depth + 1])

    def siblings(self, exit_layer: int, drafted: int) -> np.ndarray:
        """What 0, 1, .. siblings of a chain of ``drafted`` tokens cost, as many as have room.

        They run through the layers below the exit with the chain's last row, in the pass.
        """
        share, room = exit_layer / (len(self.chains) + 1), len(self.passes) - drafted
        below, above = self.passes[:room], self.passes[drafted : drafted + room]
        return np.asarray(share * (below - below[0]) + (1 - share) * (above - above[0]))


def best_exit(alpha: np.ndarray, cost: np.ndarray) -> ExitChoice:
    """Argmax over exit l and depth d of expected tokens over cost; ties go to plain decoding.

    ``alpha`` [E] is the acceptance of exits after layers 1..E, ``cost`` [E, D + 1] that of a round. A
    chain brings 1 + alpha_l + .. + alpha_l^d tokens.
    """
    plain = 1 / float(cost[0, 0])
    powers = alpha[:, None] ** np.arange(cost.shape[1])
    rates = powers.cumsum(1)[:, 1:] / cost[:, 1:]
    layer, depth = divmod(int(rates.argmax()), rates.shape[1])
    rate = float(rates[layer, depth])
    return (
        ExitChoice(layer + 1, depth + 1, rate) if rate > plain else ExitChoice(layer + 1, 0, plain)
    )


class ExitCost:
    """What a round costs for every exit and depth.

    A draft step is measured in plain passes of one row and is a line over the exit's share of the
    layers: head and overhead are its height at 0. It starts as the paper's l / L, with enough weight
    that a slow first call does not overturn it.
    """

    def __init__(self, cost: PassCost, layers: int) -> None:
        """``cost`` of the target's passes; while it is not measured, costs are the paper's d l + L over L."""
        self._cost, self._layers = cost, layers
        self._shares = np.arange(1, layers) / layers
        self._step = LinearFit()
        for share in (0.0, 1.0) * TUNING.guess_calls:
            self._step.add(share, share)

    @property
    def measured(self) -> bool:
        """Whether the cost of rows is known."""
        return bool(self._cost.knots)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """One drafting call; requests with the same exit took their steps together."""
        drafting = [o for o in outcomes if o.tree.drafted and o.tree.warm is not None]
        if not drafting or not self.measured:
            return
        steps: dict[int, int] = {}
        for outcome in drafting:
            assert outcome.tree.warm is not None
            layer, fed = outcome.tree.warm.layer, outcome.tree.warm.states.shape[1]
            steps[layer] = max(steps.get(layer, 0), fed)
        taken = sum(steps.values())
        depth = sum(layer * count for layer, count in steps.items()) / taken / self._layers
        plain = self._cost.seconds(
            len(drafting), _held([o.context for o in drafting]), len(drafting)
        )
        self._step.add(depth, drafting[0].draft_seconds / taken / plain)

    def table(self, batch: Sequence[Context], depth: int) -> RoundCost:
        """Cost of a round in which all of ``batch`` draft alike, up to ``depth`` levels and nodes.

        The last row runs through all layers in the pass; the others only through those above the exit.
        """
        requests, shares = len(batch), self._shares
        widths = range(requests, requests * (depth + 1) + 1, requests)
        passes = np.array(self._cost.each(widths, _held(batch), requests))
        plain, start = passes[0], self._step.at(0.0)
        steps = plain * (start + shares * (self._step.at(1.0) - start))
        drafts = steps[:, None] * np.arange(depth + 1)
        return RoundCost(drafts + passes + shares[:, None] * (plain - passes), passes)


def _held(batch: Sequence[Context]) -> int:
    """Cached tokens that a pass over this batch attends to."""
    return sum(len(context.ids) for context in batch)
