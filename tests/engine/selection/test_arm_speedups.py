"""Which arm drafts: measured seconds decide, what is not known is tried, no answer pays much for that."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interfaces.drafter import Context, Outcome
from engine.request import Prior, SamplingParams
from engine.selection.arm_speedups import expected_speedup
from engine.selection.tuning import TUNING
from engine.speculation.verify import Verdict
from engine.statistics.pass_cost import PassCost
from tests.engine.selection.scripted import ROOM, Reads, Scripted, Steps, auto_over, play


def test_an_arm_that_turns_bad_is_left():
    fast, steady = Scripted(4, 1.2), Scripted(2, 1.5)
    auto = auto_over(fast=fast, steady=steady)
    play(auto, 40)
    fast.right = 0
    played, _, _ = play(auto, 60)
    assert Counter(played[-30:])["fast"] == 0


def test_an_arm_that_turned_good_is_found_again():
    """What does not draft is known less and less well."""
    late = Scripted(0, 1.5)
    auto = auto_over(late=late)
    assert Counter(play(auto, 200)[0])["late"] < 10
    late.right = 4
    played, _, _ = play(auto, 2000)
    assert Counter(played[-50:])["late"] == 50


def test_a_bad_arm_costs_hardly_anything_in_the_long_run():
    played, seconds, tokens = play(auto_over(a=Scripted(0, 1.5), b=Scripted(1, 2.5)), 5000)
    assert seconds / tokens < 1.01
    assert Counter(played)["none"] > 4900


@pytest.mark.parametrize("rounds", [8, 40, 200])
def test_no_answer_loses_more_than_it_may(rounds):
    """Not even where arms that were good so far turn bad with it."""
    arms = [Scripted(4, 1.2) for _ in range(3)]
    auto = auto_over(**{f"arm{n}": arm for n, arm in enumerate(arms)})
    play(auto, 100)
    for arm in arms:
        arm.right, arm.seconds = 0, 2.0
    _, seconds, tokens = play(auto, rounds, request=2)
    last = 1.0  # the round that went over
    assert seconds - tokens <= TUNING.risk + TUNING.risk_share * tokens + last


def test_a_pause_of_the_machine_in_the_middle_of_an_answer_is_no_verdict():
    """One round of hours once made a drafter the slowest of the session."""
    fast = Scripted(3, 1.5)
    auto = auto_over(fast=fast)
    play(auto, 50)
    fast.seconds = 3e4
    assert play(auto, 1)[0] == ["fast"]
    fast.seconds = 1.5
    auto.forget(1, 0)
    assert set(play(auto, 20, request=2)[0]) == {"fast"}


def starts_at(auto, task, priors=()):
    """The speedup of the arm "model" at the start of an answer of this kind."""
    here = Context(99, 0, [1], SamplingParams(), None, priors=dict(priors), task=task)
    return auto.speedups.value(auto.speedups.start(here), "model")


def test_an_answer_starts_with_what_its_kind_measured():
    model = Scripted(4, 2.0)
    auto = auto_over(model=model)
    play(auto, 60, request=1, task="maths")
    model.right = 2
    play(auto, 60, request=2, task="chat")
    assert starts_at(auto, "maths") == pytest.approx(2.5, abs=0.2)
    assert starts_at(auto, "chat") < starts_at(auto, "code") < starts_at(auto, "maths")


def test_a_new_kind_starts_with_what_earlier_sessions_measured_of_it():
    auto = auto_over(model=Scripted(2, 2.0))
    play(auto, 100, task="chat")
    session = starts_at(auto, "code")
    code = {"model": Prior("model", pace=3.0, pace_weight=500.0)}
    assert starts_at(auto, "maths", code) > session + 0.5


def test_earlier_sessions_start_it_with_the_right_arm_and_are_overruled_when_wrong():
    good = Prior("fast", pace=2.4, pace_weight=500.0)
    bad = Prior("slow", pace=0.8, pace_weight=500.0)
    arms = {"slow": Scripted(0, 2.0), "fast": Scripted(3, 1.5)}
    assert set(play(auto_over(**arms), 12, priors={"fast": good, "slow": bad})[0]) == {"fast"}
    wrong = Prior("slow", pace=8.0, pace_weight=1e9)
    auto = auto_over(**arms)
    played, seconds, tokens = play(auto, 60, priors={"slow": wrong, "fast": good})
    assert seconds - tokens <= TUNING.risk + TUNING.risk_share * tokens + 1
    for request in range(2, 40):
        played, _, _ = play(auto, 60, request, priors={"slow": wrong, "fast": good})
        auto.forget(request, 0)
    assert Counter(played)["fast"] > 50


def test_an_arm_that_starts_empty_is_not_expected_to_start_as_it_ended():
    class Empty(Scripted):
        starts_empty = True

    auto = auto_over(table=Empty(3, 1.5), model=Scripted(1, 1.2))
    priors = {
        name: Prior(name, pace=pace, pace_weight=50.0)
        for name, pace in (("table", 3.0), ("model", 1.6))
    }
    assert play(auto, 5, priors=priors)[0] == ["model"] * 5


def test_reading_the_prompt_says_nothing_of_how_fast_tokens_come():
    auto = auto_over(model=Scripted(2, 1.5))
    play(auto, 40)
    context = Context(2, 0, [1], SamplingParams(), None)
    [tree] = auto.draft([context], [ROOM])
    before = auto.speedups.session["model"].value
    auto.observe([Outcome(context, tree, Verdict((0,), 0), 40.0, 1.0)])  # a long prompt was read
    assert auto.speedups.session["model"].value == before


@pytest.mark.parametrize(
    ("prompt", "usual", "drafts"), [(0.5, 32, 1), (20.0, 32, 0), (20.0, 900, 1)]
)
def test_a_long_prompt_is_read_only_for_an_answer_that_pays_for_it(prompt, usual, drafts):
    auto = auto_over(model=Reads(2, 1.5, prompt=prompt))
    for request in range(50):  # the first ones read nothing here
        play(auto, usual // 3, 1 - request)  # three tokens a round
        auto.forget(1 - request, 0)
    assert play(auto, 8, request=2)[0] == [["none", "model"][drafts]] * 8


def test_a_long_answer_asks_again_whether_reading_pays_though_nothing_was_measured():
    auto = auto_over(model=Reads(2, 1.5, prompt=20.0))
    play(auto, 32)
    auto.forget(1, 0)
    played = play(auto, 900, request=2)[0]
    assert set(played[:20]) == {"none"}
    assert "model" in played


def test_the_arm_whose_steps_take_least_is_tried_first():
    arms = {"slow": Steps(1, 1.9, step_seconds=0.4), "fast": Steps(2, 1.2, step_seconds=0.05)}
    played, _, _ = play(auto_over(**arms), 12)
    assert set(played) == {"fast"}


def test_an_arm_whose_step_takes_a_pass_is_never_tried():
    assert set(play(auto_over(slow=Steps(1, 2.1, step_seconds=1.0)), 300)[0]) == {"none"}


# Expected speeds.


def curve(*seconds):
    cost = PassCost()
    for rows, each in enumerate(seconds, 1):
        cost.profile(rows, each)
    return cost


def expected(share, length):
    """Tokens of a round by all ways in which it can end: i tokens hold and the next one does not."""
    ends = [share**i * (1 - share) * (i + 1) for i in range(length)]
    return sum(ends) + share**length * (length + 1)


@given(st.floats(0, 2), st.floats(0.01, 1))
def test_the_expected_speed_is_that_of_the_best_chain_counted_by_its_ends(step, row):
    longest = TUNING.longest_chain
    cost = curve(*(1 + row * n for n in range(longest + 1)))
    paces = [
        expected(TUNING.acceptance, k) / (1 + row * k + k * step) if k else 1.0
        for k in range(longest + 1)
    ]
    assert expected_speedup(cost, step) == pytest.approx(max(paces))
