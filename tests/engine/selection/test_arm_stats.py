"""Which of the arms that always propose drafts: the session tells them apart, the answer whether they pay."""

from collections import Counter
from itertools import pairwise

import pytest

from engine.interfaces.drafter import Context, Outcome
from engine.request import Prior, SamplingParams
from engine.selection.arm_stats import MEMORY, STICKINESS, UNDRAFTED, USUAL_RATE, ArmStats
from engine.selection.exploration import APART, PROBE, PROBE_FIRST, SHORT, STINT
from engine.selection.request_state import RequestState
from engine.speculation.verify import Verdict
from engine.statistics.speedup import Speedup
from tests.engine.selection.scripted import ROOM, Reads, Scripted, auto_over, play


def test_the_fastest_arm_takes_over():
    auto = auto_over(slow=Scripted(2, 3.2), fast=Scripted(2, 1.5), worse=Scripted(1, 1.5))
    played, _, _ = play(auto, 60 + SHORT)
    assert Counter(played).most_common(1)[0][0] == "fast"
    assert set(played[-15:]) == {"fast"}


def test_it_stays_with_an_arm_that_is_only_a_little_slower():
    auto = auto_over(a=Scripted(2, 1.50), b=Scripted(2, 1.49))
    played, _, _ = play(auto, PROBE_FIRST + SHORT)
    switches = sum(x != y for x, y in pairwise(played[SHORT + 2 * (STINT + APART) :]))
    assert switches <= 2


def test_an_arm_that_turns_bad_is_left():
    fast, steady = Scripted(4, 1.2), Scripted(2, 1.5)
    auto = auto_over(fast=fast, steady=steady)
    play(auto, 30 + SHORT)
    fast.accepted = 0
    played, _, _ = play(auto, 40)
    assert Counter(played[-30:])["fast"] <= 2 * PROBE  # a look whether it is still bad


def test_an_arm_that_turned_good_is_found_again():
    late, steady = Scripted(1, 1.5), Scripted(2, 1.9)
    auto = auto_over(late=late, steady=steady)
    play(auto, 20)
    late.accepted = 4
    played, _, _ = play(auto, 200)
    assert Counter(played[-50:])["late"] > 40


def test_a_night_of_sleep_in_the_middle_of_an_answer_is_no_verdict():
    """One round of hours once made a drafter the slowest of the session, and of every answer after it."""
    fast = Scripted(3, 1.5)
    auto = auto_over(fast=fast)
    play(auto, 50)
    fast.seconds = 3e4
    assert play(auto, 1)[0] == ["fast"]
    fast.seconds = 1.5
    assert Counter(play(auto, 40)[0])["fast"] >= 30
    assert set(play(auto, 20, request=2)[0]) == {"fast"}


def test_what_one_request_measured_helps_the_next():
    auto = auto_over(slow=Scripted(0, 2.0), fast=Scripted(3, 1.5), mid=Scripted(1, 1.5))
    play(auto, 50 + SHORT, request=1)
    auto.forget(1, 0)
    assert play(auto, 10, request=2)[0] == ["fast"] * 10


def begun(auto, task, priors=()):
    """Where an answer of this kind begins: the pace of its favourite."""
    play(auto, 1, request=99, task=task, priors=priors)
    pace = auto._matches[99].rate
    auto.forget(99, 0)
    return pace


def test_an_answer_begins_with_what_its_kind_measured_where_that_is_more():
    model = Scripted(4, 2.0)  # a pace of 2.5
    auto = auto_over(model=model)
    play(auto, 60, request=1, task="maths")
    model.accepted = 2  # of 1.5
    play(auto, 60, request=2, task="chat")
    assert begun(auto, "maths") == pytest.approx(2.5, abs=0.15)
    session = begun(auto, "code")  # not seen yet
    assert 1.6 < session < 2.4
    assert begun(auto, "chat") == pytest.approx(session, abs=0.05)  # nothing is held against a kind


def test_a_kind_that_the_session_has_not_seen_begins_with_what_earlier_ones_measured_of_it():
    auto = auto_over(model=Scripted(2, 2.0))
    play(auto, 100, task="chat")
    session = begun(auto, "code")
    code = {"model": Prior("model", pace=3.0, pace_weight=500.0)}
    assert begun(auto, "maths", code) > session + 0.5


def test_the_session_and_the_kind_it_begins_with_count_each_round_once():
    auto = auto_over(model=Scripted(2, 2.0))
    play(auto, 5, task="maths", priors={"model": Prior("model", pace=3.0, pace_weight=50.0)})
    kind = auto._standings.kind("maths")
    assert auto._standings.paces["model"].rounds == kind.paces["model"].rounds == 50 + 4  # one read


def test_earlier_sessions_start_it_with_the_right_arm_and_are_overruled_when_wrong():
    good = Prior("fast", pace=2.4, pace_weight=500.0)
    bad = Prior("slow", pace=0.8, pace_weight=500.0)
    arms = {"slow": Scripted(0, 2.0), "fast": Scripted(3, 1.5)}
    assert set(play(auto_over(**arms), 12, priors={"fast": good, "slow": bad})[0]) == {"fast"}
    wrong = Prior("slow", pace=8.0, pace_weight=1e9)
    played, _, _ = play(auto_over(**arms), 60, priors={"slow": wrong, "fast": good})
    assert played.index("fast") <= 3 * MEMORY
    assert Counter(played[-20:])["slow"] == 0


def test_an_arm_that_starts_empty_is_not_hoped_to_begin_as_it_ended():
    class Empty(Scripted):
        starts_empty = True

    auto = auto_over(table=Empty(3, 1.5), model=Scripted(1, 1.2))
    priors = {
        name: Prior(name, pace=pace, pace_weight=50.0)
        for name, pace in (("table", 3.0), ("model", 1.6))
    }
    assert play(auto, 5, priors=priors)[0] == ["model"] * 5


def test_reading_the_prompt_says_nothing_of_how_fast_tokens_come():
    auto = auto_over(
        model=Scripted(2, 1.5), lookup=Scripted(0, 1.0, every=10**9, proposes_rarely=True)
    )
    play(auto, 40)
    context = Context(2, 0, [1], SamplingParams(), None)
    [tree] = auto.draft([context], [ROOM])
    assert auto.active_arm(2) == "model"
    before = auto._matches[2].whole.value
    auto.observe([Outcome(context, tree, Verdict((0,), 0), 40.0, 1.0)])  # a long prompt was read
    assert auto._matches[2].whole.value == before
    assert auto._whole.value > 1
    auto._matches[2].whole.add(0, 100.0)
    assert auto._matches[2].rate == 2.0  # the favourite can be had whatever a round took
    auto._matches[2].favourite = "none"
    assert auto._matches[2].rate == 1.0  # and plain decoding always can


@pytest.mark.parametrize(
    ("prompt", "usual", "plays"), [(0.5, 32, 1), (20.0, 32, 0), (20.0, 900, 1)]
)
def test_a_long_prompt_is_read_only_for_an_answer_that_pays_for_it(prompt, usual, plays):
    auto = auto_over(model=Reads(2, 1.5, prompt=prompt))
    play(auto, 100)
    auto._standings.usual_tokens = usual
    assert play(auto, 8, request=2)[0] == [["none", "model"][plays]] * 8


def standing(**paces):
    """Standings of arms that a session knows well, and an answer that knows as much."""
    standings = ArmStats({name: Scripted(1, 1.0) for name in paces})
    standings.paces = {
        name: Speedup(10_000 * pace, 10_000.0, 10**6) for name, pace in paces.items()
    }
    known = {"none": Speedup(1.0, 1.0, 10**6), **standings.paces}
    return standings, RequestState(known, Speedup(1.0, 1.0), {}, standings.kind(""))


@pytest.mark.parametrize(("faster", "leads"), [(0.99, "first"), (1.01, "second")])
def test_another_arm_leads_only_if_it_is_clearly_faster(faster, leads):
    standings, match = standing(first=2.0, second=2.0 * STICKINESS * faster)
    match.favourite = "first"
    assert standings.favourite(match) == leads


def test_the_length_of_a_usual_answer_is_followed_and_not_jumped_to():
    standings, match = standing(model=2.0)
    match.emitted = 100
    standings.ended(match)
    assert standings.usual_tokens == pytest.approx(100 * USUAL_RATE)
    standings.ended(match)
    assert standings.usual_tokens == pytest.approx(100 * (1 - (1 - USUAL_RATE) ** 2))


def test_a_long_answer_asks_again_whether_reading_pays_though_nothing_was_measured():
    auto = auto_over(model=Reads(2, 1.5, prompt=20.0))
    play(auto, 100)
    auto._standings.usual_tokens = 32
    played = play(auto, 900, request=2)[0]
    assert set(played[:32]) == {"none"}
    assert "model" in played


def test_rounds_without_a_draft_silence_an_arm_only_in_a_row():
    standings, match = standing(shy=2.0)
    match.playing, match.stint = "shy", 2 * UNDRAFTED
    for drafted in [False, True] * UNDRAFTED:
        standings.measure(match, 1, 1.0, drafted=drafted)
    assert standings.silent == set()
    for _ in range(UNDRAFTED):
        standings.measure(match, 1, 1.0, drafted=False)
    assert standings.silent == {"shy"}
    assert match.stint == 0


def test_an_arm_that_drafts_again_is_heard_again():
    standings, match = standing(shy=2.0)
    standings.silent.add("shy")
    match.playing = "shy"
    standings.measure(match, 3, 1.5, drafted=True)
    assert standings.silent == set()


def test_a_trial_is_over_once_the_arm_is_known_to_lose():
    standings, match = standing(slow=1.0)
    match.playing, match.stint = "slow", 5
    standings.measure(match, 1, 9.0, drafted=True)
    assert match.stint == 0
