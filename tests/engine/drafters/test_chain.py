"""Chains of a draft model: where they replace trees of the same draft model."""

import pytest

from engine.drafters.chain import Chain
from engine.drafters.lookup import Lookup
from engine.drafters.sequoia import Sequoia
from engine.drafters.specexec import SpecExec
from engine.interfaces.drafter import DrafterResources
from engine.statistics.pass_cost import PassCost
from tests.engine.tiny import tiny_target

DEAR, CHEAP = {1: 1.0, 16: 1.4}, {1: 1.0, 16: 1.3}  # of 16 rows: more than a third of a pass, less


def resources(knots):
    return DrafterResources(tiny_target(), tiny_target(), cost=PassCost(knots))


@pytest.mark.parametrize(("knots", "other", "replaced"), [
    (DEAR, Sequoia, True), (DEAR, SpecExec, True), (CHEAP, Sequoia, False), (DEAR, Lookup, False),
])  # fmt: skip
def test_chains_replace_trees_of_the_draft_model_where_rows_cost_time(knots, other, replaced):
    assert Chain(resources(knots)).replaces(other(resources(knots))) is replaced
