"""The chain: which drafters of the same draft model `auto` need not ask beside it."""

from pkgutil import resolve_name

from engine.drafters import DRAFTERS
from engine.drafters.chain import TREES, Chain
from engine.interfaces.drafter import DrafterResources, stands_in_for
from engine.interfaces.target import Capability
from engine.statistics.pass_cost import PassCost
from tests.engine.tiny import tiny_target


def covered(knots):
    return stands_in_for(
        Chain(DrafterResources(tiny_target(), tiny_target(), cost=PassCost(knots)))
    )


def test_where_sixteen_rows_cost_a_third_of_a_pass_it_stands_in_for_trees():
    assert covered({1: 0.010, 16: 0.0140}) == TREES
    assert covered({1: 0.010, 4: 0.012, 64: 0.060}) == TREES


def test_where_rows_are_nearly_free_or_nobody_measured_trees_are_asked_too():
    assert covered({1: 0.010, 16: 0.0130}) == frozenset()
    assert covered({1: 0.010, 64: 0.0101, 256: 0.060}) == frozenset()
    assert covered({}) == frozenset()


def test_it_stands_in_for_drafters_that_exist_and_ask_the_same_draft_model():
    for name in TREES:
        drafter = resolve_name(DRAFTERS[name])
        assert {Capability.DRAFT_MODEL, Capability.TREE} <= drafter.needs
