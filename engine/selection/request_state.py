"""Match: the arms of one request, what they measured for it, and which of them plays."""

from dataclasses import dataclass, field

from engine.request import PLAIN
from engine.statistics.speedup import CopyShare, Speedup

STAKE = 1.0  # plain passes that an answer may bet on a proposal, with all that it won so far
BY_COPIES = 0.5  # of what copies lately brought, that tokens to come are expected to share in
FAST = 0.9  # what is left per round of the request's own pace; of the session's SLOW is
CREDIT = 0.15  # for luck: share of a pace over the root of its rounds


@dataclass(frozen=True, slots=True)
class TaskStats:
    """What a session measured of one kind of task; its answers share and go on measuring it."""

    paces: dict[str, Speedup]  # of arms that always propose
    origins: CopyShare  # of the tokens of its answers


@dataclass
class RequestState:
    """One request; paces are tokens per plain pass, so that plain decoding has 1."""

    paces: dict[str, Speedup]  # of arms that always propose
    whole: Speedup  # of all arms
    reading: dict[str, float]  # plain passes before an arm can draft; none once one of them did
    kind: TaskStats
    playing: str = PLAIN
    favourite: str = PLAIN  # of the arms that always propose, plain among them
    emitted: int = 0
    won: float = 0.0  # plain passes that drafts saved so far, those that they cost taken off
    judged: tuple[int, int] = (-1, 0)  # what was known when the favourite was chosen
    stint: int = 0  # rounds that the arm on trial still has
    on_trial: str = PLAIN
    undrafted: int = 0  # rounds of the trial in a row
    read: set[str] = field(default_factory=set)  # arms that have drafted for this request

    @property
    def stake(self) -> float:
        """Plain passes that a proposal may cost: a copy that pays is soon a long one, others cost little.

        Where rows are dear a long copy takes the time of many tokens. Two that went wrong would make
        a whole answer slower than plain, however well such bets turn out on average.
        """
        return STAKE + max(0.0, self.won)

    @property
    def rate(self) -> float:
        """The pace at which tokens come otherwise: never less than plain's, which can always be had.

        A text that was just copied made tokens cheap, but what is left of it goes on at less: at the
        whole pace of such a burst no short copy was worth its rows.
        """
        copied = 1 + BY_COPIES * (self.whole.value - 1)
        return max(1.0, self.paces[self.favourite].value, copied)

    @property
    def usual(self) -> float:
        """Tokens that a round of the favourite brings more than the request's rounds on average.

        Over many rounds the most tokens come from taking, in each, what brings most in this sense.
        """
        pace = self.paces[self.favourite]
        return pace.length * (optimistic(pace) - self.rate)

    def count(self, tokens: int, passes: float, *, copied: bool) -> None:
        """One round of the arm that plays: tokens, and the plain passes whose seconds they took."""
        self.emitted += tokens
        self.kind.origins.add(tokens, copied=copied)
        self.won += tokens - passes if self.playing != PLAIN else 0.0

    def first_read(self) -> bool:
        """Whether the arm that plays read the prompt in this round: says nothing of other rounds."""
        if self.playing in self.read:
            return False
        self.read.add(self.playing)
        if self.playing in self.reading:
            self.reading.clear()  # they share a draft model
        return True


def optimistic(pace: Speedup) -> float:
    """What an arm may turn out to be."""
    return pace.lucky(CREDIT)
