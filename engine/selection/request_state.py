"""What one request knows of its arms, and which of them drafts."""

from dataclasses import dataclass, field

from engine.request import PLAIN
from engine.selection.tuning import TUNING
from engine.statistics.decayed import Decayed, Speedup


@dataclass(frozen=True, slots=True)
class TaskStats:
    """What a session measured of one kind of task; all its answers share and update it."""

    speedups: dict[str, Speedup]  # of arms that always propose
    not_copied: Decayed  # share of the tokens of its answers


@dataclass
class RequestState:
    """One request; speedups are tokens per plain pass, so that plain decoding has 1."""

    speedups: dict[str, Speedup]  # of arms that always propose, plain decoding included
    overall: Speedup  # of all arms together
    reading: dict[str, float]  # plain passes an arm reads before it drafts; empty once one has read
    task: TaskStats
    arm: str = PLAIN  # drafts in this round
    leader: str = PLAIN  # of the arms that always propose, plain decoding included
    leader_asked: tuple[int, int] = (-1, 0)  # (news, tokens) when the leader was chosen
    trial_arm: str = PLAIN
    trial_rounds: int = 0  # rounds left of the trial
    empty_rounds: int = 0  # rounds of the trial in a row without a draft
    emitted: int = 0
    saved: float = 0.0  # plain passes that drafts saved so far, less those that they cost
    drafted: set[str] = field(default_factory=set)  # arms that have drafted for this request

    @property
    def risk_budget(self) -> float:
        """Plain passes that one proposal may cost: a small start and all that drafts have saved.

        Where rows are dear a long copy takes the time of many tokens. Two failed ones would make
        the whole answer slower than plain decoding, however well copies do on average.
        """
        return TUNING.risk + max(0.0, self.saved)

    @property
    def baseline(self) -> float:
        """The speedup of rounds without a proposal; at least 1.

        Of a burst of copies only a share counts, or no short copy would ever pay for its rows.
        """
        copying = 1 + TUNING.copy_share * (self.overall.value - 1)
        return max(1.0, self.speedups[self.leader].value, copying)

    @property
    def leader_gain(self) -> float:
        """Tokens that a round of the leader brings beyond the baseline.

        Taking in each round what gains most in this sense brings the most tokens in the long run.
        """
        speedup = self.speedups[self.leader]
        return speedup.length * (self.upper_bound(self.leader) - self.baseline)

    def upper_bound(self, arm: str) -> float:
        """The speedup that an arm may turn out to have in this request."""
        return self.speedups[arm].upper_bound(TUNING.credit)

    def count(self, tokens: int, passes: float, *, copied: bool) -> None:
        """One round: its tokens, and the plain passes that its seconds would have paid for."""
        self.emitted += tokens
        self.task.not_copied.add(tokens * (not copied), tokens, TUNING.session_memory)
        self.saved += tokens - passes if self.arm != PLAIN else 0.0

    def first_draft(self) -> bool:
        """Whether the arm drafted for the first time: it read the prompt, so its time says nothing."""
        if self.arm in self.drafted:
            return False
        self.drafted.add(self.arm)
        if self.arm in self.reading:
            self.reading.clear()  # they share a draft model
        return True
