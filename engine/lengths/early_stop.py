"""Chains that end early: goodput decides whether to draft, a rule token by token how far it goes.

A draft goes on while the chance that all of it is accepted is more than what the next token costs.
SpecDec++ (arXiv 2405.19715, theorem 3.1) states the optimum as a threshold on P(some token is
rejected), (c2 + D) / (c1 + c2 + D) with the costs c1 of a draft step and c2 of a verification and a
constant D of the problem. Here the threshold is measured: one more step, and its row in the pass,
take s seconds, in which the present rate of R tokens a second would bring R s tokens, so the chain
ends below

    P(nothing is rejected) = patience R s

Looking one token ahead makes ``patience`` the inverse of the next token's acceptance, about 1.3,
where the chance is a calibrated one; a rule whose chances are too low needs less. Each rule states
its own. Over draft steps of 0.03 to 0.33 target passes, word problems, chores and open questions,
greedy and sampled, one patience came within a percent of the best constant threshold for each case.
(On a CPU the row is no small part: counting the step alone cost the acceptance head 3 %. Nor are
rows alike: six may cost what one does and the seventh a twentieth of a pass, so every length has a
threshold of its own.)
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from torch import Tensor

from engine.errors import InvalidRequest
from engine.lengths.goodput import Goodput
from engine.pace import earlier
from engine.protocols.drafting import Budget, Context, Outcome, Parts, Rule, Stop

LEAST, MOST, UNMEASURED = 0.02, 0.9, 0.15  # of the threshold on the chance of full acceptance
FORGETTING = 0.98  # weight of the past per round
TRUSTED = 8  # rounds before the measured threshold counts
SHORT = 8  # tokens of the draft that goodput is asked about
BELIEVED = 3  # rounds between two questions whether to draft, each of which takes 0.2 ms
LONGEST = 20  # tokens of one draft, as in the paper


@dataclass
class Price:
    """Tokens that the seconds of one more draft step would bring at the present rate."""

    patience: float
    step: float = 0.0  # seconds of a draft step as it was measured at load; 0: it was not
    pace: float | None = None  # times plain decoding, in earlier sessions; None: there were none
    tokens: float = 0.0
    seconds: float = 0.0  # of whole rounds
    steps: float = 0.0
    drafting: float = 0.0  # seconds of the steps alone
    rounds: int = 0

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """One round of requests that drafted together."""
        first = outcomes[0]
        self.tokens = FORGETTING * self.tokens + sum(len(o.verdict.path) for o in outcomes)
        self.seconds = FORGETTING * self.seconds + first.draft_seconds + first.score_seconds
        # requests share their steps; each is charged its part
        steps = max(o.tree.drafted for o in outcomes) * first.batch
        self.steps = FORGETTING * self.steps + steps
        self.drafting = FORGETTING * self.drafting + first.draft_seconds
        self.rounds += 1

    def floors(self, rows: Sequence[float], plain: float, requests: int = 1) -> tuple[float, ...]:
        """Least chances of full acceptance for which drafts go on, where one more row takes ``rows``.

        Before enough rounds were measured, the rate is what earlier sessions tell of ``plain``, the
        seconds of a plain round of so many requests, which share their draft steps. Without earlier
        sessions it is a constant below most prices: a first trial shows what long drafts bring.
        """
        if self.rounds >= TRUSTED and self.seconds > 0:
            rate, step = self.tokens / self.seconds, self.drafting / self.steps
        elif self.step > 0 and self.pace is not None:
            rate, step = self.pace * requests / plain, self.step / requests
        else:
            return (UNMEASURED,) * len(rows)
        price = self.patience * rate
        return tuple([min(max(price * (step + row), LEAST), MOST) for row in rows])


class EarlyStop(ABC):
    """Length policy over a stop rule; off, and probing with growing intervals, where goodput says so.

    The option ``limit`` caps the length of a draft.
    """

    prompt_rows: ClassVar[int] = 0
    steers_by: ClassVar[frozenset[Rule]]
    patience: ClassVar[float]  # of the measured threshold

    def __init__(self, parts: Parts, drafter: str, floor: float | None) -> None:
        """``floor`` is the least chance of full acceptance; None: what is measured."""
        limit = option(parts, "limit", 1, 1024)
        self._longest = LONGEST if limit is None else int(limit)
        self._floor = floor
        self._switch = Goodput(parts, drafter)
        self._price, self._cost = Price(self.patience, parts.draft_step), parts.cost
        self._drafter = drafter
        self._on: tuple[int, ...] = ()  # requests that drafted, all of them, when it was last asked
        self._believed = 0  # rounds for which that still counts
        self._drafting: set[int] = set()  # requests whose prompt the draft model has read

    @abstractmethod
    def stop(self, context: Context, floors: Sequence[float]) -> Stop:
        """The rule of one draft: behind its n-th token full acceptance must be likelier than
        ``floors[n - 1]``, or the draft ends."""

    def prompt(self, context: Context, states: Tensor) -> None:  # noqa: B027 - nothing to add
        """Nothing is wanted of the prompt."""

    def budgets(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[Budget]:
        """Nothing where goodput says so, else all that is allowed and a fresh stop."""
        if self._price.rounds == 0:
            self._price.pace = earlier(batch[0].priors.get(self._drafter))
        floors = self._floors(len(batch))
        found = []
        for context, most, drafts in zip(batch, longest, self._drafts(batch, longest), strict=True):
            depth = min(most.depth, most.nodes, self._longest) if drafts else 0
            stop = self.stop(context, floors) if depth else None
            found.append(Budget(depth, depth, stop=stop))
        return found

    def _drafts(self, batch: Sequence[Context], longest: Sequence[Budget]) -> list[bool]:
        """Whether each request drafts at all; where all do twice in a row, that is believed a while.

        Not after the first time, which may be a probe.
        """
        numbers = tuple(context.request for context in batch)
        if self._on == numbers and self._believed > 0:
            self._believed -= 1
            return [True] * len(batch)
        short = [replace(b, depth=min(b.depth, SHORT), nodes=min(b.nodes, SHORT)) for b in longest]
        decided = [budget.depth > 0 for budget in self._switch.budgets(batch, short)]
        self._believed = BELIEVED if self._on == numbers and all(decided) else 0
        self._on = numbers if all(decided) else ()
        return decided

    def _floors(self, requests: int) -> tuple[float, ...]:
        """Of drafts of 1, 2, ... tokens, of each of so many requests."""
        if self._floor is not None:
            return (self._floor,) * self._longest
        widths = range(2 * requests, (self._longest + 2) * requests + 1, requests)
        seconds = self._cost.each(widths)
        rows = [(more - less) / requests for less, more in pairwise(seconds)]
        return self._price.floors(rows, self._cost.seconds(requests), requests)

    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Goodput learns acceptance and costs, the price what a step takes."""
        self._switch.observe(outcomes)
        drafted = [o for o in outcomes if o.tree.drafted]
        # a request's first draft reads the prompt as well, which says nothing about a step
        if drafted and all(o.context.request in self._drafting for o in drafted):
            self._price.add(drafted)
        self._drafting.update(o.context.request for o in drafted)

    def forget(self, request: int) -> None:
        """The request's acceptance goes; costs stay."""
        self._switch.forget(request)
        self._drafting.discard(request)


def option(parts: Parts, name: str, least: float, most: float) -> float | None:
    """A number of the request's options, None where it is not given; raises InvalidRequest."""
    value = parts.options.get(name)
    if value is not None and not least <= value <= most:
        raise InvalidRequest(f"option {name} is {value:g}; choose {least:g} to {most:g}")
    return value
