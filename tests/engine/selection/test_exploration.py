"""Who is tried, and when: no answer pays for finding out about all of them."""

from collections import Counter
from itertools import pairwise

from engine.interfaces.drafter import Budget, Context
from engine.request import Prior, SamplingParams
from engine.selection.arm_stats import UNDRAFTED
from engine.selection.exploration import APART, KNOWN, PATIENCE, PROBE_FIRST, SHORT, STINT
from engine.statistics.speedup import Speedup
from tests.engine.selection.scripted import ROOM, Reads, Scripted, Steps, auto_over, play


def test_a_short_answer_has_no_trial():
    auto = auto_over(a=Scripted(3, 1.5))
    for request in range(5):
        played, _, _ = play(auto, SHORT - 1, request)
        auto.forget(request, 0)
        assert set(played) == {"none"}


def test_a_trial_comes_at_once_where_answers_are_long():
    auto = auto_over(a=Scripted(0, 2.0), b=Scripted(3, 1.5), c=Scripted(1, 1.5))
    play(auto, 20 * SHORT, 1)
    auto.forget(1, 0)
    assert play(auto, 1, 2)[0] != ["none"]


def test_the_first_answer_of_a_session_is_not_for_trials_where_history_told_what_pays():
    auto = auto_over(known=Scripted(2, 1.5), new=Scripted(1, 1.5))
    told = {"known": Prior("known", pace=2.0, pace_weight=50.0)}
    played, _, _ = play(auto, PATIENCE + STINT, priors=told)
    assert set(played[:PATIENCE]) == {"known"}
    assert "new" in played[PATIENCE:]


def test_a_history_of_what_does_not_pay_delays_no_trial():
    auto = auto_over(known=Scripted(0, 1.5), new=Scripted(3, 1.5))
    told = {"known": Prior("known", pace=0.7, pace_weight=50.0)}
    assert "new" in play(auto, SHORT + STINT, priors=told)[0]


def test_no_arm_is_tried_that_had_to_read_too_much_first():
    auto = auto_over(model=Scripted(1, 1.6), far=Reads(3, 1.5, prompt=5.0))
    play(auto, 3, request=2)
    auto._standings.usual_tokens = 64
    assert "far" not in play(auto, 200, request=2)[0][:100]
    assert "far" in play(auto, 2000, request=2)[0]


def test_arms_of_one_draft_model_wait_until_the_first_is_known():
    arms = {"first": Reads(2, 1.5), "second": Reads(2, 1.2), "other": Scripted(2, 1.45)}
    played, _, _ = play(auto_over(**arms), 4 * KNOWN)
    before = Counter(played[: played.index("second")])
    assert before["other"] > 0
    assert KNOWN <= before["first"] <= KNOWN + APART
    assert played[-1] == "second"


def test_nobody_waits_for_an_arm_that_does_not_pay():
    played, _, _ = play(auto_over(first=Reads(0, 1.5), second=Reads(3, 1.5)), 2 * KNOWN)
    assert Counter(played)["first"] < KNOWN / 2
    assert Counter(played)["second"] > KNOWN / 2


def test_trees_of_hundreds_do_not_wait_for_a_chain():
    large = Reads(3, 1.2, max_draft=Budget(4, 400))
    played, _, _ = play(auto_over(first=Reads(2, 1.5), second=large), 2 * KNOWN)
    assert Counter(played[: played.index("second")])["first"] < KNOWN / 2


def test_the_arm_whose_steps_take_least_is_tried_first():
    arms = {"slow": Steps(1, 1.9, step_seconds=0.4), "fast": Steps(2, 1.2, step_seconds=0.05)}
    played, _, _ = play(auto_over(**arms), SHORT + STINT)
    assert "fast" in played
    assert "slow" not in played


def test_no_trial_is_spent_on_an_arm_that_could_not_be_the_fastest():
    arms = {"slow": Steps(1, 1.9, step_seconds=0.6), "fast": Steps(3, 1.2, step_seconds=0.05)}
    auto = auto_over(**arms)
    assert "slow" not in play(auto, 300)[0]
    arms["fast"].accepted = 0
    assert "slow" in play(auto, 300)[0]  # now it could


def test_an_arm_whose_step_takes_a_pass_is_never_tried():
    assert set(play(auto_over(slow=Steps(1, 2.1, step_seconds=1.0)), 300)[0]) == {"none"}


def test_a_trial_without_a_draft_ends_soon():
    """Its length policy drafts nothing here, so that six rounds would show what two have shown."""
    silent = Scripted(3, 1.5, every=10**9)
    played, _, _ = play(auto_over(silent=silent), SHORT + STINT)
    assert Counter(played)["silent"] == 1 + UNDRAFTED  # the first round reads the prompt


def starts(played, *names):
    """Rounds in which one of these began to play."""
    pairs = pairwise(["none", *played])
    return [at for at, (one, other) in enumerate(pairs) if other in names and other != one]


def test_trials_of_one_answer_stand_apart():
    bad = {name: Scripted(0, 2.0) for name in "abc"}
    played, _, _ = play(auto_over(**bad), 20 * SHORT)
    first, second, third = (played.index(name) for name in dict.fromkeys(played) if name != "none")
    last = max(at for at, name in enumerate(played[:second]) if name != "none")
    assert second - last >= APART
    assert third - second > APART
    assert first >= SHORT


def test_looks_at_the_runner_up_come_ever_more_seldom():
    auto = auto_over(best=Scripted(3, 1.5), rival=Scripted(3, 1.7))
    play(auto, PROBE_FIRST - 1)
    looks = starts(play(auto, 15 * PROBE_FIRST)[0], "rival")
    gaps = [later - one for one, later in pairwise(looks)]
    assert gaps == [PROBE_FIRST << n for n in range(1, len(gaps) + 1)]
    assert len(gaps) >= 2


def on_trial(auto, request):
    """The arm that is on trial in the next round of this request; empty: none."""
    auto.draft([Context(request, request, [1], SamplingParams(), None)], [ROOM])
    match = auto._matches[request]
    return match.on_trial if match.stint else ""


def test_no_arm_is_on_trial_for_two_answers_at_once():
    auto = auto_over(new=Scripted(1, 1.5), other=Scripted(1, 1.5))
    auto._standings.usual_tokens = 100
    trying = on_trial(auto, 1)
    auto._trials._since_trial = APART
    assert {trying, on_trial(auto, 2)} == {"new", "other"}
    auto._trials._since_trial = APART
    assert on_trial(auto, 3) == ""


def looked_at(**paces):
    """Whom the next look is at, of arms of known (pace, rounds), and the request that it is of."""
    auto = auto_over(**{name: Scripted(3, 1.5) for name in paces})
    for name, (pace, rounds) in paces.items():
        auto._standings.paces[name] = Speedup(100 * pace, 100.0, rounds)
    context = Context(1, 0, [1], SamplingParams(), None)
    match = auto._match(context)
    match.favourite, match.undrafted = next(iter(paces)), 5
    auto._trials._since_probe = PROBE_FIRST
    return auto._trials.arm(match, [match]), match


def test_a_look_is_at_the_least_known_of_those_nearly_as_fast():
    assert looked_at(best=(2.0, 900), known=(1.9, 800), unknown=(1.9, 90), slow=(1.1, 9))[0] == (
        "unknown"
    )


def test_a_look_is_never_at_the_favourite_itself():
    assert looked_at(best=(2.0, 50), rival=(1.9, 900))[0] == "rival"


def test_who_is_slower_than_plain_is_not_looked_at_again():
    assert looked_at(best=(1.1, 900), slow=(0.9, 100_000))[0] == ""


def test_what_was_silent_before_a_trial_does_not_shorten_it():
    arm, match = looked_at(best=(2.0, 900), rival=(1.9, 90))
    assert arm == "rival"
    assert match.undrafted == 0
