"""What drafters and length policies promise, and what they are built from and shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from engine.interfaces.target import Capability, Scores, Target
from engine.request import DrafterRun, Prior, SamplingParams
from engine.speculation.copy_planning import copy_gains
from engine.speculation.grammar_mask import GrammarMatcher
from engine.speculation.rng import RandomSource
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost

FLOOR = 0.15  # estimated probability that makes a token worth its row, where nothing says more


@dataclass(frozen=True, slots=True)
class Context:
    """Read-only view of a running request for drafters and policies."""

    request: int
    slot: int
    ids: Sequence[int]  # committed tokens; the last one is the tree's root
    sampling: SamplingParams
    chance: RandomSource
    stop_tokens: frozenset[int] = frozenset()
    priors: Mapping[str, Prior] = field(default_factory=dict)  # by drafter
    task: str = ""  # ``GenerationRequest.task``
    prompt: int = 0  # how many of ``ids`` the answer follows
    foretold: Sequence[int] = ()  # read between prompt and answer by those who copy
    guide: GrammarMatcher | None = None  # of a request that has a format

    def copyable(self, known: int) -> Sequence[int]:
        """The text to copy from, behind its first ``known`` tokens: ``ids`` with what is foretold."""
        if known or not self.foretold:
            return self.ids[max(0, known - len(self.foretold)) :]
        return [*self.ids[: self.prompt], *self.foretold, *self.ids[self.prompt :]]

    @property
    def draws(self) -> bool:
        """Whether candidates are drawn from the draft's law; else they are its likeliest tokens.

        Chosen candidates take one random number for each emitted token, as plain decoding does, so
        a seeded request does not depend on what was drafted. Drawn ones are accepted more often.
        """
        return not self.sampling.greedy and self.sampling.seed is None


class Stop(Protocol):
    """Ends one chain early; sees only drafted tokens, so the law of what is emitted stays."""

    def drawn(self, probability: float) -> bool:
        """A token was drafted with this probability; True: the draft ends with it."""
        ...

    def fed(self, hidden: Tensor) -> bool:
        """The newest token, first the root, ran through the draft model: state [C].

        The state proposes the next token, which is drawn next; True: the draft ends here.
        """
        ...


class Siblings(Protocol):
    """Hangs further candidates beside a chain's tokens: a path that misses the chain may end there."""

    def beside(self, drafted: int) -> Sequence[int]:
        """How many candidates beside its own each of the ``drafted`` tokens of the chain gets.

        May follow from what ``Stop.drawn`` was told: of a candidate that is refused, what is drawn in its
        place has the right law whether there is none or many (tests/engine/drafting/test_chain_draft.py).
        """
        ...


class StopRule(StrEnum):
    """What drafts may end by, besides depth and nodes: length policies set it, some drafters heed it."""

    PRICES = "what rows cost"  # ``Budget.prices``
    FLOOR = "a least probability"  # ``Budget.floor``
    CHANCES = "the chance of every drafted token"  # ``Stop.drawn``
    STATES = "the draft model's states"  # ``Stop.fed``
    EXIT = "the layer where the draft leaves the model"  # ``Budget.exit_layer``


class DraftValue(NamedTuple):
    """How many of a draft's candidates to take, likeliest first, and what that brings."""

    drafted: int
    expected: float  # of them, that are going to hold
    later: float = 0.0  # tokens that rounds to come gain by what this one finds to be a copy


@dataclass(frozen=True, slots=True)
class Budget:
    """How far one draft may go: levels below the root, and nodes in all without the root."""

    depth: int
    nodes: int
    exact: bool = False  # spend all of it; else it is a cap, and a drafter may choose less
    floor: float = 0.0  # least probability under the draft that makes a chosen node worth its row
    prices: tuple[float, ...] = ()  # tokens that 0, 1, ... drafted rows must bring: a drafter that
    #                                 knows its chances drafts where it gains most; in place of floor
    pace: float = 1.0  # what prices are multiplied by
    cheapest: float = 0.0  # least price of a row among ``prices``
    stop: Stop | None = None  # fresh for every draft
    siblings: Siblings | None = None  # likewise, of chains; within ``nodes``
    exit_layer: int | None = None  # early exit only; None: the drafter's own
    trace: bool = False  # the policy wants ``Scores.states`` of this round

    def hopeless(self, chance: float) -> bool:
        """Whether candidates are worth nothing, none of which is likelier than this."""
        return not self.exact and chance <= self.pace * self.cheapest

    def within(self, own: "Budget") -> "Budget":
        """As far as a drafter goes whose ``farthest`` this is; chains have one node for each level."""
        depth, nodes = min(own.depth, self.depth), min(own.nodes, self.nodes)
        if own.depth == own.nodes:
            depth = nodes = min(depth, nodes)
        if (depth, nodes) == (self.depth, self.nodes):
            return self
        return replace(self, depth=depth, nodes=nodes)

    def worth(self, chances: Sequence[float], *, copied: bool = False) -> DraftValue:
        """How many of these candidates to draft, with chances that fall, and what they bring.

        With prices so many that they gain most over what they must bring, else those above the floor.
        What is ``copied`` later is worth something, too: see ``engine.speculation.copy_planning``.
        """
        if self.exact:
            return DraftValue(len(chances), sum(chances))
        if not self.prices:
            least = self.floor or FLOOR
            most = next((i for i, chance in enumerate(chances) if chance < least), len(chances))
            return DraftValue(most, sum(chances[:most]))
        held = list(accumulate(chances, initial=0.0))
        if not copied:
            pairs = zip(held, self.prices, strict=False)
            gained = [sure - self.pace * price for sure, price in pairs]
            most = max(range(len(gained)), key=gained.__getitem__)
            return DraftValue(most, held[most])
        costs = [self.pace * (1 + price) for price in self.prices[: self.nodes + 1]]
        gained = copy_gains(chances, costs)
        most = max(range(len(gained)), key=gained.__getitem__)
        return DraftValue(most, held[most], gained[most] - (1 + held[most] - costs[most]))


@dataclass(frozen=True, slots=True)
class RowPrices:
    """Tokens that 0, 1, ... drafted rows must bring at plain's pace, and the least of any row."""

    rows: tuple[float, ...]
    cheapest: float

    @classmethod
    def of(cls, rows: tuple[float, ...]) -> "RowPrices":
        """With the least price of a row."""
        return cls(rows, min((price / n for n, price in enumerate(rows) if n), default=0.0))

    def budget(self, most: Budget, allowed: Budget, pace: float, stake: float) -> Budget:
        """As much as is useful, allowed and within the stake, at the prices of this pace."""
        return Budget(
            min(most.depth, allowed.depth), min(most.nodes, allowed.nodes, self._most(stake)),
            prices=self.rows, pace=pace, cheapest=self.cheapest,
        )  # fmt: skip

    def _most(self, stake: float) -> int:
        """Rows that cost no more than this; one can always be tried."""
        rows = range(len(self.rows) - 1, 1, -1)
        return next((n for n in rows if self.rows[n] <= stake), 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one draft; seconds are wall time of the whole step it took part in."""

    context: Context
    tree: DraftTree
    verdict: Verdict
    draft_seconds: float  # this drafter's call, for all ``batch`` requests that shared it
    score_seconds: float  # the target's pass, for all rows of the step
    scores: Scores | None = None
    batch: int = 1

    @property
    def own(self) -> "Outcome":
        """The same for who drafted: what was grafted onto the tree stands for the target's own token."""
        tree = self.tree.own
        if tree is self.tree:
            return self
        path = self.verdict.path
        kept = tuple(node for node in path if node < len(tree))
        bonus = self.verdict.bonus if kept == path else self.tree.tokens[path[len(kept)]]
        return replace(self, tree=tree, verdict=Verdict(kept, bonus))


class Drafter(Protocol):
    """Proposes one tree per request; never sees the target's scores of this round."""

    needs: ClassVar[frozenset[Capability]]
    length: ClassVar[Budget]  # the longest useful draft; nodes > depth says that it draws trees
    heeds: ClassVar[frozenset[StopRule]]
    policy: ClassVar[str]  # the name of the length policy that suits it best
    # proposes only where it has reason to, and says in ``DraftTree.expected`` how much; asking
    # costs next to nothing
    declines: ClassVar[bool]

    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context, within its budget."""
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from what was accepted."""
        ...

    def forget(self, request: int, slot: int) -> None:
        """A request ended; drop what belongs to it."""
        ...


class DraftLength(Protocol):
    """Decides how long drafts are; built from ``Parts`` and the drafter's name."""

    steers_by: ClassVar[frozenset[StopRule]]  # a drafter that does not heed all of it is refused
    prompt_rows: ClassVar[int]  # last rows of a prompt whose states it wants; 0: none

    def prompt(self, context: Context, states: Tensor) -> None:
        """States [L, n, C] of the last rows of the prompt; only called if ``prompt_rows``."""
        ...

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """One budget for each context of one drafter, at most its ``longest``."""
        ...

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Learn from what was accepted and what it cost."""
        ...

    def forget(self, request: int) -> None:
        """A request ended; drop what belongs to it."""
        ...


@runtime_checkable
class SelfMeasured(Protocol):
    """A drafter that measures what its next drafts depend on; history gives it back as a prior."""

    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """Share of each kind of event in this request, at most 1 in all, in an order of its own.

        Also how many events were measured, of which the newest may count most.
        """
        ...


@runtime_checkable
class Reader(Protocol):
    """A drafter with a cache of its own: what was committed since it last drafted is read first."""

    def reading(self, context: Context) -> float:
        """Seconds that this is going to take, by what earlier texts took; 0 where none was measured."""
        ...

    def read(self, context: Context) -> bool:
        """Read some of it before a draft is asked for; False: nothing was left to be read."""
        ...


@runtime_checkable
class Stepping(Protocol):
    """A drafter that makes a draft step by step, and knows what a step takes before the first draft."""

    @property
    def step_seconds(self) -> float:
        """Of one step for one request, as measured at load; 0: not measured."""
        ...


def starts_empty(drafter: Drafter) -> bool:
    """Whether what it drafts from goes with the engine: no new session begins as the last one ended."""
    return bool(getattr(drafter, "starts_empty", False))


def stands_in_for(drafter: Drafter) -> frozenset[str]:
    """Drafters that nobody needs beside it: it looks at all that they look at, or is faster here."""
    names: frozenset[str] = getattr(drafter, "stands_in_for", frozenset())
    return names


def only_in_formats(drafter: Drafter) -> bool:
    """Whether it never proposes anything for a request without a format."""
    return bool(getattr(drafter, "only_in_formats", False))


def farthest(drafter: Drafter) -> Budget:
    """How far it goes when nobody asks; its ``reach`` where that depends on what passes cost here."""
    reach: Budget = getattr(drafter, "reach", drafter.length)
    return reach


@runtime_checkable
class Arbiter(Protocol):
    """A drafter that lets others draft."""

    arms: Mapping[str, "Arm"]

    def playing(self, request: int) -> str:
        """The arm that drafted this round."""
        ...

    def reason(self, runs: Sequence[DrafterRun]) -> str:
        """One sentence: why it was those arms, of what each did for a request."""
        ...


@dataclass(frozen=True, slots=True)
class Arm:
    """A drafter with the policy that sets its lengths: what ``auto`` chooses among."""

    drafter: Drafter
    policy: DraftLength


@dataclass(frozen=True, slots=True)
class DrafterResources:
    """What every drafter and policy is built from."""

    target: Target
    draft_model: Target | None = None
    cost: PassCost = field(default_factory=PassCost)
    draft_step: float = 0.0  # seconds of one row through the draft model; 0: not measured
    draft_read: float = 0.0  # seconds for each token of a text that it reads at once; likewise
    exit_step: float = 0.0  # seconds of one row through the usual early exit; likewise
    options: Mapping[str, float] = field(default_factory=dict)
    acceptance_head: Path | None = None
    heeds: frozenset[StopRule] = frozenset()  # of the drafter whose lengths a policy sets
    arms: Mapping[str, Arm] = field(default_factory=dict)  # for auto alone
