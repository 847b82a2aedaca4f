"""Exact laws by running a program once for every outcome of its random decisions."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from itertools import product
from math import prod

import pytest
import torch
from torch import Tensor


class ScriptedChance:
    """Chance that follows a script of option numbers, then takes first options and notes siblings."""

    def __init__(self, script: Sequence[int]) -> None:
        self.weight = 1.0
        self.taken: list[int] = []
        self.siblings: list[list[int]] = []
        self._script = script

    def draw(self, law: Tensor) -> int:
        mass = float(law.sum())
        options = [(t, float(p) / mass) for t, p in enumerate(law.tolist()) if p > 0]
        return options[self._decide([p for _, p in options])][0]

    def accept(self, wanted: float, offered: float) -> bool:
        share = 1.0 if wanted >= offered else wanted / offered
        options = [(True, share), (False, 1 - share)]
        options = [o for o in options if o[1] > 0]
        return options[self._decide([p for _, p in options])][0]

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        rest, drawn = law.clone(), []
        while len(drawn) < count and float(rest.sum()) > 0:
            drawn.append(self.draw(rest))
            rest[drawn[-1]] = 0
        return drawn

    def _decide(self, shares: list[float]) -> int:
        at = len(self.taken)
        chosen = self._script[at] if at < len(self._script) else 0
        if at >= len(self._script):
            self.siblings += [[*self.taken, other] for other in range(1, len(shares))]
        self.taken.append(chosen)
        self.weight *= shares[chosen]
        return chosen


def law_of(run: Callable[[ScriptedChance], Hashable]) -> dict[Hashable, float]:
    """Exact probability of every result of ``run``."""
    found: dict[Hashable, float] = defaultdict(float)
    scripts: list[list[int]] = [[]]
    while scripts:
        chance = ScriptedChance(scripts.pop())
        found[run(chance)] += chance.weight
        scripts += chance.siblings
    return dict(found)


def distance(law: dict[int, float], wanted: Tensor) -> float:
    """Largest absolute difference between an enumerated law and a vector [V]."""
    return max(abs(law.get(t, 0.0) - p) for t, p in enumerate(wanted.double().tolist()))


def random_law(size: int, seed: int, zeros: int = 0) -> Tensor:
    """A float64 law [V] with ``zeros`` impossible tokens."""
    generator = torch.Generator().manual_seed(seed)
    law = torch.rand(size, generator=generator, dtype=torch.float64) ** 2
    law[torch.randperm(size, generator=generator)[:zeros]] = 0
    return law / law.sum()


def rows(*laws: Tensor) -> Tensor:
    """Logits whose softmax is exactly these laws; impossible tokens are -inf."""
    return torch.stack([law.double().log() for law in laws])


def residual(p: Tensor, q: Tensor) -> Tensor:
    """normalise(max(p - q, 0)), [V]; p itself if rounding leaves no mass."""
    rest = (p - q).clamp(min=0)
    mass = rest.sum()
    return rest / mass if mass > 0 else p


def assert_joint_law(found: dict[Hashable, float], laws: Tensor, last: int, length: int) -> None:
    """The found answers have the law of a Markov chain that follows the token ``last``."""
    for answer in product(range(len(laws)), repeat=length):
        steps = zip((last, *answer), answer, strict=False)
        wanted = prod(float(laws[token, following]) for token, following in steps)
        assert found.get(answer, 0.0) == pytest.approx(wanted, abs=1e-12)
