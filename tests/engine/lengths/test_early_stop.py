"""Early ends: the measured threshold, the switch above it, and that neither bends the law."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from engine.cost import PassCost
from engine.decode.sampling import probabilities
from engine.decode.tree import chain
from engine.decode.verify import Verdict, verify
from engine.drafters.chain import Chain
from engine.errors import InvalidRequest
from engine.lengths.confidence import Confidence
from engine.lengths.early_stop import LEAST, MOST, TRUSTED, UNMEASURED, Price
from engine.pace import FASTEST
from engine.protocols.drafting import Budget, Context, Outcome, Parts
from engine.request import Prior, SamplingParams
from tests.engine.enumeration import law_of, random_law
from tests.engine.tiny import Markov

PATIENCE = Confidence.patience
HERE = Context(1, 0, [1], SamplingParams(), None)
LONGEST = Budget(30, 30)


def outcome(drafted, accepted, draft_seconds, score_seconds, context=HERE, batch=1):
    verdict = Verdict(tuple(range(accepted + 1)), 0)
    tree = chain(range(drafted + 1))
    return Outcome(context, tree, verdict, draft_seconds, score_seconds, batch=batch)


# --- the law stays --------------------------------------------------------------------------------


@pytest.mark.parametrize(("floor", "expected"), [(0.3, {1, 2, 3}), (1.0, {1})])
def test_ending_a_drawn_chain_for_its_probabilities_keeps_the_joint_law(floor, expected):
    laws = torch.stack([random_law(3, 90 + row) for row in range(3)])
    drafts = torch.stack([random_law(3, 70 + row) for row in range(3)])
    length, prompt, sampling = 3, [1, 2], SamplingParams(1.0)
    lengths = set()

    def run(chance):
        target, draft = Markov(laws), Markov(drafts)
        parts = Parts(target, draft, options={"floor": floor})
        drafter, policy = Chain(parts), Confidence(parts, "chain")
        ids = list(prompt)
        target.feed(0, ids[:-1])
        while len(ids) < len(prompt) + length:
            context = Context(1, 0, list(ids), sampling, chance)
            budgets = policy.budgets([context], [Budget(3, 3)])
            tree = drafter.draft([context], budgets)[0]
            lengths.add(tree.drafted)
            verdict = verify(tree, target.score([0], [tree])[0].logits, sampling, chance)
            heard = [Outcome(context, tree, verdict, 0.0, 1.0)]
            drafter.observe(heard)
            policy.observe(heard)
            target.commit(0, verdict.path)
            ids += [*(tree.tokens[n] for n in verdict.path[1:]), verdict.bonus]
        return tuple(ids[len(prompt) : len(prompt) + length])

    found, warped = law_of(run), probabilities(laws.log(), sampling)
    for sequence in product(range(3), repeat=length):
        wanted, last = 1.0, prompt[-1]
        for token in sequence:
            wanted *= float(warped[last][token])
            last = token
        assert found.get(sequence, 0.0) == pytest.approx(wanted, abs=1e-12)
    assert lengths == expected


# --- the threshold --------------------------------------------------------------------------------


def floor(price, row=0.0, plain=1.0):
    return price.floors([row], plain)[0]


def priced(draft_step, target_pass, drafted=4, accepted=2, batch=1):
    price = Price(PATIENCE)
    for _ in range(TRUSTED):
        price.add([outcome(drafted, accepted, drafted * draft_step, target_pass, batch=batch)])
    return floor(price)


def test_the_threshold_is_what_a_steps_seconds_would_bring_at_the_present_rate():
    # 3 tokens a round of 4 * 0.1 + 1 seconds; a step takes 0.1 seconds
    assert priced(0.1, 1.0) == pytest.approx(PATIENCE * 3 / 1.4 * 0.1)


def test_a_row_in_the_pass_is_paid_for_like_a_step():
    price = Price(PATIENCE)
    for _ in range(TRUSTED):
        price.add([outcome(4, 2, 0.4, 1.0)])
    assert floor(price, 0.05) == pytest.approx(1.5 * floor(price))


def test_every_length_has_the_threshold_of_its_own_row():
    cost = PassCost({1: 1.0, 4: 1.0, 8: 1.4})  # three drafted tokens are free
    policy = Confidence(Parts(None, cost=cost), "chain")
    for _ in range(TRUSTED + 1):  # a request's first draft says nothing of a step
        policy.observe([outcome(4, 2, 0.4, 1.0)])
    (budget,) = policy.budgets([HERE], [LONGEST])
    floors = budget.stop.floors
    step, both = (PATIENCE * 3 / 1.4 * price for price in (0.1, 0.2))
    assert floors[:2] == (pytest.approx(step), pytest.approx(step))
    assert floors[2:6] == (pytest.approx(both),) * 4


def test_a_dearer_step_asks_for_more_certainty():
    floors = [priced(step, 1.0) for step in (0.02, 0.1, 0.3, 1.0)]
    assert floors == sorted(floors)
    assert all(LEAST <= floor <= MOST for floor in floors)


def test_requests_that_draft_together_share_a_step():
    assert priced(0.1, 1.0, batch=4) == pytest.approx(priced(0.1, 1.0) / 4)


def test_until_something_is_measured_the_threshold_is_a_constant():
    price = Price(PATIENCE)
    assert floor(price) == UNMEASURED
    price.add([outcome(4, 2, 0.4, 1.0)])
    assert floor(price) == UNMEASURED


@pytest.mark.parametrize(("earlier", "pace"), [(0.5, 1.0), (2.5, 2.5), (99.0, FASTEST)])
def test_until_then_a_step_that_was_measured_at_load_is_paid_at_the_pace_of_earlier_sessions(
    earlier, pace
):
    cost = PassCost({1: 1.0, 64: 1.0 + 63 * 0.05})  # a row takes .05 seconds, a step .1
    policy = Confidence(Parts(None, cost=cost, draft_step=0.1), "chain")
    assert policy.budgets([HERE], [LONGEST])[0].stop.floors[0] == UNMEASURED
    here = replace(HERE, priors={"chain": Prior("chain", pace=earlier, pace_weight=9.0)})
    (budget,) = policy.budgets([here], [LONGEST])
    assert budget.stop.floors[0] == pytest.approx(min(MOST, PATIENCE * pace * 0.15))
    (first, _) = policy.budgets([here, replace(here, request=2)], [LONGEST] * 2)
    two = pace * 2 / 1.05 * (0.1 / 2 + 0.05)  # tokens a second of both, and each one's part
    assert first.stop.floors[0] == pytest.approx(min(MOST, PATIENCE * two))


def test_a_requests_first_draft_does_not_count_since_it_reads_the_prompt():
    policy = Confidence(Parts(None), "chain")
    policy.observe([outcome(4, 2, 50.0, 1.0)])
    for _ in range(TRUSTED):
        policy.observe([outcome(4, 2, 0.4, 1.0)])
    assert floor(policy._price) == pytest.approx(PATIENCE * 3 / 1.4 * 0.1)
    policy.forget(1)
    policy.observe([outcome(4, 2, 50.0, 1.0)])
    assert floor(policy._price) == pytest.approx(PATIENCE * 3 / 1.4 * 0.1)


# --- the switch -----------------------------------------------------------------------------------


def test_nothing_is_drafted_while_speculation_loses_and_probes_come_ever_later():
    parts = Parts(None)
    policy, waits, plain = Confidence(parts, "chain"), [], 0
    for _ in range(400):
        budget = policy.budgets([HERE], [LONGEST])[0]
        assert (budget.depth == 0) == (budget.stop is None)
        drafted = min(budget.depth, 4)
        result = outcome(drafted, 0, 3.0 * drafted, 10.0 + drafted)
        parts.cost.observe(drafted + 1, 0, result.score_seconds)
        policy.observe([result])
        waits, plain = ([*waits, plain], 0) if drafted else (waits, plain + 1)
    assert plain + sum(waits) > 300
    assert waits[-1] > 8 * max(waits[1], 1)


def test_a_decision_to_draft_is_asked_for_again_only_now_and_then():
    policy, asked = Confidence(Parts(None), "chain"), []
    decide = policy._switch.budgets
    policy._switch.budgets = lambda *given: asked.append(1) or decide(*given)
    for rounds in range(1, 11):
        assert policy.budgets([HERE], [LONGEST])[0].depth > 0
        policy.observe([outcome(4, 4, 0.4, 1.0)])
        assert len(asked) == [1, 2, 2, 2, 2, 3, 3, 3, 3, 4][rounds - 1]
    policy.budgets([HERE, replace(HERE, request=2)], [LONGEST] * 2)  # another batch
    assert len(asked) == 5


@pytest.mark.parametrize(
    ("longest", "limit", "depth"),
    [(Budget(3, 3), None, 3), (Budget(30, 30), None, 20), (Budget(30, 30), 25, 25),
     (Budget(8, 8), 5, 5), (Budget(0, 0), None, 0), (Budget(8, 2), None, 2)],
)  # fmt: skip
def test_drafts_reach_as_far_as_drafter_paper_and_option_allow(longest, limit, depth):
    options = {} if limit is None else {"limit": limit}
    budget = Confidence(Parts(None, options=options), "chain").budgets([HERE], [longest])[0]
    assert (budget.depth, budget.nodes) == (depth, depth)


def test_every_draft_gets_a_stop_of_its_own():
    policy = Confidence(Parts(None), "chain")
    first, second = policy.budgets([HERE, HERE], [LONGEST, LONGEST])
    assert first.stop is not second.stop


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["limit", "floor", "tau"])
def test_an_option_out_of_its_range_is_named(name):
    with pytest.raises(InvalidRequest, match=f"option {name} is -1"):
        Confidence(Parts(None, options={name: -1.0}), "chain")
