"""Which arm is tried when: no answer pays for trying all of them."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.interfaces.drafter import Context
from engine.request import Prior, SamplingParams
from engine.selection.arm_stats import ArmStats
from engine.selection.exploration import Exploration, expected_speed
from engine.selection.request_state import RequestState
from engine.selection.tuning import TUNING
from engine.statistics.decayed import Speedup
from engine.statistics.pass_cost import PassCost
from tests.engine.selection.scripted import Reads, Scripted, Steps, auto_over, play

APART, PATIENCE = TUNING.trial_gap, TUNING.patience
PROBE_FIRST, SHORT, STINT = TUNING.first_probe, TUNING.short_answer, TUNING.trial_rounds
USUAL_SHARE, BEST_SHARE = TUNING.usual_acceptance, TUNING.best_acceptance
LONGEST = TUNING.longest_chain


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


def test_a_session_starts_without_trials_where_history_has_an_arm_that_pays():
    auto = auto_over(known=Scripted(2, 1.5), new=Scripted(1, 1.5))
    priors = {"known": Prior("known", pace=2.0, pace_weight=50.0)}
    played, _, _ = play(auto, PATIENCE + STINT, priors=priors)
    assert set(played[:PATIENCE]) == {"known"}
    assert "new" in played[PATIENCE:]


def test_a_history_of_what_does_not_pay_delays_no_trial():
    auto = auto_over(known=Scripted(0, 1.5), new=Scripted(3, 1.5))
    priors = {"known": Prior("known", pace=0.7, pace_weight=50.0)}
    assert "new" in play(auto, SHORT + STINT, priors=priors)[0]


def test_no_arm_is_tried_that_had_to_read_too_much_first():
    auto = auto_over(model=Scripted(1, 1.6), far=Reads(3, 1.5, prompt=5.0))
    play(auto, 3, request=2)
    auto.stats.usual_tokens = 64
    assert "far" not in play(auto, 200, request=2)[0][:100]
    assert "far" in play(auto, 2000, request=2)[0]


def test_the_arm_whose_steps_take_least_is_tried_first():
    arms = {"slow": Steps(1, 1.9, step_seconds=0.4), "fast": Steps(2, 1.2, step_seconds=0.05)}
    played, _, _ = play(auto_over(**arms), SHORT + STINT)
    assert "fast" in played
    assert "slow" not in played


def test_no_trial_is_spent_on_an_arm_that_could_not_be_the_fastest():
    arms = {"slow": Steps(1, 1.9, step_seconds=0.6), "fast": Steps(3, 1.2, step_seconds=0.05)}
    auto = auto_over(**arms)
    assert "slow" not in play(auto, 300)[0]
    arms["fast"].right = 0
    assert "slow" in play(auto, 300)[0]  # now it could


def test_an_arm_whose_step_takes_a_pass_is_never_tried():
    assert set(play(auto_over(slow=Steps(1, 2.1, step_seconds=1.0)), 300)[0]) == {"none"}


# Which arm is tried or probed, of a session's statistics.


@dataclass
class Session:
    """Arms of known (speedup, rounds), and the exploration of their session."""

    arms: dict
    waited: int = 0  # rounds of other requests before

    def __post_init__(self):
        drafters = {name: Scripted(3, 1.5) for name in self.arms}
        self.stats = ArmStats(drafters)
        for name, (value, rounds) in self.arms.items():
            self.stats.speedups[name] = Speedup(100 * value, 100.0, rounds)
        self.stats.usual_tokens = 100
        self.exploration = Exploration(drafters, PassCost({1: 1.0}), self.stats)
        other = self.request()
        for _ in range(self.waited):
            self.exploration.arm(other, [])

    def request(self):
        start = self.stats.start(Context(1, 0, [1], SamplingParams(), None))
        return RequestState(start, Speedup(), {}, self.stats.task(""), leader=next(iter(self.arms)))


def test_no_arm_is_on_trial_for_two_answers_at_once():
    session = Session({"new": (0.0, 0), "other": (0.0, 0)})
    running = [session.request() for _ in range(3)]
    found = []
    for state in running:
        found.append(session.exploration.arm(state, running))
        idle = session.request()
        for _ in range(APART):  # rounds of an answer that is too short for a trial
            session.stats.usual_tokens = 0
            session.exploration.arm(idle, running)
        session.stats.usual_tokens = 100
    assert set(found) == {"new", "other", ""}
    assert found[2] == ""


def probed(**arms):
    """The arm of the next probe."""
    session = Session(arms, waited=PROBE_FIRST - 1)
    state = session.request()
    return session.exploration.arm(state, [state])


@pytest.mark.parametrize(
    ("arms", "chosen"),
    [
        ({"best": (2.0, 900), "rival": (1.9, 800), "new": (1.9, 90), "slow": (1.1, 9)}, "new"),
        ({"best": (2.0, 50), "rival": (1.9, 900)}, "rival"),  # never the leader itself
        ({"best": (1.1, 900), "slow": (0.9, 100_000)}, ""),  # slower than plain decoding
    ],
)
def test_a_probe_is_of_the_least_known_arm_that_is_nearly_as_fast(arms, chosen):
    assert probed(**arms) == chosen


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
    cost = curve(*(1 + row * n for n in range(LONGEST + 1)))
    for found, share in zip(expected_speed(cost, step), (USUAL_SHARE, BEST_SHARE), strict=True):
        paces = [
            expected(share, k) / (1 + row * k + k * step) if k else 1.0 for k in range(LONGEST + 1)
        ]
        assert found == pytest.approx(max(paces))
