"""A target with a distribution for every layer, and dynamic exits over it."""

import torch

from engine.draft_length.dynamic_exit import DynamicExit
from engine.draft_length.tuning import TUNING
from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.speculation.rng import SeededRandom
from engine.speculation.verify import verify
from tests.engine.draft_length.counted import GREEDY
from tests.engine.tiny import Markov

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


def new(target, tuning=TUNING, **options):
    """A policy with costs in the paper's units, so that its choices are the same on every machine."""
    parts = DrafterResources(target, options={"units": 1.0, **options})
    return DynamicExit(parts, "early_exit", tuning)


def over(target, cost, **options):
    """A policy with measured passes."""
    return DynamicExit(DrafterResources(target, cost=cost, options=options), "early_exit")


def drafts(target, policy, ids, until, sampling=GREEDY):
    """(budget, outcome) of every round of an answer; ``ids`` grows."""
    chance, target_length = SeededRandom(3), len(ids) + until
    states = target.feed(0, ids[:-1], policy.prompt_rows)
    policy.prompt(Context(1, 0, ids, sampling, chance), states)
    drafter = EarlyExit(DrafterResources(target))
    while len(ids) < target_length:
        here = Context(1, 0, list(ids), sampling, chance)
        [budget] = policy.budgets([here], [LONGEST])
        [tree] = drafter.draft([here], [budget])
        [scores] = target.score([0], [tree])
        verdict = verify(tree, scores.logits, sampling, chance)
        outcome = Outcome(here, tree, verdict, 0.0, 0.0, scores)
        yield budget, outcome
        policy.observe([outcome])
        target.commit(0, verdict.path)
        ids += [*(tree.tokens[n] for n in verdict.path[1:]), verdict.bonus]


def rounds(target, policy, ids, until, sampling=GREEDY):
    """The outcomes alone."""
    return (outcome for _, outcome in drafts(target, policy, ids, until, sampling))
