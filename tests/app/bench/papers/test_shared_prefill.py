"""Engines that read together: one pass over a prompt for all of them, and the same state behind it."""

import gc
from collections import Counter
from pathlib import Path

import pytest
import torch

from app.bench.papers.harness import Reader, Readers
from engine.models.own.target import TorchTarget, load_target
from engine.speculation.tree import single

POCKET = Path(__file__).parents[4] / "engine" / "bundled" / "pocket"
PROMPT, OTHER = list(range(3, 43)), list(range(3, 20)) + list(range(60, 80))


@pytest.fixture(scope="module")
def weights():
    return load_target(POCKET, "float32", "cpu").weights


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    """Rows that each reader ran itself."""
    run, feed = Counter(), TorchTarget.feed

    def counted(self, slot, tokens, trace=0):
        run[id(self)] += len(tokens)
        return feed(self, slot, tokens, trace)

    monkeypatch.setattr(TorchTarget, "feed", counted)
    return lambda reader: run[id(reader)]


@pytest.fixture
def readers(weights):
    group = Readers()
    return Reader(weights, group), Reader(weights, group)


def logits(target, token=7):
    [scores] = target.score([0], [single(token)])
    target.crop(0, target.length(0))
    return scores.logits


def test_a_prompt_is_run_once_and_every_reader_continues_after_it(readers, rows):
    one, other = readers
    one.feed(0, PROMPT[:30])
    one.feed(0, PROMPT[30:])
    other.feed(0, PROMPT[:30])
    other.feed(0, PROMPT[30:])
    assert (rows(one), rows(other)) == (len(PROMPT), 0)
    assert list(other.tokens(0)) == PROMPT
    assert torch.equal(logits(one), logits(other))


def test_rows_of_one_are_no_rows_of_the_other(readers):
    """What follows in one cache is not seen in the other."""
    one, other = readers
    one.feed(0, PROMPT)
    other.feed(0, PROMPT)
    before = logits(one)
    other.feed(0, [9, 9, 9])
    assert torch.equal(logits(one), before)
    assert not torch.equal(logits(other), before)


def test_what_no_reader_has_read_is_run(readers, rows, weights):
    """Also a prompt that begins as one that was read, and one whose beginning the reader has itself."""
    one, other = readers
    one.feed(0, PROMPT)
    other.feed(0, OTHER)
    assert rows(other) == len(OTHER)
    one.crop(0, 17)
    one.feed(0, OTHER[17:])
    assert rows(one) == len(PROMPT)
    alone = Reader(weights, Readers())
    alone.feed(0, OTHER)
    torch.testing.assert_close(logits(one), logits(alone), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("trace", [1, 8, len(PROMPT), 100])
def test_states_that_are_wanted_are_those_of_its_own_rows(readers, rows, weights, trace):
    one, other = readers
    one.feed(0, PROMPT)
    states = other.feed(0, PROMPT, trace)
    assert rows(other) == min(trace, len(PROMPT))
    expected = Reader(weights, Readers()).feed(0, PROMPT, trace)
    assert states.shape == expected.shape
    torch.testing.assert_close(states, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits(one), logits(other), rtol=1e-4, atol=1e-4)


def test_a_reader_that_nothing_uses_is_forgotten(weights):
    group = Readers()
    Reader(weights, group).feed(0, PROMPT)
    gc.collect()
    assert group.who_read(PROMPT) is None
