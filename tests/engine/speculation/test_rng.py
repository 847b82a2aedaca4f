"""SeededChance: repeatable, and each method follows the law that it promises."""

import torch
from scipy.stats import chisquare

from engine.speculation.rng import SeededRandom
from tests.engine.enumeration import law_of

LAW = torch.tensor([0.5, 0.3, 0.0, 0.2])
RUNS = 20_000


def fits(counts, law):
    """Chi-square of counts against a law with the impossible tokens left out."""
    wanted = [p * sum(counts) for p in law if p > 0]
    found = [c for c, p in zip(counts, law, strict=True) if p > 0]
    assert sum(found) == sum(counts)
    return chisquare(found, wanted).pvalue > 1e-4


def test_draw_follows_the_law():
    chance = SeededRandom(1)
    counts = [0] * 4
    for _ in range(RUNS):
        counts[chance.draw(LAW)] += 1
    assert fits(counts, LAW.double().div(LAW.double().sum()).tolist())


def test_accept_follows_the_ratio():
    chance = SeededRandom(2)
    hits = sum(chance.accept(0.3, 0.4) for _ in range(RUNS))
    assert fits([hits, RUNS - hits], [0.75, 0.25])
    assert all(chance.accept(0.5, 0.5) for _ in range(100))
    assert not any(chance.accept(0.0, 0.5) for _ in range(100))


def test_distinct_draws_follow_sequential_draws():
    wanted = law_of(lambda c: tuple(c.draw_distinct(LAW.double(), 2)))
    chance = SeededRandom(3)
    counts = dict.fromkeys(wanted, 0)
    for _ in range(RUNS):
        counts[tuple(chance.draw_distinct(LAW, 2))] += 1
    assert chisquare(list(counts.values()), [p * RUNS for p in wanted.values()]).pvalue > 1e-4


def test_distinct_draws_stop_when_the_mass_runs_out():
    assert sorted(SeededRandom(4).draw_distinct(LAW, 9)) == [0, 1, 3]


def test_a_seed_repeats_and_no_seed_does_not():
    wide = torch.ones(10_000)

    def take(seed):
        chance = SeededRandom(seed)
        return [chance.draw(wide) for _ in range(5)]

    assert take(7) == take(7)
    assert take(7) != take(8)
    assert take(None) != take(None)
