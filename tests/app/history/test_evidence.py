"""Laws of the priors whatever was stored, then what a few replies say."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.history.evidence import (
    FASTEST,
    LARGEST_REPLY,
    LEAST,
    LIFE_DAYS,
    SLOWEST,
    WINDOW,
    priors,
)
from app.history.records import MeasuredRun
from app.history.task_class import TaskClass
from engine.request import Prior
from tests.app.history.replies import CHAT

HEAVIEST = LARGEST_REPLY * WINDOW  # more than fading lets any weight become


def run(reply: int = 1, **changed: object) -> MeasuredRun:
    """Twenty passes of two tokens, twice as fast as plain decoding."""
    usual = MeasuredRun(
        reply=reply,
        days=0.0,
        task=CHAT.task,
        machine=CHAT.machine,
        drafter="chain",
        passes=20,
        emitted=40,
        seconds=1.0,
        plain_seconds=2.0,
        evaluated=[20, 15],
        accepted=[15, 5],
    )
    return replace(usual, **changed)


def prior_of(*runs: MeasuredRun) -> Prior:
    (prior,) = priors(runs, CHAT)
    return prior


anything = st.floats(allow_nan=True, allow_infinity=True)
count = st.integers(-5, 10**12)
stored = st.builds(
    MeasuredRun,
    reply=st.integers(1, 80),
    days=anything | st.floats(0, 100),
    task=st.sampled_from([*TaskClass, "a class of later"]),
    machine=st.sampled_from([CHAT.machine, "another"]),
    drafter=st.sampled_from(["chain", "lookup"]),
    passes=count | st.integers(0, 50),
    emitted=count | st.integers(0, 100),
    seconds=anything | st.floats(0, 10),
    plain_seconds=anything | st.floats(0, 10),
    evaluated=st.lists(count | st.integers(0, 50), max_size=4),
    accepted=st.lists(count | st.integers(0, 50), max_size=4),
    shares=st.lists(anything | st.floats(0, 0.3), max_size=4),
    share_weight=anything | st.floats(0, 100),
)
likely = st.builds(
    run,
    reply=st.integers(1, 60),
    days=st.floats(0, LIFE_DAYS),
    task=st.sampled_from(list(TaskClass)),
    machine=st.sampled_from([CHAT.machine, "another"]),
    drafter=st.sampled_from(["chain", "lookup"]),
    seconds=st.floats(0.1, 10),
    evaluated=st.integers(1, 20).map(lambda n: [n, n]),
    accepted=st.integers(1, 20).map(lambda n: [n, 0]),
    shares=st.just([0.5, 0.25]),
    share_weight=st.floats(1, 100),
)


def weights(found: tuple[Prior, ...], drafter: str) -> list[float]:
    """Everything that says how much evidence there is, deeper depths padded with none."""
    for prior in found:
        if prior.drafter == drafter:
            depths = [evaluated for evaluated, _ in prior.depths]
            return [*(depths + [0.0] * 4)[:4], prior.pace_weight, prior.share_weight]
    return [0.0] * 6


class TestLaws:
    @given(st.lists(stored, max_size=30))
    def test_whatever_is_stored_priors_are_finite_and_within_bounds(self, runs):
        found = priors(runs, CHAT)
        assert len({prior.drafter for prior in found}) == len(found)
        for prior in found:
            for evaluated, accepted in prior.depths:
                assert LEAST <= evaluated <= HEAVIEST
                assert 0 <= accepted <= evaluated
            assert prior.pace is None or SLOWEST <= prior.pace <= FASTEST
            assert (prior.pace is None) == (prior.pace_weight == 0)
            assert 0 <= prior.pace_weight <= HEAVIEST
            assert all(0 <= share <= 1 for share in prior.shares)
            assert sum(prior.shares) <= 1 + 1e-5
            assert (len(prior.shares) == 0) == (prior.share_weight == 0)
            assert 0 <= prior.share_weight <= HEAVIEST

    @given(st.lists(likely, max_size=30), st.floats(0, LIFE_DAYS))
    def test_nothing_gains_weight_with_time(self, runs, days):
        later = [replace(one, days=one.days + days) for one in runs]
        before, after = priors(runs, CHAT), priors(later, CHAT)
        for drafter in ("chain", "lookup"):
            pairs = zip(weights(before, drafter), weights(after, drafter), strict=True)
            assert all(new <= old + 1e-9 for old, new in pairs)
        assert priors([replace(one, days=LIFE_DAYS) for one in runs], CHAT) == ()

    @given(st.lists(likely, max_size=30), st.integers(1, WINDOW), st.sampled_from(list(TaskClass)))
    def test_nothing_gains_weight_from_replies_of_another_drafter(self, runs, more, task):
        others = [run(100 + n, drafter="none", task=task) for n in range(more)]
        before, after = priors(runs, CHAT), priors([*runs, *others], CHAT)
        for drafter in ("chain", "lookup"):
            pairs = zip(weights(before, drafter), weights(after, drafter), strict=True)
            assert all(new <= old + 1e-9 for old, new in pairs)

    @given(st.lists(likely, max_size=30), st.randoms(use_true_random=False))
    def test_the_order_of_the_rows_does_not_matter(self, runs, random):
        unlike = list({(one.reply, one.drafter): one for one in runs}.values())
        shuffled = list(unlike)
        random.shuffle(shuffled)
        found, again = priors(unlike, CHAT), priors(shuffled, CHAT)
        assert [prior.drafter for prior in found] == [prior.drafter for prior in again]
        for one, other in zip(found, again, strict=True):
            assert one.pace_weight == pytest.approx(other.pace_weight)
            assert len(one.depths) == len(other.depths)

    @given(
        st.integers(1, WINDOW // 2), st.floats(0.5, 10), st.floats(0.5, 10), st.integers(0, 20),
        st.integers(0, 20),
    )  # fmt: skip
    def test_later_evidence_of_equal_size_overrules(self, replies, old, new, old_hits, new_hits):
        def wave(start: int, pace: float, hits: int) -> list[MeasuredRun]:
            given = {"emitted": 100, "plain_seconds": pace, "evaluated": [20], "accepted": [hits]}
            return [run(start + n, **given) for n in range(replies)]

        prior = prior_of(*wave(1, old, old_hits), *wave(100, new, new_hits))
        assert prior.pace == pytest.approx(new)
        share = prior.depths[0][1] / prior.depths[0][0]
        assert abs(share - new_hits / 20) <= abs(share - old_hits / 20) + 1e-9

    @given(st.lists(likely, max_size=30), st.floats(0.1, 10))
    def test_pace_never_comes_from_another_machine(self, runs, seconds):
        mine = CHAT.machine
        changed = [one if one.machine == mine else replace(one, seconds=seconds) for one in runs]
        assert priors(changed, CHAT) == priors(runs, CHAT)
        for prior in priors([replace(one, machine="another") for one in runs], CHAT):
            assert prior.pace is None


class TestDepths:
    def test_of_one_reply_are_its_counts(self):
        assert prior_of(run()).depths == ((20, 15), (15, 5))

    def test_one_long_reply_does_not_drown_the_others(self):
        long = run(1, evaluated=[5000], accepted=[0])
        others = [run(n, evaluated=[20], accepted=[20]) for n in range(2, 8)]
        ((evaluated, accepted),) = prior_of(long, *others).depths
        assert accepted / evaluated > 0.6

    def test_counts_that_cannot_be_end_the_depths(self):
        assert prior_of(run(evaluated=[20, 16], accepted=[15, 5])).depths == ((20, 15),)
        assert prior_of(run(evaluated=[20, 15], accepted=[15, -1])).depths == ((20, 15),)
        assert prior_of(run(evaluated=[20], accepted=[21])).depths == ()


class TestPace:
    def test_of_one_reply(self):
        found = prior_of(run())
        assert (found.pace, found.pace_weight) == (2.0, 40)

    def test_leaves_out_passes_that_had_no_draft(self):
        """Lookup that finds something now and then is as fast as it is when it does."""
        found = prior_of(
            run(passes=110, emitted=140, plain_seconds=140, seconds=115, evaluated=[10],
                accepted=[10])
        )  # fmt: skip
        assert (found.pace, found.pace_weight) == (40 / 15, 40)

    @pytest.mark.parametrize(
        "changed",
        [
            {"emitted": 20, "passes": 40},
            {"emitted": 1, "passes": 1, "evaluated": [1], "accepted": [0]},
            {"seconds": 0.0},
            {"plain_seconds": 0.0},
            {"seconds": math.inf},
            {"evaluated": [], "accepted": []},
        ],
    )
    def test_says_nothing_where_a_clock_says_nothing(self, changed):
        assert all(prior.pace is None for prior in priors([run(**changed)], CHAT))

    def test_one_busy_moment_does_not_move_it(self):
        runs = [run(n, seconds=1.0) for n in range(1, 6)]
        assert prior_of(*runs, run(6, seconds=40.0)).pace == 2.0

    def test_other_tasks_count_while_this_one_is_unknown(self):
        other = run(1, task=TaskClass.CODE, plain_seconds=4.0)
        assert prior_of(other).pace == 4.0
        assert prior_of(other).pace_weight == pytest.approx(10)
        assert prior_of(other, run(2)).pace == 2.0
        assert prior_of(other, run(2)).pace_weight == 40


class TestRanks:
    def test_are_the_mean_over_nodes(self):
        found = prior_of(
            run(1, shares=[0.5, 0.5], share_weight=20.0), run(1, shares=[0.8], share_weight=40.0)
        )
        assert found.shares == pytest.approx((0.7, 0.5 / 3))
        assert found.share_weight == 60


def test_a_clock_that_was_set_back_makes_no_reply_newer_than_now():
    assert prior_of(run(days=-40.0)) == prior_of(run(days=0.0))
