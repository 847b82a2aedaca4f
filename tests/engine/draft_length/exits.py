"""What tests of dynamic exits share: counts, costs, and a target with a distribution for every layer."""

from dataclasses import replace

import numpy as np
import torch

from engine.draft_length.dynamic_exit import DynamicExit
from engine.draft_length.exit_counts import ExitCounts, bin_of
from engine.draft_length.tuning import TUNING
from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.tree import ReusedRows, chain
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost
from tests.engine.tiny import Markov, decoded

GREEDY = SamplingParams()
BINS = TUNING.bins


def context(request=1, ids=(1,), sampling=GREEDY, chance=None):
    return Context(request, 0, list(ids), sampling, chance)


def counts(*exits):
    """Counts of exits from lists of (confidence, matched)."""
    found = ExitCounts.empty(len(exits)).table
    for exit_layer, tokens in enumerate(exits):
        for confidence, matched in tokens:
            found[exit_layer, int(not matched), bin_of(confidence)] += 1
    return ExitCounts(found)


def units(layers, depth):
    """The paper's denominator, [L - 1, depth + 1]."""
    return (np.arange(1, layers)[:, None] * np.arange(depth + 1) + layers).astype(float)


def drafted(depth, layer, seconds, request=1):
    tree = replace(chain(range(depth + 1)), warm=ReusedRows(torch.zeros(layer, depth, 4)))
    return Outcome(context(request), tree, Verdict((0,), 0), seconds, 1.0)


def flat(seconds=0.1):
    return PassCost({1: seconds})


LONGEST = Budget(6, 6)


class Deep(Markov):
    """A Markov target with a distribution for every layer; the last one is the target's."""

    def __init__(self, *laws):
        super().__init__(laws[-1])
        self.layers = len(laws)
        self.by_layer = torch.stack([law.double().log() for law in laws])  # [L, V, V]

    def shallow(self, slots, tokens, layers):
        super().shallow(slots, tokens, layers)
        return self.by_layer[layers - 1, list(tokens)], self._states(tokens)[:layers]

    def read(self, states):
        return self.by_layer[states[..., 0].long(), states[..., 1].long()]

    def _states(self, tokens):
        names = torch.tensor(list(tokens), dtype=torch.float64)
        levels = range(self.layers)
        return torch.stack([torch.stack((torch.full_like(names, at), names), -1) for at in levels])


def one_hot(*following):
    """Probabilities [V, V]: token i is nearly always followed by ``following[i]``."""
    law = torch.full((len(following),) * 2, 1e-6, dtype=torch.float64)
    law[range(len(following)), list(following)] = 1.0
    return law / law.sum(-1, keepdim=True)


def new(target):
    """A policy whose passes are never measured: its costs are the paper's, the same on every machine."""
    return DynamicExit(DrafterResources(target), "early_exit")


def drafts(target, policy, ids, until, sampling=GREEDY):
    """(budget, outcome) of every round of an answer; ``ids`` grows."""
    chance, given = SeededRandom(3), []
    target.feed(0, ids[:-1])
    drafter = EarlyExit(DrafterResources(target))

    def draft(here):
        given[:] = policy.budgets([here], [LONGEST])
        return drafter.draft([here], given)[0]

    for outcome in decoded(target, ids, until, draft, sampling=sampling, rng=chance):
        yield given[0], outcome
        policy.observe([outcome])


def rounds(target, policy, ids, until, sampling=GREEDY):
    """The outcomes alone."""
    return (outcome for _, outcome in drafts(target, policy, ids, until, sampling))
