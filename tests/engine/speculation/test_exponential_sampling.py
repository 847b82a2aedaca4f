"""Races among so many tokens that most are looked at together: the law is that of drawing one by one."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from engine.speculation.exponential_sampling import RARE, SHORT, _first, exponentials, finishers

VOCAB = 3 * SHORT
COMMON = {7: 0.4, 11_000: 0.2, VOCAB - 1: 0.1}  # by token; the rest is shared by rare ones
RUNS = 5000


def law(rare: float = 0.3) -> np.ndarray:
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


def fits(found: Counter, wanted: dict) -> bool:
    """Chi-square at 1e-4 of counts against chances that sum to 1."""
    assert set(found) <= set(wanted)
    counts, total = [found[key] for key in wanted], sum(found.values())
    return chisquare(counts, [share * total for share in wanted.values()]).pvalue > 1e-4


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
    weights, random = law(), generator(1)
    found = Counter(kind(finishers(weights, 1, random)[0]) for _ in range(RUNS))
    assert fits(found, chances(weights))
    assert sum(found[key] for key in found if key < 0) > RUNS / 5


def test_draws_without_replacement_follow_one_another():
    """Common or rare, the first three of them: by hand, as 16,000 rare tokens hardly run out."""
    weights, random = law(), generator(2)
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
    for _ in range(RUNS // 2):
        drawn = finishers(weights, 3, random)
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
    drawn = [finishers(weights, count, random) for _ in range(300)]
    assert {token for tokens in drawn for token in tokens} <= {5, VOCAB // 2, VOCAB - 1}
    if count > 3:
        assert all(sorted(tokens) == [5, VOCAB // 2, VOCAB - 1] for tokens in drawn)
        assert drawn[0][0] == VOCAB // 2


@pytest.mark.parametrize("rare", [0.3, 0.01])
@pytest.mark.parametrize("count", [1, 3])
def test_a_law_that_was_rounded_otherwise_gives_the_same_tokens(rare, count):
    """And what is asked next has the same luck."""
    weights, noise = law(rare), generator(4)
    different, one, other = 0, generator(5), generator(5)
    for _ in range(400):
        nearly = weights * (1 + 1e-6 * noise.standard_normal(VOCAB)).astype(np.float32)
        different += finishers(weights, count, one) != finishers(nearly, count, other)
    assert different <= 1
    assert one.random() == other.random()


def test_a_token_at_the_border_of_the_rare_ones_changes_hardly_anything():
    weights = law()
    moved = np.arange(2, 3002, 3)
    weights[moved] = 0
    border = RARE * weights.sum(dtype=np.float64) / (1 - RARE * len(moved))
    below, above = weights.copy(), weights.copy()
    below[moved], above[moved] = 0.999 * border, 1.001 * border
    heads = [np.count_nonzero(one > RARE * one.sum(dtype=np.float64)) for one in (below, above)]
    assert heads == [len(COMMON), len(COMMON) + len(moved)]
    one, other = generator(6), generator(6)
    pairs = [(finishers(below, 1, one), finishers(above, 1, other)) for _ in range(300)]
    assert sum(a == b for a, b in pairs) >= 0.9 * len(pairs)  # they have 2 % of the mass


@given(st.integers(0, 2**64 - 1))
def test_luck_is_exponential_and_a_tokens_own(key):
    tokens = np.arange(0, 40_000, 2)
    luck = exponentials(key, tokens)
    assert np.array_equal(exponentials(key, tokens[::5]), luck[::5])
    assert (luck > 0).all()
    assert kstest(luck, "expon").pvalue > 1e-5
    assert abs(np.corrcoef(luck[:-1], luck[1:])[0, 1]) < 0.05


def test_the_sequence_is_splitmix64():
    """The first words behind 1234567, as its authors' code prints them."""
    words = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    wanted = [-np.log1p(-((word >> 12) + 0.5) * 2.0**-52) for word in words]
    assert np.array_equal(exponentials(1234567, np.arange(3)), wanted)


@pytest.mark.parametrize("size", [VOCAB, 8 * SHORT])  # of the larger one every token is rare
def test_where_all_tokens_are_about_as_likely_all_of_them_run(size):
    flat, random = np.ones(size, dtype=np.float32), generator(7)
    found = Counter(12 * finishers(flat, 1, random)[0] // size for _ in range(RUNS // 2))
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
    speeds = weights / (generator(seed).standard_exponential(len(weights)) + 1e-300)
    ranked = sorted(np.flatnonzero(weights).tolist(), key=lambda token: -speeds[token])
    assert finishers(weights, count, generator(seed)) == ranked[:count]


def test_of_equals_the_first_one_is_ahead():
    speeds = np.array([1.0, 3.0, 0.0, 3.0, 1.0, 1.0])
    assert [_first(speeds, count).tolist() for count in (1, 2, 3, 4, 9)] == [
        [1], [1, 3], [1, 3, 0], [1, 3, 0, 4], [1, 3, 0, 4, 5]
    ]  # fmt: skip
