"""Stop threshold: how likely full acceptance must be for a chain to grow, at the rate of tokens.

SpecDec++ (arXiv 2405.19715, theorem 3.1) states the optimum as a threshold on P(some token is
rejected), (c2 + D) / (c1 + c2 + D) with the costs c1 of a draft step and c2 of a verification and a
constant D of the problem. Here the threshold is measured: one more token takes s seconds, in which
the best allocation's R tokens a second would bring R s tokens, so a chain ends below

    P(nothing is rejected, the next token included) = R s

where each rule has its own estimate of that chance. The seconds are those of the token's row in the
pass, of its row in the draft, and of a share of the draft's step: the chains that still grow share it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from engine.draft_length.tuning import TUNING
from engine.statistics.pass_cost import StepSeconds

FREE = StepSeconds(0.0, 0.0, 0.0)


@dataclass
class StopThreshold:
    """Least chances of full acceptance for which the chains of one round grow."""

    rate: float  # tokens that a second must bring
    rows: Sequence[float]  # seconds of one more row in the pass, after 1, 2, ... drafted tokens
    draft: StepSeconds
    growing: int  # chains that no rule has ended; few end by a stop token or with their answer
    least: float = TUNING.least_floor

    @classmethod
    def constant(cls, floor: float) -> "StopThreshold":
        """The same floor everywhere, whatever tokens cost."""
        return cls(0.0, (0.0,), FREE, 1, floor)

    def after(self, drafted: int) -> float:
        """The floor of a chain of ``drafted`` tokens."""
        row = self.rows[min(drafted, len(self.rows)) - 1]
        step = self.draft.step / max(1, self.growing)
        return max(self.rate * (row + self.draft.row + step), self.least)

    def ends(self, survival: float, drafted: int) -> bool:
        """Whether a chain of ``drafted`` tokens that is right with this chance ends."""
        if survival >= self.after(drafted):
            return False
        self.growing -= 1
        return True


@dataclass
class ConfidenceStop:
    """Stops once a token was less likely than ``tau``, or all of them together than their floor.

    Tokens are accepted more often than the draft says, which makes up for the next one's acceptance.
    """

    tau: float
    threshold: StopThreshold
    survival: float = 1.0
    drafted: int = 0

    def drawn(self, probability: float) -> bool:
        """The token stays in the draft either way: to drop it for what it is would be a bias."""
        self.survival *= probability
        self.drafted += 1
        if probability < self.tau:
            self.threshold.growing -= 1
            return True
        return self.threshold.ends(self.survival, self.drafted)

    def fed(self, hidden: Tensor) -> bool:
        """States are not read."""
        return False
