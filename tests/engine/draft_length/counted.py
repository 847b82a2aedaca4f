"""Contexts, counts, costs and outcomes that tests of dynamic exits start from."""

from dataclasses import replace

import numpy as np
import torch

from engine.draft_length.exit_value import ExitOdds, RoundCost
from engine.draft_length.shadow_tokens import BESIDE, BINS, Counts
from engine.interfaces.drafter import Context, Outcome
from engine.request import SamplingParams
from engine.speculation.tree import ReusedRows, chain
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost

GREEDY = SamplingParams()


def context(request=1, ids=(1,), sampling=GREEDY, chance=None):
    return Context(request, 0, list(ids), sampling, chance)


def counts(*exits):
    """Counts of exits from lists of (confidence, matched)."""
    found = Counts.empty(len(exits)).table
    for exit_layer, tokens in enumerate(exits):
        for confidence, matched in tokens:
            missed = int(not matched)
            place = min(int(confidence * BINS), BINS - 1)
            found[exit_layer, missed * BINS + place] += 1
            found[exit_layer, 2 * BINS + missed] += confidence
    return Counts(found)


def units(layers, depth):
    """The paper's denominator, [L - 1, depth + 1]."""
    return np.arange(1, layers)[:, None] * np.arange(depth + 1) + layers


def chains(layers, depth):
    """The same as what a round costs, of any width infinitely much but one."""
    return RoundCost(units(layers, depth).astype(float))


def odds(alpha, caught=None):
    """Of exits with this acceptance; of their misses nothing is caught unless it is said what."""
    none = np.zeros((len(alpha), len(BESIDE)))
    return ExitOdds(np.asarray(alpha, float), none if caught is None else np.asarray(caught, float))


def drafted(depth, layer, seconds, request=1):
    tree = replace(chain(range(depth + 1)), warm=ReusedRows(torch.zeros(layer, depth, 4)))
    return Outcome(context(request), tree, Verdict((0,), 0), seconds, 1.0)


def flat(seconds=0.1):
    cost = PassCost()
    cost.profile(1, seconds)
    return cost
