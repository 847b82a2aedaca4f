"""Arms of known worth, and requests that are played with them."""

from dataclasses import dataclass, field, replace

from engine.draft_length.fixed import Fixed
from engine.drafters.auto import Auto
from engine.interfaces.drafter import Arm, Budget, Context, Drafter, DrafterResources, Outcome
from engine.interfaces.target import Capability
from engine.request import SamplingParams
from engine.speculation.tree import chain, single
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost

ROOM = Budget(8, 8)


@dataclass
class Scripted(Drafter):
    """An arm of known worth: proposes 4 tokens every ``every``-th round, ``accepted`` of them right."""

    accepted: int
    seconds: float  # of a round in which it drafted; a plain pass takes 1
    every: int = 1
    proposes_rarely: bool = False
    max_draft: Budget = field(default_factory=lambda: Budget(4, 4))
    hoped: float | None = None  # tokens; None: those that come
    later: float = 0.0  # tokens that this lets later rounds copy
    rounds: int = 0
    heard: int = 0
    forgotten: int = 0

    def draft(self, batch, budgets):
        self.rounds += 1
        if self.rounds % self.every:
            return [single(1) for _ in batch]
        hoped = float(self.accepted) if self.hoped is None else self.hoped
        return [replace(chain([1, 2, 3, 4, 5]), expected=hoped, later=self.later) for _ in batch]

    def observe(self, outcomes):
        self.heard += len(outcomes)

    def forget(self, request, slot):
        self.forgotten += 1


@dataclass
class Reads(Scripted):
    """Like a draft model: a prompt costs so many plain passes before its first draft."""

    prompt: float = 0.0

    needs = frozenset({Capability.DRAFT_MODEL})

    def prefill_seconds(self, context):
        return self.prompt if context.request > 1 else 0.0


@dataclass
class Steps(Scripted):
    """An arm that knows what a step of its drafts takes."""

    step_seconds: float = 0.0


@dataclass
class Judge:
    """As much of a target as an arbiter looks at."""

    offers: frozenset = frozenset()


def auto_over(offers=frozenset(), **arms):
    cost = PassCost()
    cost.profile(1, 1.0)
    cost.profile(8, 1.0)
    plain = Scripted(0, 1.0, every=10**9, proposes_rarely=True)
    parts = DrafterResources(Judge(offers), cost=cost)
    pairs = {"none": plain, **arms}
    return Auto(replace(parts, arms={n: Arm(a, Fixed(parts, n)) for n, a in pairs.items()}))


def play(auto, rounds, request=1, priors=(), task=""):
    """(rounds by arm, seconds spent, tokens emitted) of one request."""
    context = Context(request, 0, [1], SamplingParams(), None, priors=dict(priors), task=task)
    played, seconds, tokens = [], 0.0, 0
    for _ in range(rounds):
        [tree] = auto.draft([context], [ROOM])
        name = auto.active_arm(request)
        arm = auto.arms[name].drafter
        path = tuple(range(1 + min(arm.accepted, tree.drafted)))
        cost = arm.seconds if tree.drafted else 1.0
        auto.observe([Outcome(context, tree, Verdict(path, 0), cost - 1.0, 1.0)])
        played.append(name)
        seconds, tokens = seconds + cost, tokens + len(path)
    return played, seconds, tokens
