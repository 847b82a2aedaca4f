"""What drafters and length policies promise, and what they are built from and shown."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import ClassVar, NamedTuple, Protocol

from torch import Tensor

from engine.interfaces.target import UNLIMITED, Capability, Scores, Target
from engine.request import DrafterRun, Option, Prior, SamplingParams
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
    rng: RandomSource
    stop_tokens: frozenset[int] = frozenset()
    priors: Mapping[str, Prior] = field(default_factory=dict)  # by drafter
    task: str = ""  # ``GenerationRequest.task``
    prompt_length: int = 0  # first ``ids``, which the answer follows
    predicted: Sequence[int] = ()  # text to copy from, as if it were between prompt and answer
    grammar: GrammarMatcher | None = None

    def copyable(self, known: int) -> Sequence[int]:
        """The text to copy from after its first ``known`` tokens: ``ids`` with what is predicted."""
        if known or not self.predicted:
            return self.ids[max(0, known - len(self.predicted)) :]
        prompt = self.prompt_length
        return [*self.ids[:prompt], *self.predicted, *self.ids[prompt:]]

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
    """Adds siblings to a chain's tokens: a path that misses the chain may end there."""

    def beside(self, drafted: int) -> Sequence[int]:
        """How many further candidates each of the ``drafted`` tokens of the chain gets.

        May follow from what ``Stop.drawn`` was given: of a candidate that is refused, what is drawn in its
        place has the right law whether there is none or many (tests/engine/drafting/test_chain_draft.py).
        """
        ...


class StopRule(StrEnum):
    """What drafts may end by, besides depth and nodes: length policies set it, some drafters follow it."""

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
        """As far as a drafter goes whose ``max_draft`` this is; chains have one node for each level."""
        nodes = min(own.nodes, self.nodes)
        depth = min(own.depth, self.depth, nodes)
        if own.depth == own.nodes:
            depth = nodes = min(depth, nodes)
        if (depth, nodes) == (self.depth, self.nodes):
            return self
        return replace(self, depth=depth, nodes=nodes)

    def worth(self, chances: Sequence[float], *, copied: bool = False) -> DraftValue:
        """How many of these candidates to draft, with chances that fall, and what they bring.

        With prices, the number at which they gain most over what they must bring, else those above the floor.
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
    again_seconds: float = 0.0  # of them, of decoding the last row again: its choice was a near tie

    @property
    def emitted(self) -> list[int]:
        """Accepted tokens and the target's own."""
        return [*(self.tree.tokens[node] for node in self.verdict.path[1:]), self.verdict.bonus]

    @property
    def plain_pass(self) -> tuple[int, int, int]:
        """Rows, context and requests of the pass without any draft, as ``PassCost`` takes them."""
        return self.batch, len(self.context.ids) * self.batch, self.batch


class Drafter(ABC):
    """Proposes one tree per request; never sees the target's scores of this round.

    A new drafter is one subclass in a file of its own and one line in ``engine.drafters``. Only
    ``title``, ``summary``, ``max_draft`` and ``draft`` have no default.
    """

    # These and ``listed`` are literals: ``engine.drafters.describe`` reads them without an import.
    title: ClassVar[str]
    summary: ClassVar[str]  # one sentence: what it does
    elsewhere: ClassVar[str] = ""  # what other engines call drafts of this kind, for ``export``
    accepted: ClassVar[str] = "were guessed correctly"  # after "12 of 30 tokens"
    plan_when: ClassVar[tuple[str, ...] | None] = None  # a plan uses it where all hold
    plan_reason: ClassVar[str] = ""  # with {exit_layer}, {streamed} and {no_draft_model}

    options: ClassVar[tuple[Option, ...]] = ()
    needs: ClassVar[frozenset[Capability]] = frozenset()
    stop_rules: ClassVar[frozenset[StopRule]] = frozenset()  # those that it follows
    default_length: ClassVar[str] = "fixed"  # the draft length that suits it best
    listed: ClassVar[bool] = True  # shown to people; else only drafters with arms use it
    has_arms: ClassVar[bool] = False  # lets the other drafters draft: it is built with ``arms``
    # Proposes only where it has reason to, and estimates in ``DraftTree.expected`` how much;
    # asking costs next to nothing.
    proposes_rarely: ClassVar[bool] = False
    starts_empty: ClassVar[bool] = False  # what it drafts from is lost when the engine ends
    needs_grammar: ClassVar[bool] = False  # never proposes anything for a request without one
    copies_from: ClassVar[frozenset[str]] = frozenset()  # texts that it copies from

    step_cost: ClassVar[str] = ""  # its name in ``measured``: one step of a draft for one request
    max_draft: Budget  # the longest useful draft; nodes > depth: it drafts trees
    step_seconds: float = 0.0  # of one step of a draft for one request; 0: not measured
    arms: Mapping[str, "Arm"] = MappingProxyType({})

    def __init__(self, resources: "DrafterResources") -> None:  # noqa: B027 - nothing to take
        """Take what the drafter works with."""

    @classmethod
    def measure(cls, resources: "DrafterResources") -> Mapping[str, float]:
        """Costs of its own, by name; measured when a model is loaded, then in ``resources.measured``.

        Raises NumericalError when the draft model's logits are not finite.
        """
        del resources
        return {}

    @abstractmethod
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context, within its budget."""

    def observe(self, outcomes: Sequence[Outcome]) -> None:  # noqa: B027 - nothing to learn
        """Learn from what was accepted."""

    def forget(self, request: int, slot: int) -> None:  # noqa: B027 - nothing to drop
        """A request ended; drop what belongs to it."""

    def replaces(self, other: "Drafter") -> bool:
        """Whether nothing is gained by asking ``other``, too: it copies from fewer texts."""
        return bool(other.copies_from) and other.copies_from < self.copies_from

    def shares(self, request: int) -> tuple[tuple[float, ...], float]:
        """Share of each kind of event in this request, at most 1 in all; number of events.

        For drafters that measure what their drafts depend on; history returns it as a prior.
        """
        del request
        return (), 0.0

    def prefill_seconds(self, context: Context) -> float | None:
        """Seconds to read what was committed since the last draft; None: it has no cache to fill."""
        del context
        return None

    def prefill(self, context: Context) -> bool:
        """Read some of that before a draft is wanted; False: nothing was left to read."""
        return any(arm.drafter.prefill(context) for arm in self.arms.values())

    def active_arm(self, request: int) -> str:
        """The arm that drafted this round; empty: the drafter itself."""
        del request
        return ""

    def explain(self, runs: Sequence[DrafterRun]) -> str:
        """One sentence: why those arms drafted, given what each did; empty: nothing to explain."""
        del runs
        return ""


class DraftLength(ABC):
    """Decides how long drafts are; built from ``DrafterResources`` and the drafter's name."""

    options: ClassVar[tuple[Option, ...]] = ()
    stop_rules: ClassVar[frozenset[StopRule]] = frozenset()  # a drafter must follow all of them

    def __init__(self, resources: "DrafterResources", drafter: str) -> None:  # noqa: B027
        """Take what it measures by."""

    @abstractmethod
    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """One budget for each context of one drafter, at most its ``longest``."""

    def observe(self, outcomes: Sequence[Outcome]) -> None:  # noqa: B027 - nothing to learn
        """Learn from what was accepted and what it cost."""

    def forget(self, request: int) -> None:  # noqa: B027 - nothing to drop
        """A request ended; drop what belongs to it."""


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
    exact_rows: int = UNLIMITED  # of a pass in which each row has the bits that it has alone
    margin: float = 0.0  # below it, a difference of two logits may be rounding's; 0: none may
    measured: Mapping[str, float] = field(default_factory=dict)  # by ``Drafter.measure``
    step_seconds: float = 0.0  # of the drafter whose lengths are set, if it drafts chains
    clock: Callable[[], float] = perf_counter  # seconds
    options: Mapping[str, float] = field(default_factory=dict)
    acceptance_head: Path | None = None
    stop_rules: frozenset[StopRule] = frozenset()  # of the drafter whose lengths a policy sets
    arms: Mapping[str, Arm] = field(default_factory=dict)  # for auto alone
