"""PhiloxRandom: the published numbers, the distribution it gives, and independent calls."""

import numpy as np
import torch
from scipy.stats import chisquare, kstest

from engine.kernels.philox import PhiloxRandom, exponentials, philox, uniform
from tests.engine.enumeration import random_law

LAW = random_law(5, 3)


def test_philox_gives_the_words_that_its_authors_publish():
    # Random123, kat_vectors: philox4x32 10, counter and key all zero
    words = philox(0, np.zeros(1, dtype=np.uint32), 0)
    assert [int(w[0]) for w in words] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_draws_follow_the_law():
    chance = PhiloxRandom(7)
    counts = np.bincount([chance.draw(LAW) for _ in range(4000)], minlength=5)
    assert chisquare(counts, 4000 * LAW.numpy()).pvalue > 1e-3


def test_the_first_of_distinct_draws_follows_the_law():
    chance = PhiloxRandom(8)
    drawn = [chance.draw_distinct(LAW, 3) for _ in range(4000)]
    counts = np.bincount([tokens[0] for tokens in drawn], minlength=5)
    assert chisquare(counts, 4000 * LAW.numpy()).pvalue > 1e-3
    assert all(len(set(tokens)) == 3 for tokens in drawn)


def test_impossible_tokens_are_never_drawn_nor_accepted():
    chance = PhiloxRandom(9)
    law = torch.tensor([0.0, 1.0, 0.0])
    assert all(chance.draw(law) == 1 for _ in range(200))
    assert chance.draw_distinct(law, 3) == [1]
    assert not any(chance.accept(0.0, 0.5) for _ in range(200))


def test_times_are_exponential_and_uniforms_uniform():
    assert kstest(exponentials(11, 20_000, 5), "expon").pvalue > 1e-3
    assert kstest([uniform(12, call) for call in range(4000)], "uniform").pvalue > 1e-3
    assert exponentials(11, 20_000, 5).min() > 0


def test_a_seed_repeats_and_no_seed_does_not():
    def tokens(chance):
        return [chance.draw(LAW) for _ in range(50)]

    assert tokens(PhiloxRandom(3)) == tokens(PhiloxRandom(3))
    assert tokens(PhiloxRandom(None)) != tokens(PhiloxRandom(None))


def test_a_device_makes_the_same_numbers(device):
    from engine.kernels.tree_walk import rates

    law = torch.softmax(torch.randn(3000, generator=torch.Generator().manual_seed(1)), -1)
    for call in (0, 1, 77):
        found = rates(law.to(device), 2**40 + 3, call).cpu()
        expected = law / torch.from_numpy(exponentials(2**40 + 3, 3000, call))
        torch.testing.assert_close(found, expected, rtol=2e-5, atol=0)
