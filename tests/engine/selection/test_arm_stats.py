"""Which arm leads: the session ranks the arms, the answer decides whether they pay."""

from collections import Counter

import pytest

from engine.interfaces.drafter import Context, Outcome
from engine.request import Prior, SamplingParams
from engine.selection.tuning import TUNING
from engine.speculation.verify import Verdict
from tests.engine.selection.scripted import ROOM, Reads, Scripted, auto_over, play

SHORT = TUNING.short_answer


def test_an_arm_that_turns_bad_is_left():
    fast, steady = Scripted(4, 1.2), Scripted(2, 1.5)
    auto = auto_over(fast=fast, steady=steady)
    play(auto, 30 + SHORT)
    fast.right = 0
    played, _, _ = play(auto, 40)
    assert Counter(played[-30:])["fast"] <= 2 * TUNING.probe_rounds


def test_an_arm_that_turned_good_is_found_again():
    late, steady = Scripted(1, 1.5), Scripted(2, 1.9)
    auto = auto_over(late=late, steady=steady)
    play(auto, 20)
    late.right = 4
    played, _, _ = play(auto, 200)
    assert Counter(played[-50:])["late"] > 40


def test_a_pause_of_the_machine_in_the_middle_of_an_answer_is_no_verdict():
    """One round of hours once made a drafter the slowest of the session."""
    fast = Scripted(3, 1.5)
    auto = auto_over(fast=fast)
    play(auto, 50)
    fast.seconds = 3e4
    assert play(auto, 1)[0] == ["fast"]
    fast.seconds = 1.5
    assert Counter(play(auto, 40)[0])["fast"] >= 30
    assert set(play(auto, 20, request=2)[0]) == {"fast"}


def starts_at(auto, task, priors=()):
    """The speedup of the arm "model" at the start of an answer of this kind."""
    here = Context(99, 0, [1], SamplingParams(), None, priors=dict(priors), task=task)
    return auto.stats.start(here)["model"].value


def test_an_answer_starts_with_what_its_kind_measured_where_that_is_more():
    model = Scripted(4, 2.0)
    auto = auto_over(model=model)
    play(auto, 60, request=1, task="maths")
    model.right = 2
    play(auto, 60, request=2, task="chat")
    assert starts_at(auto, "maths") == pytest.approx(2.5, abs=0.15)
    session = starts_at(auto, "code")  # not seen yet
    assert 1.6 < session < 2.4
    assert starts_at(auto, "chat") == pytest.approx(
        session, abs=0.05
    )  # a kind is never worse than the session


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
    played, _, _ = play(auto_over(**arms), 60, priors={"slow": wrong, "fast": good})
    assert played.index("fast") <= 3 * TUNING.start_weight
    assert Counter(played[-20:])["slow"] == 0


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
    before = auto.stats.speedups["model"].value
    auto.observe([Outcome(context, tree, Verdict((0,), 0), 40.0, 1.0)])  # a long prompt was read
    assert auto.stats.speedups["model"].value == before
    assert set(play(auto, 9, request=2)[0]) == {"model"}


@pytest.mark.parametrize(
    ("prompt", "usual", "drafts"), [(0.5, 32, 1), (20.0, 32, 0), (20.0, 900, 1)]
)
def test_a_long_prompt_is_read_only_for_an_answer_that_pays_for_it(prompt, usual, drafts):
    auto = auto_over(model=Reads(2, 1.5, prompt=prompt))
    play(auto, 100)
    auto.stats.usual_tokens = usual
    assert play(auto, 8, request=2)[0] == [["none", "model"][drafts]] * 8


def test_a_long_answer_asks_again_whether_reading_pays_though_nothing_was_measured():
    auto = auto_over(model=Reads(2, 1.5, prompt=20.0))
    play(auto, 100)
    auto.stats.usual_tokens = 32
    played = play(auto, 900, request=2)[0]
    assert set(played[:32]) == {"none"}
    assert "model" in played
