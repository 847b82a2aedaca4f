"""What an early exit costs and brings: DEL's tokens per layer, over seconds of this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.cost import Line, PassCost
from engine.protocols.drafting import Context, Outcome

GUESSES = 3  # calls that the paper's cost of a draft step counts for, before any was measured


@dataclass(frozen=True, slots=True)
class Choice:
    """The best exit and depth; at depth 0 the exit is the best of those that lose."""

    exit: int
    depth: int
    rate: float  # expected tokens per unit of cost
    alpha: float  # of the exit


def best_exit(alpha: np.ndarray, cost: np.ndarray) -> Choice:
    """Argmax over l and d of (1 + alpha_l + .. + alpha_l^d) / cost[l, d].

    ``alpha`` [E] and ``cost`` [E, D + 1] belong to the exits after layers 1..E, D >= 1; cost[:, 0]
    is a plain pass. Ties go to plain decoding.
    """
    rates = _rates(alpha, cost)
    layer, depth = divmod(int(rates[:, 1:].argmax()), cost.shape[1] - 1)
    plain, best = float(rates[0, 0]), float(rates[layer, depth + 1])
    taken, rate = (depth + 1, best) if best > plain else (0, plain)
    return Choice(layer + 1, taken, rate, float(alpha[layer]))


def best_rate(exit_layer: int, alpha: np.ndarray, cost: np.ndarray) -> float:
    """Of this exit alone, at the depth that suits it."""
    at = slice(exit_layer - 1, exit_layer)
    return float(_rates(alpha[at], cost[at]).max())


def _rates(alpha: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Expected tokens of every exit and depth per unit of cost, [E, D + 1]."""
    powers = alpha[:, None] ** np.arange(cost.shape[1])
    return np.asarray(powers.cumsum(1) / cost)


class ExitCost:
    """What a round costs for every exit and depth.

    A draft step is measured in plain passes of one row and is a line over the exit's share of the
    layers: head and overhead are its height at 0. It starts as the paper's l / L, so firmly that the
    first calls, which may be slow for reasons of their own, do not overturn it.
    """

    def __init__(self, cost: PassCost, layers: int, *, paper: bool) -> None:
        """``paper``: always cost d l + L."""
        self._cost = PassCost() if paper else cost
        self._layers = layers
        self._shares = np.arange(1, layers) / layers
        self._step = Line()
        for share in (0.0, 1.0) * GUESSES:
            self._step.add(share, share)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """One drafting call; requests with the same exit took their steps together."""
        drafting = [o for o in outcomes if o.tree.drafted and o.tree.warm is not None]
        if not drafting or not self._cost.knots:
            return
        steps: dict[int, int] = {}
        for outcome in drafting:
            assert outcome.tree.warm is not None
            layer = outcome.tree.warm.layer
            steps[layer] = max(steps.get(layer, 0), outcome.tree.drafted)
        taken = sum(steps.values())
        depth = sum(layer * count for layer, count in steps.items()) / taken / self._layers
        plain = self._cost.seconds(len(drafting), _held([o.context for o in drafting]))
        self._step.add(depth, drafting[0].draft_seconds / taken / plain)

    def table(self, batch: Sequence[Context], depth: int) -> np.ndarray:
        """Seconds [L - 1, depth + 1] of a round in which all of ``batch`` do the same.

        The last row runs through all layers in the pass; the others only through those above the
        exit. Unmeasured, a pass counts 1 and this is the paper's d l + L over L.
        """
        held, requests, shares = _held(batch), len(batch), self._shares
        widths = range(requests, requests * (depth + 1) + 1, requests)
        passes = np.array(self._cost.each(widths, held))
        plain, start = passes[0], self._step.at(0.0)
        steps = plain * (start + shares * (self._step.at(1.0) - start))
        # Layers above the exit run over all rows; those below it over the newest one, in the pass.
        drafts = steps[:, None] * np.arange(depth + 1)
        return np.asarray(drafts + passes + shares[:, None] * (plain - passes))


def _held(batch: Sequence[Context]) -> int:
    """Tokens that a pass over this batch looks back at."""
    return sum(len(context.ids) for context in batch)
