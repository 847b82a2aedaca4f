"""What tests of dynamic exits share: counts, costs, and a target with a distribution for every layer."""

from dataclasses import replace

import numpy as np
import torch

from engine.draft_length.dynamic_exit import DynamicExit
from engine.draft_length.exit_value import ExitOdds, RoundCost
from engine.draft_length.shadow_tokens import Counts, bin_of
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


LONGEST = Budget(6, 6)
PAPER = (("units", 1.0),)  # decisions that do not depend on how fast this machine is


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


def new(target, **options):
    """A policy with costs in the paper's units, so that its choices are the same on every machine."""
    parts = DrafterResources(target, options={"units": 1.0, **options})
    return DynamicExit(parts, "early_exit")


def over(target, cost, **options):
    """A policy with measured passes."""
    return DynamicExit(DrafterResources(target, cost=cost, options=options), "early_exit")


def drafts(target, policy, ids, until, sampling=GREEDY):
    """(budget, outcome) of every round of an answer; ``ids`` grows."""
    chance, given = SeededRandom(3), []
    states = target.feed(0, ids[:-1], policy.prompt_rows)
    policy.prompt(Context(1, 0, ids, sampling, chance), states)
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
