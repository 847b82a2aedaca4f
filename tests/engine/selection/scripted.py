"""Arms of known speed, and requests that are decoded with them."""

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
    """Proposes 4 tokens in every ``every``-th round, of which the target accepts ``right``."""

    right: int
    seconds: float  # of a round in which it drafted; a plain pass takes 1
    every: int = 1
    proposes_rarely: bool = False
    max_draft: Budget = field(default_factory=lambda: Budget(4, 4))
    expects: float | None = None  # accepted tokens; None: as many as are accepted
    later: float = 0.0  # tokens that later rounds can copy
    rounds: int = 0
    heard: int = 0
    forgotten: int = 0

    def draft(self, batch, budgets):
        self.rounds += 1
        if self.rounds % self.every:
            return [single(1) for _ in batch]
        tokens = float(self.right) if self.expects is None else self.expects
        return [replace(chain([1, 2, 3, 4, 5]), expected=tokens, later=self.later) for _ in batch]

    def observe(self, outcomes):
        self.heard += len(outcomes)

    def forget(self, request, slot):
        self.forgotten += 1


@dataclass
class Reads(Scripted):
    """Like a draft model: reads the prompt before its first draft."""

    prompt: float = 0.0  # plain passes

    needs = frozenset({Capability.DRAFT_MODEL})

    def prefill_seconds(self, context):
        return self.prompt if context.request > 1 else 0.0


@dataclass
class Steps(Scripted):
    """Knows the seconds of a draft step."""

    step_seconds: float = 0.0


def auto_over(cost=None, **arms):
    cost = cost or PassCost({1: 1.0, 8: 1.0})
    plain = Scripted(0, 1.0, every=10**9, proposes_rarely=True)
    parts = DrafterResources(None, cost=cost)
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
        path = tuple(range(1 + min(arm.right, tree.drafted)))
        cost = arm.seconds if tree.drafted else 1.0
        auto.observe([Outcome(context, tree, Verdict(path, 0), cost - 1.0, 1.0)])
        played.append(name)
        seconds, tokens = seconds + cost, tokens + len(path)
    return played, seconds, tokens
