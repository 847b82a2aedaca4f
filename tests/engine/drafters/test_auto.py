"""Auto: the fastest arm by measured seconds drafts, plain among them; little is spent on finding out."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest

from engine.cost import PassCost
from engine.decode.tree import chain, single
from engine.decode.verify import Verdict
from engine.drafters.auto import (
    APART,
    MEMORY,
    PROBE,
    PROBE_FIRST,
    SHORT,
    STINT,
    UNDRAFTED,
    Auto,
)
from engine.lengths.fixed import Fixed
from engine.protocols.drafting import Arm, Budget, Context, Outcome, Parts
from engine.request import Prior, SamplingParams

ROOM = Budget(8, 8)


@dataclass
class Scripted:
    """An arm of known worth: proposes 4 tokens every ``every``-th round, ``accepted`` of them right."""

    accepted: int
    seconds: float  # of a round in which it drafted; a plain pass takes 1
    every: int = 1
    declines: bool = False
    length: Budget = field(default_factory=lambda: Budget(4, 4))
    hoped: float | None = None  # tokens; None: those that come
    rounds: int = 0
    heard: int = 0
    forgotten: int = 0

    def draft(self, batch, budgets):
        self.rounds += 1
        if self.rounds % self.every:
            return [single(1) for _ in batch]
        hoped = float(self.accepted) if self.hoped is None else self.hoped
        return [replace(chain([1, 2, 3, 4, 5]), expected=hoped) for _ in batch]

    def observe(self, outcomes):
        self.heard += len(outcomes)

    def forget(self, request, slot):
        self.forgotten += 1


def auto_over(**arms):
    cost = PassCost()
    cost.profile(1, 1.0)
    cost.profile(8, 1.0)
    plain = Scripted(0, 1.0, every=10**9, declines=True)
    parts = Parts(None, cost=cost)
    pairs = {"none": plain, **arms}
    return Auto(replace(parts, arms={n: Arm(a, Fixed(parts, n)) for n, a in pairs.items()}))


def play(auto, rounds, request=1, priors=()):
    """(rounds by arm, seconds spent, tokens emitted) of one request."""
    context = Context(request, 0, [1], SamplingParams(), None, priors=dict(priors))
    played, seconds, tokens = [], 0.0, 0
    for _ in range(rounds):
        [tree] = auto.draft([context], [ROOM])
        name = auto.playing(request)
        arm = auto.arms[name].drafter
        path = tuple(range(1 + min(arm.accepted, tree.drafted)))
        cost = arm.seconds if tree.drafted else 1.0
        auto.observe([Outcome(context, tree, Verdict(path, 0), cost - 1.0, 1.0)])
        played.append(name)
        seconds, tokens = seconds + cost, tokens + len(path)
    return played, seconds, tokens


def test_the_fastest_arm_takes_over():
    auto = auto_over(slow=Scripted(2, 3.2), fast=Scripted(2, 1.5), worse=Scripted(1, 1.5))
    played, _, _ = play(auto, 60 + SHORT)
    assert Counter(played).most_common(1)[0][0] == "fast"
    assert set(played[-15:]) == {"fast"}


def test_where_nothing_pays_it_decodes_plainly_and_spends_little_on_finding_out():
    auto = auto_over(a=Scripted(0, 1.5), b=Scripted(0, 2.0), c=Scripted(1, 2.5))
    played, seconds, tokens = play(auto, 200)
    assert Counter(played)["none"] >= 190
    assert tokens / seconds > 0.97


def test_a_free_arm_that_proposes_now_and_then_is_combined_with_one_that_always_does():
    lookup, model = Scripted(4, 1.0, every=3, declines=True), Scripted(2, 1.5)
    auto = auto_over(lookup=lookup, model=model)
    counts = Counter(play(auto, 90)[0])
    assert counts["lookup"] >= 25
    assert counts["model"] >= 50


def test_an_arm_that_another_one_stands_in_for_is_not_asked():
    class Wider(Scripted):
        stands_in_for = frozenset({"lookup"})

    lookup = Scripted(4, 1.0, declines=True)
    auto = auto_over(lookup=lookup, suffix=Wider(4, 1.0, declines=True), model=Scripted(2, 1.5))
    assert set(play(auto, 50)[0]) == {"suffix", "model"}
    assert lookup.rounds == lookup.heard == 0


def test_the_arm_that_drafted_hears_the_outcome_and_no_other():
    arms = {"a": Scripted(3, 1.2), "b": Scripted(0, 2.0)}
    auto = auto_over(**arms)
    counts = Counter(play(auto, 50)[0])
    assert {n: a.heard for n, a in arms.items()} == {n: counts[n] for n in arms}


def test_it_stays_with_an_arm_that_is_only_a_little_slower():
    auto = auto_over(a=Scripted(2, 1.50), b=Scripted(2, 1.49))
    played, _, _ = play(auto, PROBE_FIRST + SHORT)
    switches = sum(x != y for x, y in pairwise(played[SHORT + 2 * (STINT + APART) :]))
    assert switches <= 2


def test_an_arm_that_turns_bad_is_left():
    fast, steady = Scripted(4, 1.2), Scripted(2, 1.5)
    auto = auto_over(fast=fast, steady=steady)
    play(auto, 30 + SHORT)
    fast.accepted = 0
    played, _, _ = play(auto, 40)
    assert Counter(played[-30:])["fast"] <= 2 * PROBE  # a look whether it is still bad


def test_an_arm_that_turned_good_is_found_again():
    late, steady = Scripted(1, 1.5), Scripted(2, 1.9)
    auto = auto_over(late=late, steady=steady)
    play(auto, 20)
    late.accepted = 4
    played, _, _ = play(auto, 200)
    assert Counter(played[-50:])["late"] > 40


def test_what_one_request_measured_helps_the_next():
    auto = auto_over(slow=Scripted(0, 2.0), fast=Scripted(3, 1.5), mid=Scripted(1, 1.5))
    play(auto, 50 + SHORT, request=1)
    auto.forget(1, 0)
    assert play(auto, 10, request=2)[0] == ["fast"] * 10


def test_earlier_sessions_start_it_with_the_right_arm_and_are_overruled_when_wrong():
    good = Prior("fast", pace=2.4, pace_weight=500.0)
    bad = Prior("slow", pace=0.8, pace_weight=500.0)
    arms = {"slow": Scripted(0, 2.0), "fast": Scripted(3, 1.5)}
    assert set(play(auto_over(**arms), 12, priors={"fast": good, "slow": bad})[0]) == {"fast"}
    wrong = Prior("slow", pace=8.0, pace_weight=1e9)
    played, _, _ = play(auto_over(**arms), 60, priors={"slow": wrong, "fast": good})
    assert played.index("fast") <= 3 * MEMORY
    assert Counter(played[-20:])["slow"] == 0


def test_every_arm_forgets_and_the_reason_names_what_ran():
    arms = {"a": Scripted(3, 1.5)}
    auto = auto_over(**arms)
    assert auto.reason(1) == "auto: nothing was decoded"
    play(auto, 20)
    assert "a 2.6" in auto.reason(1)
    auto.forget(1, 0)
    assert arms["a"].forgotten == 1
    assert auto.playing(1) == "none"


def test_a_batch_is_grouped_by_arm():
    a = Scripted(3, 1.5)
    auto = auto_over(a=a)
    play(auto, 40)
    before = a.rounds
    contexts = [Context(n, n, [1], SamplingParams(), None) for n in (2, 3, 4)]
    auto.draft(contexts, [ROOM] * 3)
    assert [auto.playing(n) for n in (2, 3, 4)] == ["a"] * 3
    assert a.rounds == before + 1


def test_plain_alone_is_enough():
    auto = auto_over()
    context = Context(1, 0, [7], SamplingParams(), None)
    assert auto.draft([context], [ROOM]) == [single(7)] or auto.playing(1) == "none"


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_no_arm_gets_more_than_is_allowed(depth):
    seen = []

    class Greedy(Scripted):
        def draft(self, batch, budgets):
            seen.extend(budgets)
            return super().draft(batch, budgets)

    auto = auto_over(a=Greedy(3, 1.5))
    auto.draft([Context(1, 0, [1], SamplingParams(), None)], [Budget(depth, depth)])
    assert all(b.depth <= depth and b.nodes <= depth for b in seen)


@dataclass
class Chancy:
    """An arm whose drafted tokens are right by chance: (acceptance, tokens, seconds of a round)."""

    worth: tuple[float, int, float]
    share: float = 1.0  # of rounds in which it proposes
    declines: bool = False
    length: Budget = field(default_factory=lambda: Budget(16, 16))
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def draft(self, batch, budgets):
        drafted = self.worth[1] if self.rng.random() < self.share else 0
        return [replace(chain([1] * (1 + drafted)), expected=self.hoped()) for _ in batch]

    def hoped(self):
        return sum(self.worth[0] ** n for n in range(1, self.worth[1] + 1))

    def observe(self, outcomes):
        """Luck does not learn."""

    def forget(self, request, slot):
        """Nothing to forget."""

    def tokens(self):
        luck = self.rng.random(self.worth[1]) < self.worth[0]
        return 1 + int(np.cumprod(luck).sum())

    def pace(self):
        return (1 + self.hoped()) / self.worth[2]


KINDS = {
    "word problems": ({"chain": (0.72, 4, 1.42), "tree": (0.68, 4, 1.33), "exit": (0.7, 2, 1.75)}, (0.45, 5, 1.05), 0.25),
    "open questions": ({"chain": (0.6, 3, 1.35), "tree": (0.6, 4, 1.35), "exit": (0.8, 2, 1.75)}, (0.3, 5, 1.05), 0.2),
    "edits": ({"chain": (0.92, 8, 1.8), "tree": (0.9, 6, 1.6), "exit": (0.95, 4, 2.6)}, (0.95, 10, 1.1), 0.8),
    "nothing pays": ({"chain": (0.2, 2, 1.3), "tree": (0.2, 2, 1.3), "exit": (0.3, 2, 1.75)}, (0.1, 5, 1.05), 0.1),
}  # fmt: skip


def session(kind, seed, answers=20, skipped=5):
    """Pace of a whole session but its first answers, over that of its best arm."""
    steady, copied, share = KINDS[kind]
    arms = {
        name: Chancy(worth, rng=np.random.default_rng((seed, n)))
        for n, (name, worth) in enumerate(steady.items())
    }
    best = max(1.0, *(arm.pace() for arm in arms.values()))
    arms["lookup"] = Chancy(copied, share, declines=True, rng=np.random.default_rng((seed, 9)))
    auto, tokens, seconds = auto_over(**arms), 0, 0.0
    for request in range(answers):
        context, said = Context(request, 0, [1], SamplingParams(), None), 0
        while said < 64:
            [tree] = auto.draft([context], [Budget(16, 16)])
            arm = arms.get(auto.playing(request))
            emitted, cost = (1, 1.0) if arm is None else (arm.tokens(), arm.worth[2])
            auto.observe(
                [Outcome(context, tree, Verdict(tuple(range(emitted)), 0), cost - 1.0, 1.0)]
            )
            said += emitted
            if request >= skipped:
                tokens, seconds = tokens + emitted, seconds + cost
        auto.forget(request, 0)
    return tokens / seconds / best


@pytest.mark.parametrize("kind", KINDS)
def test_luck_does_not_keep_it_from_the_best_arm(kind):
    found = [session(kind, seed) for seed in range(12)]
    assert np.mean(found) > 0.94
    assert min(found) > 0.8


def test_reading_the_prompt_says_nothing_of_how_fast_tokens_come():
    auto = auto_over(model=Scripted(2, 1.5), lookup=Scripted(0, 1.0, every=10**9, declines=True))
    play(auto, 40)
    context = Context(2, 0, [1], SamplingParams(), None)
    [tree] = auto.draft([context], [ROOM])
    assert auto.playing(2) == "model"
    before = auto._matches[2].whole.value
    auto.observe([Outcome(context, tree, Verdict((0,), 0), 40.0, 1.0)])  # a long prompt was read
    assert auto._matches[2].whole.value == before
    assert auto._whole.value > 1
    auto._matches[2].whole.add(0, 100.0)
    assert auto._matches[2].rate == 2.0  # the favourite can be had whatever a round took
    auto._matches[2].favourite = "none"
    assert auto._matches[2].rate == 1.0  # and plain decoding always can


def test_tokens_to_come_are_not_as_cheap_as_those_of_a_text_that_was_just_copied():
    auto = auto_over()
    play(auto, 1)
    auto._matches[1].whole.add(30, 5.0)
    assert 1.5 < auto._matches[1].rate < 0.8 * auto._matches[1].whole.value


def test_what_one_kind_of_task_made_of_proposals_is_not_held_against_another():
    auto = auto_over(lookup=Scripted(0, 1.2, declines=True, hoped=4.0))
    play(auto, 30, 1)
    edit = Context(2, 0, [1], SamplingParams(), None, task="edit")
    auto.draft([edit], [ROOM])
    assert auto._luck[""]["lookup"].value < 0.9
    assert auto._luck["edit"]["lookup"].value == 1.0


def test_a_short_answer_has_no_trial():
    auto = auto_over(a=Scripted(3, 1.5))
    for request in range(5):
        played, _, _ = play(auto, SHORT - 1, request)
        auto.forget(request, 0)
        assert set(played) == {"none"}


def test_a_trial_comes_at_once_where_answers_are_long():
    auto = auto_over(a=Scripted(0, 2.0), b=Scripted(3, 1.5), c=Scripted(1, 1.5))
    play(auto, 20 * SHORT, 1)
    auto.forget(1, 0)
    assert play(auto, 1, 2)[0] != ["none"]


@pytest.mark.parametrize(("pace", "first"), [(None, "lookup"), (3.0, "lookup"), (0.7, "model")])
def test_copies_that_were_slow_in_earlier_sessions_have_to_promise_more_in_this_one(pace, first):
    class Boasting(Scripted):
        def draft(self, batch, budgets):
            return [replace(tree, expected=2.5) for tree in super().draft(batch, budgets)]

    auto = auto_over(lookup=Boasting(0, 1.0, declines=True), model=Scripted(3, 1.5))
    known = {"model": 2.6} if pace is None else {"model": 2.6, "lookup": pace}
    priors = {name: Prior(name, pace=it, pace_weight=20.0) for name, it in known.items()}
    assert play(auto, 1, priors=priors)[0] == [first]


def test_an_arm_that_starts_empty_is_not_hoped_to_begin_as_it_ended():
    class Empty(Scripted):
        starts_empty = True

    auto = auto_over(table=Empty(3, 1.5), model=Scripted(1, 1.2))
    priors = {
        name: Prior(name, pace=pace, pace_weight=50.0)
        for name, pace in (("table", 3.0), ("model", 1.6))
    }
    assert play(auto, 5, priors=priors)[0] == ["model"] * 5


@dataclass
class Reads(Scripted):
    """Like a draft model: a prompt costs so many plain passes before its first draft."""

    prompt: float = 0.0

    def reading(self, context):
        return self.prompt if context.request > 1 else 0.0


@pytest.mark.parametrize(
    ("prompt", "usual", "plays"), [(0.5, 32, 1), (20.0, 32, 0), (20.0, 900, 1)]
)
def test_a_long_prompt_is_read_only_for_an_answer_that_pays_for_it(prompt, usual, plays):
    auto = auto_over(model=Reads(2, 1.5, prompt=prompt))
    play(auto, 100)
    auto._usual_tokens = usual
    assert play(auto, 8, request=2)[0] == [["none", "model"][plays]] * 8


def test_no_prompt_is_read_for_tokens_that_will_be_copied():
    never = 10**9
    lookup = Scripted(4, 1.0, every=never, declines=True)
    auto = auto_over(lookup=lookup, model=Reads(2, 1.5, prompt=4.0))
    play(auto, 100)
    assert play(auto, 8, request=2)[0] == ["model"] * 8
    lookup.every = 1
    assert set(play(auto, 100, request=3)[0]) == {"lookup"}
    lookup.every = never
    assert play(auto, 8, request=4)[0] == ["none"] * 8
    play(auto, 600, request=5)  # answers of this kind are not copied any more
    assert play(auto, 8, request=6)[0] == ["model"] * 8


def test_no_arm_is_tried_that_had_to_read_too_much_first():
    auto = auto_over(model=Scripted(1, 1.6), far=Reads(3, 1.5, prompt=5.0))
    play(auto, 3, request=2)
    auto._usual_tokens = 64
    assert "far" not in play(auto, 200, request=2)[0][:100]
    assert "far" in play(auto, 2000, request=2)[0]


@dataclass
class Steps(Scripted):
    """An arm that knows what a step of its drafts takes."""

    step_seconds: float = 0.0


def test_the_arm_whose_steps_take_least_is_tried_first():
    arms = {"slow": Steps(1, 1.9, step_seconds=0.4), "fast": Steps(2, 1.2, step_seconds=0.05)}
    played, _, _ = play(auto_over(**arms), SHORT + STINT)
    assert "fast" in played
    assert "slow" not in played


def test_no_trial_is_spent_on_an_arm_that_could_not_be_the_fastest():
    arms = {"slow": Steps(1, 1.9, step_seconds=0.6), "fast": Steps(3, 1.2, step_seconds=0.05)}
    auto = auto_over(**arms)
    assert "slow" not in play(auto, 300)[0]
    arms["fast"].accepted = 0
    assert "slow" in play(auto, 300)[0]  # now it could


def test_an_arm_whose_step_takes_a_pass_is_never_tried():
    assert set(play(auto_over(slow=Steps(1, 2.1, step_seconds=1.0)), 300)[0]) == {"none"}


def test_a_trial_without_a_draft_ends_soon():
    """Its length policy drafts nothing here, so that six rounds would show what two have shown."""
    silent = Scripted(3, 1.5, every=10**9)
    played, _, _ = play(auto_over(silent=silent), SHORT + STINT)
    assert Counter(played)["silent"] == 1 + UNDRAFTED  # the first round reads the prompt
