"""SeededRandom: repeatable, and each method follows the distribution that it promises."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from engine.speculation.rng import RARE, SHORT, SeededRandom, exponentials, first_arrivals
from tests.engine.enumeration import law_of

LAW = torch.tensor([0.5, 0.3, 0.0, 0.2])
RUNS = 20_000


def fits(found: dict, wanted: dict) -> bool:
    """Chi-square at 1e-4 of counts by outcome against probabilities that sum to 1."""
    assert {key for key, count in found.items() if count} <= set(wanted)
    counts, total = [found.get(key, 0) for key in wanted], sum(found.values())
    return chisquare(counts, [share * total for share in wanted.values()]).pvalue > 1e-4


def test_draw_follows_the_law():
    rng = SeededRandom(1)
    found = Counter(rng.draw(LAW) for _ in range(RUNS))
    assert fits(found, {0: 0.5, 1: 0.3, 3: 0.2})


def test_accept_follows_the_ratio():
    rng = SeededRandom(2)
    hits = sum(rng.accept(0.3, 0.4) for _ in range(RUNS))
    assert fits({True: hits, False: RUNS - hits}, {True: 0.75, False: 0.25})
    assert all(rng.accept(0.5, 0.5) for _ in range(100))
    assert not any(rng.accept(0.0, 0.5) for _ in range(100))


def test_distinct_draws_follow_sequential_draws():
    wanted = law_of(lambda c: tuple(c.draw_distinct(LAW.double(), 2)))
    rng = SeededRandom(3)
    assert fits(Counter(tuple(rng.draw_distinct(LAW, 2)) for _ in range(RUNS)), wanted)


def test_a_seed_repeats_and_no_seed_does_not():
    wide = torch.ones(10_000)

    def take(seed):
        rng = SeededRandom(seed)
        return [rng.draw(wide) for _ in range(5)]

    assert take(7) == take(7)
    assert take(7) != take(8)
    assert take(None) != take(None)


# Large vocabularies, where rare tokens are sampled as one group.

VOCAB = 3 * SHORT
COMMON = {7: 0.4, 11_000: 0.2, VOCAB - 1: 0.1}  # by token; the rest is shared by rare ones
FEWER = 5000


def many(rare: float = 0.3) -> np.ndarray:
    """Float32, not normalised; ``rare`` of 1 is spread over two thirds of the other tokens."""
    weights = np.full(VOCAB, rare)
    weights[list(COMMON)] = 0
    weights[::3] = 0
    weights *= rare / weights.sum()
    for token, share in COMMON.items():
        weights[token] = share
    assert weights[weights < 0.01].max() < RARE
    return (5 * weights).astype(np.float32)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def kind(token: int):
    """A common token itself, of a rare one which twelfth of the vocabulary it is in."""
    return token if token in COMMON else -1 - 12 * token // VOCAB


def chances(weights: np.ndarray) -> dict:
    """Of kinds."""
    found: Counter = Counter()
    shares = weights.astype(np.float64) / weights.sum(dtype=np.float64)
    for token in np.flatnonzero(weights).tolist():
        found[kind(token)] += shares[token]
    return dict(found)


def test_a_draw_follows_the_law_among_rare_tokens_too():
    weights, random = many(), generator(1)
    found = Counter(kind(first_arrivals(weights, 1, random)[0]) for _ in range(FEWER))
    assert fits(found, chances(weights))
    assert sum(found[key] for key in found if key < 0) > FEWER / 5


def test_draws_without_replacement_follow_one_another():
    """Common or rare, the first three of them: by hand, as 16,000 rare tokens hardly run out."""
    weights, random = many(), generator(2)
    shares = {**COMMON, "rare": 0.3}
    wanted = {
        (a, b, c): pa * pb / (1 - pa * (a != "rare"))
        * pc / (1 - pa * (a != "rare") - pb * (b != "rare"))
        for a, pa in shares.items()
        for b, pb in shares.items()
        for c, pc in shares.items()
        if all(one == "rare" or drawn.count(one) == 1 for drawn in [(a, b, c)] for one in drawn)
    }  # fmt: skip
    found: Counter = Counter()
    rare: Counter = Counter()
    for _ in range(FEWER // 2):
        drawn = first_arrivals(weights, 3, random)
        assert len(set(drawn)) == 3
        found[tuple(token if token in COMMON else "rare" for token in drawn)] += 1
        rare.update(kind(token) for token in drawn if token not in COMMON)
    assert fits(found, wanted)
    alone = {key: share for key, share in chances(weights).items() if key < 0}
    assert fits(rare, {key: share / sum(alone.values()) for key, share in alone.items()})


@pytest.mark.parametrize("count", [1, 4])
def test_what_has_no_mass_is_never_drawn(count):
    weights = np.zeros(VOCAB, dtype=np.float32)
    weights[[5, VOCAB // 2, VOCAB - 1]] = 1e-9, 1.0, 2e-5
    random = generator(3)
    drawn = [first_arrivals(weights, count, random) for _ in range(300)]
    assert {token for tokens in drawn for token in tokens} <= {5, VOCAB // 2, VOCAB - 1}
    if count > 3:
        assert all(sorted(tokens) == [5, VOCAB // 2, VOCAB - 1] for tokens in drawn)
        assert drawn[0][0] == VOCAB // 2


@pytest.mark.parametrize("rare", [0.3, 0.01])
@pytest.mark.parametrize("count", [1, 3])
def test_a_law_that_was_rounded_otherwise_gives_the_same_tokens(rare, count):
    """And what is asked next has the same times."""
    weights, noise = many(rare), generator(4)
    different, one, other = 0, generator(5), generator(5)
    for _ in range(400):
        nearly = weights * (1 + 1e-6 * noise.standard_normal(VOCAB)).astype(np.float32)
        different += first_arrivals(weights, count, one) != first_arrivals(nearly, count, other)
    assert different <= 1
    assert one.random() == other.random()


def test_a_token_at_the_border_of_the_rare_ones_changes_hardly_anything():
    weights = many()
    moved = np.arange(2, 3002, 3)
    weights[moved] = 0
    border = RARE * weights.sum(dtype=np.float64) / (1 - RARE * len(moved))
    below, above = weights.copy(), weights.copy()
    below[moved], above[moved] = 0.999 * border, 1.001 * border
    heads = [np.count_nonzero(one > RARE * one.sum(dtype=np.float64)) for one in (below, above)]
    assert heads == [len(COMMON), len(COMMON) + len(moved)]
    one, other = generator(6), generator(6)
    pairs = [(first_arrivals(below, 1, one), first_arrivals(above, 1, other)) for _ in range(300)]
    assert sum(a == b for a, b in pairs) >= 0.9 * len(pairs)  # they have 2 % of the mass


@given(st.integers(0, 2**64 - 1))
def test_times_is_exponential_and_a_tokens_own(key):
    tokens = np.arange(0, 40_000, 2)
    times = exponentials(key, tokens)
    assert np.array_equal(exponentials(key, tokens[::5]), times[::5])
    assert (times > 0).all()
    assert kstest(times, "expon").pvalue > 1e-5
    assert abs(np.corrcoef(times[:-1], times[1:])[0, 1]) < 0.05


def test_the_sequence_is_splitmix64():
    """The first words of key 1234567, as its authors' code prints them."""
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    wanted = [-np.log1p(-((word >> 12) + 0.5) * 2.0**-52) for word in words]
    assert np.array_equal(exponentials(1234567, np.arange(3)), wanted)


@pytest.mark.parametrize("size", [VOCAB, 8 * SHORT])  # of the larger one every token is rare
def test_where_all_tokens_are_about_as_likely_all_of_them_run(size):
    flat, random = np.ones(size, dtype=np.float32), generator(7)
    found = Counter(12 * first_arrivals(flat, 1, random)[0] // size for _ in range(FEWER // 2))
    assert fits(found, dict.fromkeys(range(12), 1 / 12))


@given(
    weights=st.lists(st.sampled_from([0.0, 1e-30, 0.1, 0.5, 2.0]), min_size=1, max_size=40).filter(
        any
    ),
    count=st.integers(1, 45),
    seed=st.integers(0, 99),
)
def test_the_first_of_a_short_race_are_those_of_all_in_order(weights, count, seed):
    weights = np.array(weights, np.float32)
    rates = weights / (generator(seed).standard_exponential(len(weights)) + 1e-300)
    ranked = sorted(np.flatnonzero(weights).tolist(), key=lambda token: -rates[token])
    assert first_arrivals(weights, count, generator(seed)) == ranked[:count]
