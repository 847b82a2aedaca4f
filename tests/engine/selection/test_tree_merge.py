"""Merged trees: declined copies join the leader's draft, in rows that cost nothing and no others."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
import torch

from engine.interfaces.drafter import Budget, Context, Outcome
from engine.interfaces.target import Capability
from engine.request import SamplingParams
from engine.runtime.scheduler import DrafterUsage
from engine.selection.tree_merge import TreeMerge
from engine.selection.tuning import TUNING
from engine.speculation.tree import DraftTree, ReusedRows, chain, single
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost
from tests.engine.selection.scripted import ROOM, Reads, Scripted, auto_over

FREE, WIDEST, KEPT = TUNING.free_cost, TUNING.widest, TUNING.price_rounds
TREES = frozenset({Capability.TREE})
HERE = Context(1, 0, [1], SamplingParams(), None)
DRAFT, COPY = chain([1, 2, 3]), chain([1, 7, 8, 9])
BOTH = (1, 2, 3, 7, 8, 9)
ASKS = Reads(2, 1.5)  # an arm with a draft model


def merge_over(knots, *, trees=True):
    return TreeMerge(PassCost(dict(knots)), trees=trees)


def merged(merge, tree=DRAFT, copy=COPY, room=ROOM):
    return merge.merge({0: tree}, {0: copy}, [room])[0].tokens


@pytest.mark.parametrize(
    ("knots", "kept"),
    [
        ({1: 1.0, 8: 1.0, 9: 2.0}, 6),
        ({1: 1.0, 5: 1.0, 6: 1.0 + 2 * FREE, 9: 2.0}, 5),
        ({1: 1.0, 2: 1.1, 3: 1.2, 4: 1.3, 9: 2.0}, 3),
        ({1: 1.0, 3: 1.0, 4: 1.0 + FREE / 2, 5: 1.5}, 4),
    ],
)
def test_rows_that_take_longer_are_left(knots, kept):
    assert merged(merge_over(knots)) == BOTH[:kept]


def test_no_more_nodes_than_the_request_may_have():
    assert merged(merge_over({1: 1.0, 8: 1.0}), room=Budget(3, 3)) == BOTH[:4]


def test_requests_share_what_is_free():
    merge = merge_over({1: 1.0, 8: 1.0, 9: 2.0})
    found = merge.merge({0: DRAFT, 1: DRAFT}, {0: COPY, 1: COPY}, [ROOM, ROOM])
    assert [len(found[at]) for at in range(2)] == [5, 3]


def test_a_wider_pass_has_no_free_rows():
    wide = chain(range(WIDEST + 1))
    assert merged(merge_over({1: 1.0, 8: 1.0}), wide, chain([0, 99])) == wide.tokens


def test_what_rows_take_is_asked_again_after_some_rounds():
    cost = PassCost({1: 1.0, 8: 1.0})
    found = TreeMerge(cost, trees=True)
    assert merged(found) == BOTH
    cost.reset({1: 1.0, 2: 1.5, 8: 4.5})
    assert [merged(found) for _ in range(KEPT)] == [*[BOTH] * (KEPT - 1), DRAFT.tokens]


@pytest.mark.parametrize(
    "tree",
    [
        chain([1, 2], {0: torch.ones(3)}),
        replace(DRAFT, warm=ReusedRows(torch.ones(1, 3, 2))),
        replace(DRAFT, trace=True),
        DraftTree((1, 2, 3), (-1, 0, 0)),
    ],
)
def test_nothing_joins_drawn_tokens_states_and_trees(tree):
    found = merge_over({1: 1.0})
    assert not found.suits(ASKS, tree)
    assert found.suits(ASKS, DRAFT)
    assert found.suits(ASKS, single(1))


def test_nothing_joins_where_the_target_scores_no_trees_or_the_arm_has_no_draft_model():
    assert not merge_over({1: 1.0}, trees=False).suits(ASKS, DRAFT)
    assert not merge_over({1: 1.0}).suits(Scripted(1, 1.0), DRAFT)


@dataclass
class Says(Reads):
    """Proposes these tokens, and keeps its outcomes."""

    tokens: tuple[int, ...] = ()
    outcomes: list[Outcome] = field(default_factory=list)

    def draft(self, batch, budgets):
        return [replace(chain(self.tokens), expected=self.expects or 0.0) for _ in batch]

    def observe(self, outcomes):
        self.outcomes += outcomes


def played(path, bonus=5):
    """(its model, its copier) after one round of auto in which this path was accepted."""
    model = Says(2, 1.0, tokens=DRAFT.tokens)
    copier = Says(0, 1.0, tokens=COPY.tokens, proposes_rarely=True, expects=0.3)
    auto = auto_over(TREES, copier=copier, model=model)
    auto.stats.speedups["model"].count(30, 10.0)  # so that 0.3 more tokens are too few
    [tree] = auto.draft([HERE], [ROOM])
    assert tree.tokens == BOTH
    assert auto.active_arm(1) == "model"
    auto.observe([Outcome(HERE, tree, Verdict(path, bonus), 0.0, 1.0)])
    return model, copier


def test_a_copy_that_does_not_pay_joins_the_draft_and_both_arms_learn_their_part():
    model, copier = played((0, 3, 4, 5))
    [own] = model.outcomes
    assert own.tree == DRAFT
    assert own.verdict == Verdict((0,), 7)
    [copied] = copier.outcomes
    assert copied.verdict == Verdict((0, 3, 4, 5), 5)


@pytest.mark.parametrize("path", [(0,), (0, 1), (0, 1, 2)])
def test_an_own_path_is_learnt_as_it_is(path):
    [own] = played(path)[0].outcomes
    assert (own.tree, own.verdict) == (DRAFT, Verdict(path, 5))


def test_how_deep_a_drafter_is_right_is_counted_without_what_was_grafted():
    run = DrafterUsage()
    tree = merge_over({1: 1.0, 8: 1.0}).merge({0: DRAFT}, {0: COPY}, [ROOM])[0]
    for path in ((0, 3, 4, 5), (0, 1), (0, 1, 2)):
        run.count(Outcome(HERE, tree, Verdict(path, 5), 0.0, 1.0))
    assert (run.passes, run.drafted, run.accepted) == (3, 15, 6)
    assert run.depths == [[3, 2], [2, 1]]


def test_without_free_rows_auto_drafts_what_its_leader_does():
    model = Says(2, 1.0, tokens=DRAFT.tokens)
    copier = Says(0, 1.0, tokens=COPY.tokens, proposes_rarely=True, expects=0.3)
    auto = auto_over(TREES, PassCost({1: 1.0, 2: 1.2, 8: 2.4}), copier=copier, model=model)
    auto.stats.speedups["model"].count(30, 10.0)
    widths = Counter(len(auto.draft([HERE], [ROOM])[0]) for _ in range(3))
    assert widths == {len(DRAFT): 3}
