"""What one request knows of its arms, and which of them drafts."""

from dataclasses import dataclass, field

from engine.request import PLAIN
from engine.selection.tuning import TUNING
from engine.statistics.decayed import Speedup


@dataclass
class RequestState:
    """One request; speedups are tokens per plain pass, so that plain decoding has 1."""

    task: str
    speedups: dict[str, Speedup]  # of arms that always propose
    reading: dict[str, float]  # plain passes an arm reads before it drafts; empty once one has read
    arm: str = PLAIN  # drafts in this round
    leader: str = PLAIN  # of the arms that always propose, plain decoding included
    emitted: int = 0
    saved: float = 0.0  # plain passes that drafts saved so far, less those that they cost
    drafted: set[str] = field(default_factory=set)  # arms that have drafted for this request

    @property
    def may_risk(self) -> bool:
        """Whether the answer may lose more on arms that are not known."""
        return self.saved > -(TUNING.risk + TUNING.risk_share * self.emitted)

    @property
    def risk_budget(self) -> float:
        """Plain passes that one copy may cost: a small start and all that drafts have saved.

        Where rows are dear a long copy takes the time of many tokens. Two failed ones would make
        the whole answer slower than plain decoding, however well copies do on average.
        """
        return TUNING.risk + max(0.0, self.saved)

    def count(self, tokens: int, passes: float) -> None:
        """One round: its tokens, and the plain passes that its seconds would have paid for."""
        self.emitted += tokens
        self.saved += tokens - passes if self.arm != PLAIN else 0.0

    def first_draft(self) -> bool:
        """Whether the arm drafted for the first time: it read the prompt, so its time says nothing."""
        if self.arm in self.drafted:
            return False
        self.drafted.add(self.arm)
        if self.arm in self.reading:
            self.reading.clear()  # they share a draft model
        return True
