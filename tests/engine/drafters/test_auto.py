"""Auto: the fastest arm by measured seconds drafts, plain among them; little is spent on finding out."""

from collections import Counter

import pytest

from engine.drafters.chain import Chain
from engine.drafters.lookup import Lookup
from engine.drafters.sequoia import Sequoia
from engine.drafters.specexec import SpecExec
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import DrafterRun, SamplingParams
from engine.speculation.tree import single
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost
from tests.engine.selection.scripted import ROOM, Scripted, auto_over, play
from tests.engine.tiny import tiny_target


def test_where_nothing_pays_it_decodes_plainly_and_spends_little_on_finding_out():
    auto = auto_over(a=Scripted(0, 1.5), b=Scripted(0, 2.0), c=Scripted(1, 2.5))
    played, seconds, tokens = play(auto, 200)
    assert Counter(played)["none"] >= 190
    assert tokens / seconds > 0.97


def test_an_arm_that_another_one_replaces_is_not_used():
    class Wider(Scripted):
        def replaces(self, other):
            return other is lookup

    lookup = Scripted(4, 1.0, proposes_rarely=True)
    auto = auto_over(
        lookup=lookup, suffix=Wider(4, 1.0, proposes_rarely=True), model=Scripted(2, 1.5)
    )
    assert set(play(auto, 50)[0]) == {"suffix"}
    assert lookup.rounds == lookup.heard == 0


def test_only_the_arm_that_drafted_gets_the_outcome():
    arms = {"a": Scripted(3, 1.2), "b": Scripted(0, 2.0)}
    auto = auto_over(**arms)
    counts = Counter(play(auto, 50)[0])
    assert {n: a.heard for n, a in arms.items()} == {n: counts[n] for n in arms}


def test_every_arm_forgets_and_the_reason_names_what_ran():
    arms = {"a": Scripted(3, 1.5)}
    auto = auto_over(**arms)
    assert auto.explain([]) == "auto: nothing was decoded"
    play(auto, 20)
    ran = [
        DrafterRun("none", 1, 1, 0, 0, 1.0, 1.0, ()),
        DrafterRun("a", 7, 28, 28, 21, 10.0, 26.0, ()),
    ]
    assert auto.explain(ran) == (
        "auto, by measured pace: a 2.60 times as fast as plain in 7 passes, plain decoding in 1 pass"
    )
    auto.forget(1, 0)
    assert arms["a"].forgotten == 1
    assert auto.active_arm(1) == "none"


def test_a_batch_is_grouped_by_arm():
    a = Scripted(3, 1.5)
    auto = auto_over(a=a)
    play(auto, 40)
    before = a.rounds
    contexts = [Context(n, n, [1], SamplingParams(), None) for n in (2, 3, 4)]
    auto.draft(contexts, [ROOM] * 3)
    assert [auto.active_arm(n) for n in (2, 3, 4)] == ["a"] * 3
    assert a.rounds == before + 1


def test_plain_alone_is_enough():
    auto = auto_over()
    context = Context(1, 0, [7], SamplingParams(), None)
    assert auto.draft([context], [ROOM]) == [single(7)]
    assert auto.active_arm(1) == "none"


@pytest.mark.parametrize("depth", [0, 1, 3, 8])
def test_no_arm_gets_more_than_is_allowed_or_than_it_uses(depth):
    seen = []

    class Greedy(Scripted):
        def draft(self, batch, budgets):
            seen.extend(budgets)
            return super().draft(batch, budgets)

    auto = auto_over(a=Greedy(3, 1.5), b=Greedy(4, 1.0, every=3, proposes_rarely=True))
    play(auto, 40)
    assert auto.active_arm(1) != "none"
    seen.clear()
    for _ in range(3):
        auto.draft([Context(1, 0, [1], SamplingParams(), None)], [Budget(depth, depth)])
    most = min(depth, 4)
    assert len(seen) >= 4
    assert all(b.depth <= most and b.nodes <= max(most, 1) for b in seen)


def test_copying_arms_get_every_outcome():
    arms = {
        "lookup": Scripted(4, 1.0, every=10**9, proposes_rarely=True),
        "model": Scripted(3, 1.5),
        "other": Scripted(0, 2.0),
    }
    counts = Counter(play(auto_over(**arms), 60)[0])
    assert arms["lookup"].heard == 60
    assert arms["model"].heard == counts["model"] > 0


def test_rounds_are_measured_by_plain_passes_over_as_many_requests():
    auto = auto_over(cost=PassCost({1: 1.0, 8: 8.0}), a=Scripted(3, 1.5))
    auto.speedups.session["a"].count(200, 100.0)  # it leads
    contexts = [Context(n, n, [1], SamplingParams(), None) for n in (1, 2, 3, 4)]
    for _ in range(2):  # the first round reads the prompts
        trees = auto.draft(contexts, [ROOM] * 4)
        pairs = zip(contexts, trees, strict=True)
        auto.observe([Outcome(c, tree, Verdict((0,), 0), 0.0, 4.0, batch=4) for c, tree in pairs])
    measured = auto.speedups.session["a"]
    assert measured.rounds == 5
    assert measured.trials == pytest.approx(104, rel=0.02)


DEAR, CHEAP = {1: 1.0, 16: 1.4}, {1: 1.0, 16: 1.3}  # of 16 rows: more than a third of a pass, less


def resources(knots):
    return DrafterResources(tiny_target(), tiny_target(), cost=PassCost(knots))


@pytest.mark.parametrize(("knots", "other", "replaced"), [
    (DEAR, Sequoia, True), (DEAR, SpecExec, True), (CHEAP, Sequoia, False), (DEAR, Lookup, False),
])  # fmt: skip
def test_chains_replace_trees_of_the_draft_model_where_rows_cost_time(knots, other, replaced):
    assert Chain(resources(knots)).replaces(other(resources(knots))) is replaced
