"""A target whose passes of many rows round otherwise than passes of one, by a known amount."""

from collections import defaultdict
from dataclasses import replace

import torch

from engine.models.own.target import TorchTarget

NOISE = 0.5  # of a difference of two logits: about one choice in ten is a near tie


class Rounding(TorchTarget):
    """Adds noise to the logits of passes of many rows, and of all rows behind what those wrote."""

    def __init__(self, weights):
        super().__init__(weights)
        self.wide, self.rows = defaultdict(list), 0

    def score(self, slots, trees):
        self.rows = sum(map(len, trees))
        found = super().score(slots, trees)
        for at, (slot, scores) in enumerate(zip(slots, found, strict=True)):
            if self.rows > 1 or any(self.wide[slot]):
                generator = torch.Generator().manual_seed(
                    1000 * self.rows + at + 7 * sum(self.wide[slot])
                )
                noise = torch.rand(scores.logits.shape, generator=generator) - 0.5
                found[at] = replace(scores, rows=scores.logits + NOISE * noise)
        return found

    def feed(self, slot, tokens):
        self.rows = 0  # what a prompt's passes write is plain decoding's, too
        return super().feed(slot, tokens)

    def commit(self, slot, path):
        super().commit(slot, path)
        self.wide[slot] += [self.rows > 1] * len(path)

    def crop(self, slot, length):
        super().crop(slot, length)
        del self.wide[slot][length:]

    def share(self, source, slot, length):
        super().share(source, slot, length)
        self.wide[slot] = self.wide[source][:length]
