"""A target with a law for every layer, and dynamic exits over it."""

import torch

from engine.draft_length.dynamic_exit import DynamicExit
from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.speculation.rng import SeededRandom
from engine.speculation.verify import verify
from tests.engine.draft_length.counted import GREEDY
from tests.engine.tiny import Markov

LONGEST = Budget(6, 6)
PAPER = (("units", 1.0),)  # decisions that do not depend on how fast this machine is


class Deep(Markov):
    """A Markov target with a law for every layer; the last one is the target's."""

    def __init__(self, *laws):
        super().__init__(laws[-1])
        self.layers = len(laws)
        self._all = torch.stack([law.double().log() for law in laws])  # [L, V, V]

    def shallow(self, slots, tokens, layers):
        super().shallow(slots, tokens, layers)
        return self._all[layers - 1, list(tokens)], self._states(tokens)[:layers]

    def read(self, states):
        return self._all[states[..., 0].long(), states[..., 1].long()]

    def _states(self, tokens):
        names = torch.tensor(list(tokens), dtype=torch.float64)
        levels = range(self.layers)
        return torch.stack([torch.stack((torch.full_like(names, at), names), -1) for at in levels])


def one_hot(*following):
    """A Markov law [V, V] in which token i is all but surely followed by ``following[i]``."""
    law = torch.full((len(following),) * 2, 1e-6, dtype=torch.float64)
    law[range(len(following)), list(following)] = 1.0
    return law / law.sum(-1, keepdim=True)


def new(target, **options):
    return DynamicExit(DrafterResources(target, options={"units": 1.0, **options}), "early_exit")


def over(target, cost, **options):
    """The same with measured passes."""
    return DynamicExit(DrafterResources(target, cost=cost, options=options), "early_exit")


def round_of(policy, target, ids, sampling=GREEDY, chance=None):
    """Draft, score and verify once; what the policy would hear."""
    here = Context(1, 0, list(ids), sampling, chance)
    tree = EarlyExit(DrafterResources(target)).draft([here], policy.budgets([here], [LONGEST]))[0]
    scores = target.score([0], [tree])[0]
    return Outcome(here, tree, verify(tree, scores.logits, sampling, chance), 0.0, 0.0, scores)


def rounds(target, policy, ids, until, sampling=GREEDY):
    """Outcomes of a whole answer; ``ids`` grows."""
    chance, target_length = SeededRandom(3), len(ids) + until
    states = target.feed(0, ids[:-1], policy.prompt_rows)
    policy.prompt(Context(1, 0, ids, sampling, chance), states)
    while len(ids) < target_length:
        outcome = round_of(policy, target, ids, sampling, chance)
        yield outcome
        policy.observe([outcome])
        target.commit(0, outcome.verdict.path)
        ids += [*(outcome.tree.tokens[n] for n in outcome.verdict.path[1:]), outcome.verdict.bonus]
