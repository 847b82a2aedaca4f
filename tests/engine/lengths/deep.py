"""A target with a law for every layer, and dynamic exits over it."""

import torch

from engine.lengths.dynamic_exit import DynamicExit
from engine.protocols.drafting import Parts
from tests.engine.tiny import Markov

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
    return DynamicExit(Parts(target, options={"units": 1.0, **options}), "early_exit")
