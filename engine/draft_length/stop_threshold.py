"""Floors: how likely full acceptance must be for chains to go on, at the rate at which tokens come.

SpecDec++ (arXiv 2405.19715, theorem 3.1) states the optimum as a threshold on P(some token is
rejected), (c2 + D) / (c1 + c2 + D) with the costs c1 of a draft step and c2 of a verification and a
constant D of the problem. Here the threshold is measured: one more token takes s seconds, in which
the best allocation's R tokens a second would bring R s tokens, so a chain ends below

    P(nothing is rejected, the next token included) = R s

where each rule has its own way to tell that chance. The seconds are the token's row in the pass, no
small part on a CPU, where rows are not alike either: six may cost what one does and the seventh a
fifth of a pass more. To them come the row in the draft and a part of the draft's step: the chains that
still grow share it, so the last one to go on pays for it alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.statistics.pass_cost import StepSeconds

LEAST = 0.02  # of a floor: where tokens cost nothing, drafts end all the same
FREE = StepSeconds(0.0, 0.0, 0.0)


@dataclass
class StopThreshold:
    """Least chances of full acceptance for which the chains of one round go on."""

    price: float  # tokens that a second must bring
    rows: Sequence[float]  # seconds of one more row in the pass, behind 1, 2, ... drafted tokens
    draft: StepSeconds
    growing: int  # chains that no rule has ended; few end by a stop token or with their answer
    least: float = LEAST

    @classmethod
    def constant(cls, floor: float) -> "StopThreshold":
        """The same floor everywhere, whatever tokens cost."""
        return cls(0.0, (0.0,), FREE, 1, floor)

    def behind(self, drafted: int) -> float:
        """The floor of a chain of so many drafted tokens."""
        row = self.rows[min(drafted, len(self.rows)) - 1]
        step = self.draft.step / max(1, self.growing)
        return max(self.price * (row + self.draft.row + step), self.least)

    def ends(self, survival: float, drafted: int) -> bool:
        """Whether a chain that is right with this chance ends behind so many tokens."""
        if survival >= self.behind(drafted):
            return False
        self.growing -= 1
        return True


@dataclass
class ConfidenceStop:
    """Stops once a token was less likely than ``tau``, or all of them together than their floor.

    Tokens are accepted more often than the draft says, which makes up for the next one's acceptance.
    """

    tau: float
    floors: StopThreshold
    survival: float = 1.0
    drafted: int = 0

    def drawn(self, probability: float) -> bool:
        """The token stays in the draft either way: dropping it for what it is would be a bias."""
        self.survival *= probability
        self.drafted += 1
        if probability < self.tau:
            self.floors.growing -= 1
            return True
        return self.floors.ends(self.survival, self.drafted)

    def fed(self, hidden: Tensor) -> bool:
        """States are not read."""
        return False
