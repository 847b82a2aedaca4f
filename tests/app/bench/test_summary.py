"""The statistics: known answers, and what must hold for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.lanes import Lane
from app.bench.measure import Difference, Measurement, Sample
from app.bench.options import Conditions
from app.bench.summary import Spread, paired_ratios, spread, summarize
from engine.request import DepthCount, SamplingParams
from tests.app.bench.samples import sample

PLAIN, LOOKUP = Lane("plain", "none"), Lane("l", "lookup")
seconds = st.floats(1e-3, 1e3)
places = st.tuples(st.integers(1, 4), st.integers(1, 3))


def measurement(samples: list[Sample], conditions: Conditions | None = None, **more) -> Measurement:
    lanes = more.pop("lanes", (PLAIN, LOOKUP))
    return Measurement(lanes, conditions or Conditions(), tuple(samples), **more)


class TestSpread:
    @given(st.lists(seconds, min_size=1))
    def test_is_ordered_and_lies_among_the_values(self, values):
        found = spread(values)
        assert found.count == len(values)
        slack = 1e-12 * max(values)
        assert min(values) - slack <= found.low <= found.median + slack
        assert found.median <= found.high + slack <= max(values) + 2 * slack

    @given(st.lists(seconds, min_size=1))
    def test_does_not_depend_on_the_order(self, values):
        assert spread(values) == spread(reversed(values))

    def test_known_values(self):
        assert spread(range(11)) == Spread(5, 1, 9, 11)
        assert spread([3.0]) == Spread(3.0, 3.0, 3.0, 1)
        assert spread([]) is None


class TestPairs:
    @given(st.dictionaries(places, st.tuples(seconds, seconds, seconds), min_size=1))
    def test_what_slows_both_halves_of_a_pair_alike_changes_nothing(self, rounds):
        def ratios(slowed: bool) -> list[float]:
            plain, other = [], []
            for place, (ours, theirs, slow) in rounds.items():
                weather = slow if slowed else 1.0
                plain.append(sample("plain", place, (1, 2), ours * weather))
                other.append(sample("l", place, (1, 2), theirs * weather))
            return paired_ratios(plain, other)

        assert ratios(slowed=True) == pytest.approx(ratios(slowed=False))
        assert ratios(slowed=False) == pytest.approx([p / o for p, o, _ in rounds.values()])

    def test_pair_the_same_prompt_and_the_same_repeat_in_any_order(self):
        plain = [sample("plain", (1, 1), (1,), 8.0), sample("plain", (1, 2), (1,), 4.0)]
        other = [sample("l", (1, 2), (1,), 1.0), sample("l", (1, 1), (1,), 1.0)]
        assert paired_ratios(plain, other) == [4.0, 8.0]

    def test_the_median_of_ratios_is_not_the_ratio_of_medians(self):
        times = [(10.0, 5.0), (1.0, 2.0), (4.0, 4.0)]
        plain = [sample("plain", (n, 1), (1,), p) for n, (p, _) in enumerate(times)]
        other = [sample("l", (n, 1), (1,), o) for n, (_, o) in enumerate(times)]
        assert spread(paired_ratios(plain, other)).median == 1.0

    def test_an_answer_without_tokens_has_no_ratio(self):
        plain = [sample("plain", (1, 1), (), 1.0), sample("plain", (2, 1), (1,), 1.0)]
        other = [sample("l", (1, 1), (), 1.0), sample("l", (2, 1), (), 1.0)]
        assert paired_ratios(plain, other) == []


class TestSummary:
    def test_adds_up_over_prompts_and_repeats(self):
        runs = [sample("l", (1, 1), (1, 2, 3, 4), 2.0), sample("l", (2, 1), (5, 6), 4.0)]
        plain = [sample("plain", (1, 1), (1, 2, 3, 4), 4.0), sample("plain", (2, 1), (5, 7), 4.0)]
        found = Difference(2, 1, 7, 6, 0.5)
        first, second = summarize(measurement([*plain, *runs], differences={"l": found}))
        assert (first.speedup, first.agreeing, first.difference) == (None, None, None)
        assert (second.emitted, second.passes, second.tokens_per_pass) == (6, 3, 2.0)
        assert second.rate == Spread(1.25, pytest.approx(0.65), pytest.approx(1.85), 2)
        assert second.speedup.median == 1.5
        assert second.first_seconds.median == 0.75
        assert (second.drafted, second.accepted) == (6, 3)
        assert second.depths == (DepthCount(6, 4), DepthCount(4, 2))
        assert second.passes_by_drafter == (("lookup", 3),)
        assert (second.agreeing, second.answers, second.difference) == (1, 2, found)

    def test_tokens_drawn_afresh_are_not_compared(self):
        runs = [sample("plain", (1, 1), (1,), 1.0), sample("l", (1, 1), (2,), 0.5)]
        _, drawn = summarize(measurement(runs, Conditions(SamplingParams(1.0))))
        assert drawn.agreeing is None
        assert drawn.speedup.median == 2.0
        _, seeded = summarize(measurement(runs, Conditions(SamplingParams(1.0, seed=1))))
        assert seeded.agreeing == 0

    def test_without_a_plain_lane_there_are_counts_and_rates_only(self):
        runs = [sample("l", (1, 1), (1, 2), 0.5)]
        [alone] = summarize(measurement(runs, lanes=(LOOKUP,)))
        assert (alone.speedup, alone.agreeing) == (None, None)
        assert (alone.tokens_per_pass, alone.rate.median) == (2.0, 4.0)

    def test_nothing_but_empty_answers(self):
        _, empty = summarize(measurement([sample("l", (1, 1), (), 0.5)]))
        assert (empty.rate, empty.tokens_per_pass) == (None, 0.0)
