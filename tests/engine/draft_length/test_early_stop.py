"""Early ends: the measured threshold, the switch above it, and that neither bends the law."""

from dataclasses import replace

import pytest
import torch

from engine.draft_length.early_stop import Confidence
from engine.draft_length.stop_threshold import ConfidenceStop, StopThreshold
from engine.draft_length.tuning import TUNING
from engine.drafters.chain import Chain
from engine.errors import InvalidRequest
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import GenerationRequest, Prior, SamplingParams
from engine.speculation.sampling import probabilities
from engine.speculation.tree import chain
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost, StepSeconds
from tests.engine.enumeration import assert_joint_law, law_of, random_law
from tests.engine.tiny import Markov, decoded, engine_over, run_all, tiny_target

HERE = Context(1, 0, [1], SamplingParams(), None)
LONGEST = Budget(30, 30)


def outcome(drafted, accepted, draft_seconds, score_seconds, context=HERE):
    verdict = Verdict(tuple(range(accepted + 1)), 0)
    return Outcome(context, chain(range(drafted + 1)), verdict, draft_seconds, score_seconds)


# --- the law stays --------------------------------------------------------------------------------


@pytest.mark.parametrize(("floor", "expected"), [(0.3, {1, 2, 3}), (1.0, {1})])
def test_ending_a_drawn_chain_for_its_probabilities_keeps_the_joint_law(floor, expected):
    laws = torch.stack([random_law(3, 90 + row) for row in range(3)])
    drafts = torch.stack([random_law(3, 70 + row) for row in range(3)])
    length, prompt, sampling = 3, [1, 2], SamplingParams(1.0)
    lengths = set()

    def run(chance):
        target, draft = Markov(laws), Markov(drafts)
        parts = DrafterResources(target, draft, options={"floor": floor})
        drafter, policy = Chain(parts), Confidence(parts, "chain")
        ids = list(prompt)
        target.feed(0, ids[:-1])

        def draft(context):
            return drafter.draft([context], policy.budgets([context], [Budget(3, 3)]))[0]

        for outcome in decoded(target, ids, length, draft, sampling=sampling, rng=chance):
            lengths.add(outcome.tree.drafted)
            drafter.observe([outcome])
            policy.observe([outcome])
        return tuple(ids[len(prompt) : len(prompt) + length])

    assert_joint_law(law_of(run), probabilities(laws.log(), sampling), prompt[-1], length)
    assert lengths == expected


# --- the threshold --------------------------------------------------------------------------------


def taught(cost=None, draft_step=0.1, priors=(), rounds=40):
    """The threshold of a policy whose drafts of mixed lengths were all accepted."""
    parts = DrafterResources(None, cost=cost or PassCost({1: 1.0}), step_seconds=draft_step)
    policy = Confidence(parts, "chain")
    here = replace(HERE, priors={prior.drafter: prior for prior in priors})
    for drafted in (1, 2, 4, 8) * (rounds // 4):
        policy.observe([outcome(drafted, drafted, drafted * draft_step, 1.0, context=here)])
    (budget,) = policy.budgets([here], [LONGEST])
    return budget.stop.threshold


def test_the_floor_is_what_a_tokens_seconds_would_bring_at_the_rate_of_the_best_allocation():
    cost = PassCost({1: 1.0, 64: 1.0 + 63 * 0.05})  # a row takes .05 seconds, a step .1
    floors = taught(cost)
    rate = floors.rate
    assert 2 < rate < 6  # nearly all of eight tokens, in a pass of 1.4 and a draft of .8 seconds
    assert floors.after(1) == pytest.approx(rate * 0.15, rel=1e-3)


def test_every_length_has_the_floor_of_its_own_row():
    floors = taught(PassCost({1: 1.0, 4: 1.0, 8: 1.4}))  # three drafted tokens are free
    free, dear = (floors.rate * seconds for seconds in (0.1, 0.2))
    assert [floors.after(n) for n in (1, 2)] == pytest.approx([free] * 2, rel=1e-3)
    assert [floors.after(n) for n in (3, 4, 5, 6)] == pytest.approx([dear] * 4, rel=1e-3)


def test_a_free_token_must_be_worth_something_all_the_same():
    assert taught(draft_step=0.0).after(1) == TUNING.least_floor


def test_the_first_round_already_knows_what_a_step_takes_and_what_earlier_sessions_accepted():
    poor = Prior("chain", depths=((500.0, 150.0),) * 8)
    fresh, after_poor = taught(rounds=0), taught(rounds=0, priors=(poor,))
    assert fresh.rate > after_poor.rate >= 1
    for floors in (fresh, after_poor):
        assert floors.after(1) == pytest.approx(floors.rate * 0.1)


def test_chains_that_still_grow_share_a_step_and_the_last_one_pays_for_it_alone():
    floors = StopThreshold(1.0, [0.1] * 9, StepSeconds(9.0, 0.4, 0.05), growing=4)
    assert floors.after(1) == pytest.approx(0.1 + 0.05 + 0.4 / 4)
    assert floors.ends(0.2, 1)
    assert not floors.ends(0.9, 1)
    assert floors.after(2) == pytest.approx(0.1 + 0.05 + 0.4 / 3)
    unsure = [ConfidenceStop(0.5, floors) for _ in range(2)]
    assert [rule.drawn(0.4) for rule in unsure] == [True, True]
    assert floors.after(20) == pytest.approx(0.1 + 0.05 + 0.4)


def test_a_draft_that_read_the_prompt_does_not_count_as_a_draft():
    policy = Confidence(DrafterResources(None, cost=PassCost({1: 1.0})), "chain")
    for number in range(1, 4):
        here = replace(HERE, request=number)
        policy.observe([outcome(4, 2, 50.0, 1.0, context=here)])
        for _ in range(8):
            policy.observe([outcome(4, 2, 0.4, 1.0, context=here)])
    (budget,) = policy.budgets([HERE], [LONGEST])
    assert budget.stop.threshold.draft.of(4, 4) == pytest.approx(0.4)


# --- the reach ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("longest", "limit", "depth"),
    [(Budget(3, 3), None, 3), (Budget(30, 30), None, 20), (Budget(30, 30), 25, 25),
     (Budget(8, 8), 5, 5), (Budget(0, 0), None, 0), (Budget(8, 2), None, 2)],
)  # fmt: skip
def test_drafts_reach_as_far_as_drafter_paper_and_option_allow(longest, limit, depth):
    options = {} if limit is None else {"limit": limit}
    budget = Confidence(DrafterResources(None, options=options), "chain").budgets(
        [HERE], [longest]
    )[0]
    assert (budget.depth, budget.nodes) == (depth, depth)


# --- the rule ---


@pytest.mark.parametrize(("tau", "floor", "chances", "length"), [
    (0.0, 0.3, [0.9, 0.7, 0.6, 0.5, 0.9], 4),  # the product is 0.9, 0.63, 0.378, 0.189
    (0.5, 0.0, [0.9, 0.6, 0.4, 0.9], 3),  # one unlikely token
    (0.5, 0.5, [1.0] * 20, None),
])  # fmt: skip
def test_a_draft_ends_by_the_product_of_its_chances_or_by_one_of_them(tau, floor, chances, length):
    rule = ConfidenceStop(tau, StopThreshold.constant(floor))
    assert next((n for n, p in enumerate(chances, 1) if rule.drawn(p)), None) == length


@pytest.mark.parametrize("drafter", ["chain", "early_exit"])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.8, seed=3)])
@pytest.mark.parametrize("options", [(), (("floor", 0.4),), (("tau", 0.5),), (("limit", 2.0),)])
def test_answers_are_plains_token_by_token(drafter, sampling, options):
    request = GenerationRequest((1, 2, 3, 4), 40, sampling, drafter="none")
    [(plain, _)] = run_all(engine_over(tiny_target()), [request])
    asked = GenerationRequest(
        (1, 2, 3, 4), 40, sampling, drafter=drafter, length="confidence", options=options
    )
    [(ids, done)] = run_all(engine_over(tiny_target(), tiny_target(0, layers=1)), [asked])
    assert ids == plain
    assert done.stats.drafted > 0


def test_a_higher_floor_drafts_fewer_tokens_a_pass():
    def drafted(floor):
        request = GenerationRequest(
            (1, 2, 3), 60, drafter="chain", length="confidence", draft_depth=12,
            options=(("floor", floor),),
        )  # fmt: skip
        dear = PassCost({1: 1e3, 64: 1e3})  # so that goodput never says no
        engine = engine_over(tiny_target(sharpness=1.0), tiny_target(sharpness=1.0), cost=dear)
        [(_, done)] = run_all(engine, [request])
        return done.stats.drafted / done.stats.passes

    assert drafted(0.0) > drafted(0.1) > drafted(0.9) >= 0.9


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["limit", "floor", "tau"])
def test_an_option_out_of_its_range_is_named(name):
    with pytest.raises(InvalidRequest, match=f"option {name} is -2"):
        Confidence(DrafterResources(None, options={name: -2.0}), "chain")
