"""A length policy steers by what a drafter heeds; who claims to heed something does, others are refused."""

import re
from dataclasses import dataclass

import pytest

from engine.draft_length import LENGTHS
from engine.drafters import DRAFTERS
from engine.errors import InvalidRequest
from engine.interfaces.drafter import Budget, Context, DrafterResources, StopRule
from engine.request import AUTO, GenerationRequest, SamplingParams
from engine.runtime.registry import drafter_class, length_class
from engine.speculation.rng import SeededRandom
from tests.engine.tiny import engine_over, tiny_target

LOOPING = [3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 3, 1]
PAIRS = [(policy, drafter) for policy in LENGTHS for drafter in DRAFTERS]


@dataclass
class Ends:
    """A stop that ends a draft at the first question of one kind."""

    kind: StopRule

    def drawn(self, probability: float) -> bool:
        assert 0 < probability <= 1
        return self.kind is StopRule.CHANCES

    def fed(self, hidden) -> bool:
        assert hidden.ndim == 1
        return self.kind is StopRule.STATES


# rule -> a budget that leaves room for four tokens and takes it back by that rule alone
TAKEN_BACK = {
    StopRule.PRICES: Budget(4, 4, prices=(0.0, 9.0, 18.0, 27.0, 36.0)),
    StopRule.FLOOR: Budget(4, 4, floor=1.1),
    StopRule.CHANCES: Budget(4, 4, stop=Ends(StopRule.CHANCES)),
    StopRule.STATES: Budget(4, 4, stop=Ends(StopRule.STATES)),
}
HEEDED = [
    (rule, name)
    for name in DRAFTERS
    for rule in sorted(drafter_class(name).stop_rules)
    if rule in TAKEN_BACK and not drafter_class(name).needs_grammar  # without one it drafts nothing
]


def draft(name, budget):
    parts = DrafterResources(tiny_target(), tiny_target(), options={"exit_layer": 1.0})
    context = Context(1, 0, LOOPING, SamplingParams(), SeededRandom(0))
    parts.target.feed(0, LOOPING[:-1])
    [tree] = drafter_class(name)(parts).draft([context], [budget])
    return tree


@pytest.mark.parametrize(("rule", "name"), HEEDED)
def test_what_a_drafter_heeds_makes_its_drafts_shorter(rule, name):
    exact = Budget(4, 4, exact=True)
    assert draft(name, TAKEN_BACK[rule]).drafted <= 1 < draft(name, exact).drafted


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != AUTO])
def test_the_exit_is_heeded_by_whom_it_concerns(name):
    tree = draft(name, Budget(2, 2, exact=True, exit_layer=2))
    layer = None if tree.warm is None else tree.warm.layer
    assert layer == (2 if StopRule.EXIT in drafter_class(name).stop_rules else None)


@pytest.mark.parametrize(("policy", "drafter"), PAIRS)
def test_a_pair_runs_or_is_refused_with_what_can_be_chosen_instead(policy, drafter):
    needed, heeds = length_class(policy, drafter).stop_rules, drafter_class(drafter).stop_rules
    engine = engine_over(tiny_target(), tiny_target())
    request = GenerationRequest((1, 2), 4, drafter=drafter, length=policy)
    if needed <= heeds and policy != "acceptance_head":  # which would need a trained head
        assert engine.submit(request) > 0
        return
    usual = drafter_class(drafter).default_length
    said = "no acceptance head" if needed <= heeds else rf"'{policy}'.*'{drafter}'.*'{usual}'"
    with pytest.raises(InvalidRequest, match=said) as caught:
        engine.submit(request)
    named = set(re.findall(r"\w+", str(caught.value))) & set(DRAFTERS)
    able = {name for name in DRAFTERS if needed <= drafter_class(name).stop_rules}
    assert needed <= heeds or able <= named


@pytest.mark.parametrize("name", DRAFTERS)
def test_the_policy_that_suits_a_drafter_can_steer_it(name):
    assert length_class("default", name).stop_rules <= drafter_class(name).stop_rules
