"""Candidates beside an early exit's chain: where rows of a pass are cheap, and nowhere else."""

import pytest

from engine.draft_length.exit_rules import ExitStop
from engine.draft_length.exit_value import ExitChoice
from engine.draft_length.shadow_tokens import BINS, Counts
from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.interfaces.target import Capability
from engine.speculation.rng import SeededRandom
from engine.speculation.tree import DraftTree
from tests.engine.draft_length.counted import GREEDY, flat
from tests.engine.draft_length.deep import Deep, one_hot, over, rounds


def trees(policy, target, until=60):
    """Trees of an answer."""
    return [outcome.tree for outcome in rounds(target, policy, [0, 1, 2, 0], until)]


def doubtful(share):
    """The target's law, and an exit that says the right token and another one as surely."""
    right, other = one_hot(1, 2, 0), one_hot(2, 0, 1)
    law = share * right + (1 - share) * other
    return Deep(law, law, right)


def test_where_rows_are_free_what_an_exit_thinks_second_stands_beside_and_is_taken():
    """The first layer always says another token first: no chain of it would hold."""
    found = trees(over(doubtful(0.4), cost=flat()), doubtful(0.4))
    assert sum(not tree.is_chain for tree in found) > len(found) / 2


@pytest.mark.parametrize("kept", ["chains", "threshold", "steep", "narrow"])
def test_where_they_may_not_or_do_not_pay_nothing_stands_beside(kept):
    target, cost = doubtful(0.6), flat()
    if kept == "steep":
        for rows in range(2, 14):
            cost.profile(rows, 0.1 * rows)
    if kept == "narrow":
        target.offers = frozenset({Capability.LAYERS})
    options = {kept: 1.0} if kept in ("chains", "threshold") else {}
    assert all(tree.is_chain for tree in trees(over(target, cost, **options), target))


def test_no_more_nodes_than_are_left_though_a_choice_was_made_for_more():
    target = doubtful(0.4)
    policy = over(target, cost=flat())
    ids = [0, 1, 2, 0]
    for _ in rounds(target, policy, ids, 30):
        pass
    chance = SeededRandom(1)
    for nodes in (12, 6, 3, 2):
        here = Context(1, 0, list(ids), GREEDY, chance)
        budget = policy.budgets([here], [Budget(nodes, nodes)])[0]
        tree = EarlyExit(DrafterResources(target)).draft([here], [budget])[0]
        assert 0 < tree.drafted <= nodes


def test_untraced_rounds_tell_which_candidate_beside_the_chain_was_right():
    """Those that stood there are known to be right or not, and none behind them."""
    target = doubtful(0.4)
    policy = over(target, cost=flat())
    next(rounds(target, policy, [0, 1, 2, 0], 9))
    for path, found in (((0, 1, 4), 1.0), ((0, 1), 0.0), ((0, 1, 2), None)):
        request = policy._requests[1]
        request.choice = ExitChoice(1, 2, 1.0)
        request.stop = ExitStop(bool, [0.9, 0.8])
        request.counts = Counts.empty(2)
        tree = DraftTree((0, 1, 2, 5, 6, 7), (-1, 0, 1, 1, 1, 0))
        request.untraced(tree, path)
        ranks = request.counts.table[request.choice.exit - 1, 2 * BINS + 2 :]
        if found is None:  # the chain held
            assert not ranks.any()
        else:
            assert ranks.tolist() == [0.0, found, *[0.0] * 5, 1.0, 1.0, *[0.0] * 5]
