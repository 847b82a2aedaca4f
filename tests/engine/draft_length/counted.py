"""Contexts, counts, costs and outcomes that tests of dynamic exits start from."""

from dataclasses import replace

import numpy as np
import torch

from engine.draft_length.exit_value import ExitOdds, RoundCost
from engine.draft_length.shadow_tokens import Counts, bin_of
from engine.draft_length.tuning import TUNING
from engine.interfaces.drafter import Context, Outcome
from engine.request import SamplingParams
from engine.speculation.tree import ReusedRows, chain
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost

GREEDY = SamplingParams()
BINS, COLUMNS, RANKS = TUNING.bins, TUNING.columns, len(TUNING.sibling_shares)


def context(request=1, ids=(1,), sampling=GREEDY, chance=None):
    return Context(request, 0, list(ids), sampling, chance)


def counts(*exits):
    """Counts of exits from lists of (confidence, matched)."""
    found = Counts.empty(len(exits)).table
    for exit_layer, tokens in enumerate(exits):
        for confidence, matched in tokens:
            missed = int(not matched)
            found[exit_layer, missed * BINS + bin_of(confidence, BINS)] += 1
            found[exit_layer, 2 * BINS + missed] += confidence
    return Counts(found)


def units(layers, depth):
    """The paper's denominator, [L - 1, depth + 1]."""
    return np.arange(1, layers)[:, None] * np.arange(depth + 1) + layers


def chains(layers, depth):
    """The same as the cost of a round, where only chains are possible."""
    return RoundCost(units(layers, depth).astype(float))


def odds(alpha, caught=None):
    """Of exits with this acceptance; siblings catch nothing unless ``caught`` is given."""
    none = np.zeros((len(alpha), RANKS))
    return ExitOdds(np.asarray(alpha, float), none if caught is None else np.asarray(caught, float))


def drafted(depth, layer, seconds, request=1):
    tree = replace(chain(range(depth + 1)), warm=ReusedRows(torch.zeros(layer, depth, 4)))
    return Outcome(context(request), tree, Verdict((0,), 0), seconds, 1.0)


def flat(seconds=0.1):
    return PassCost({1: seconds})
