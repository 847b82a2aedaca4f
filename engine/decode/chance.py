"""Every random decision of a request, behind three methods that tests can enumerate."""

from typing import Protocol

import torch
from torch import Generator, Tensor


class Chance(Protocol):
    """Source of randomness; independent of everything it was asked before."""

    def draw(self, law: Tensor) -> int:
        """A token of ``law`` [V] (need not be normalised, must have mass)."""
        ...

    def accept(self, wanted: float, offered: float) -> bool:
        """True with probability min(1, wanted / offered); never divides."""
        ...

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """``count`` tokens in draw order, without replacement; fewer when the mass runs out."""
        ...


class SeededChance:
    """Chance over one torch Generator; a request owns exactly one."""

    def __init__(self, seed: int | None) -> None:
        self._generator = Generator()
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)

    def draw(self, law: Tensor) -> int:
        """Exponential race: argmax of p / Exp(1) follows p."""
        return int((law / self._race(law)).argmax())

    def accept(self, wanted: float, offered: float) -> bool:
        """Strict comparison, so a token without mass under the target is never accepted."""
        return (
            float(torch.rand((), generator=self._generator, dtype=torch.float64)) * offered < wanted
        )

    def draw_distinct(self, law: Tensor, count: int) -> list[int]:
        """The first finishers of the same race are sequential draws without replacement."""
        possible = int((law > 0).sum())
        order = (law / self._race(law)).topk(min(count, possible)).indices
        return [int(token) for token in order]

    def _race(self, law: Tensor) -> Tensor:
        times = torch.empty(law.shape, dtype=torch.float64)
        return times.exponential_(generator=self._generator).clamp_(min=1e-300).to(law.device)
