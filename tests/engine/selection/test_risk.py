"""What one answer knows of its arms, and what it may lose on a proposal: a pass and what it saved."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interfaces.drafter import Budget, Context, Drafter, Outcome, RowPrices
from engine.request import SamplingParams
from engine.selection.arm_speedups import RequestState
from engine.selection.tuning import TUNING
from engine.speculation.tree import chain, single
from engine.speculation.verify import Verdict
from engine.statistics.decayed import Speedup
from engine.statistics.pass_cost import PassCost
from tests.engine.selection.scripted import auto_over

ROW = 0.4  # plain passes: as 4-bit weights have it on a processor
ROOM = Budget(32, 32)


@dataclass
class Copier(Drafter):
    """Finds a text to copy in every round, is sure of it, and takes as much as pays."""

    max_draft = ROOM
    proposes_rarely = True
    sizes: list[int] = field(default_factory=list)

    def draft(self, batch, budgets):
        chances = [0.98**n for n in range(1, 33)][: budgets[0].nodes]
        taken, expected, later = budgets[0].worth(chances, copied=True)
        self.sizes.append(taken)
        if not taken:
            return [single(1)]
        return [replace(chain([1] * (1 + taken)), expected=expected, later=later)]


def steep():
    return PassCost({rows: 1 + ROW * (rows - 1) for rows in (1, 2, 3, 4, 8, 16, 32, 64)})


def play(rounds, *, right):
    """Passes that each round lost, and the sizes of its copies."""
    copier = Copier()
    auto = auto_over(cost=steep(), copier=copier)
    context, lost = Context(1, 0, [1], SamplingParams(), None), []
    for _ in range(rounds):
        [tree] = auto.draft([context], [ROOM])
        path = range(1 + tree.drafted) if right else (0,)
        seconds = 1 + ROW * tree.drafted
        auto.observe([Outcome(context, tree, Verdict(tuple(path), 0), 0.0, seconds)])
        lost.append(seconds - len(path))
    return lost, copier.sizes


def test_a_copy_that_fails_loses_no_more_than_the_risk_budget():
    lost, sizes = play(12, right=False)
    assert max(sizes) > 0
    assert all(each <= TUNING.risk + TUNING.risk_share * said for said, each in enumerate(lost))


def test_where_a_second_row_costs_as_much_as_five_copies_become_longer_with_the_answer():
    rows = {1: 1.0, 2: 1.9, 3: 2.02, 6: 2.1, 8: 2.6, 16: 5.0, 33: 11.0}
    copier = Copier()
    auto = auto_over(cost=PassCost(rows), copier=copier)
    context = Context(1, 0, [1], SamplingParams(), None)
    for _ in range(12):
        [tree] = auto.draft([context], [ROOM])
        seconds = PassCost(rows).nominal(len(tree)) + 0.15  # copies of one row lose a little
        auto.observe([Outcome(context, tree, Verdict((*range(len(tree)),), 0), 0.0, seconds)])
    assert copier.sizes[0] == 1
    assert max(copier.sizes) >= 8


def test_a_copy_that_pays_grows_with_what_it_saved():
    lost, sizes = play(8, right=True)
    assert sizes[0] <= 1 / ROW
    assert sizes[0] < sizes[1] < sizes[2]
    assert min(sizes[2:]) >= 8
    assert max(lost) < 0


@given(
    st.lists(st.floats(0.0, 3.0), min_size=12, max_size=12).map(sorted),
    st.floats(0.0, 4.0),
)
def test_a_budget_has_as_many_rows_as_the_risk_budget_pays_for_and_at_least_one(prices, risk):
    nodes = RowPrices.of((0.0, *prices)).budget(ROOM, ROOM, 1.0, risk).nodes
    assert nodes == max(1, sum(price <= risk for price in prices))


@pytest.mark.parametrize("own", [Budget(8, 8), Budget(8, 64)])
@pytest.mark.parametrize("asked", [Budget(3, 256), Budget(64, 5), Budget(64, 256), Budget(2, 2)])
def test_a_drafter_gets_no_more_than_it_uses(own, asked):
    found = asked.within(own)
    assert found.depth <= min(own.depth, asked.depth)
    assert found.nodes <= min(own.nodes, asked.nodes)
    if own.depth == own.nodes:
        assert found.depth == found.nodes == min(own.depth, asked.depth, asked.nodes)


def state(**fields):
    speedups = {"model": Speedup(20.0, 10.0, 50)}
    return RequestState("", speedups, {"model": 3.0, "tree": 3.0}, **fields)


def test_an_answer_that_lost_may_still_risk_a_pass():
    one = state(arm="model")
    one.count(1, 6.0)
    assert one.saved == -5.0
    assert one.risk_budget == TUNING.risk + TUNING.risk_share
    assert not one.may_risk
    one.emitted = round(5 / TUNING.risk_share)
    assert one.may_risk


def test_plain_rounds_save_and_lose_nothing_whatever_they_took():
    one = state()
    one.count(1, 4.0)
    one.count(1, 0.2)
    assert one.saved == 0.0
    assert one.emitted == 2


def test_once_one_arm_read_the_prompt_no_other_has_to_as_they_share_a_draft_model():
    one = state(arm="lookup")
    assert one.first_draft()
    assert one.reading == {"model": 3.0, "tree": 3.0}
    one.arm = "model"
    assert one.first_draft()
    assert one.reading == {}
    assert not one.first_draft()
