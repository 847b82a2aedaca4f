"""Conversations of a GGUF file that are put away: they cost no pass anything, and come back whole or not at all."""

import pytest
import torch

from engine.models.gguf.target import LlamaCppTarget
from engine.speculation.tree import DraftTree
from tests.engine.models.gguf.files import exact, random_gguf

TREE = DraftTree((9, 5, 10, 11, 20, 21), (-1, 0, 0, 1, 1, 2))
TOLERANCE = 1e-3  # of logits that reach 30; another order of summation gives 3e-5


def test_what_rests_takes_no_cells_and_comes_back(pocket_gguf):
    target = LlamaCppTarget(exact(pocket_gguf, slots=2, context=256))
    words, most = [(37 * i) % 4000 + 6 for i in range(200)], target.llama.cells
    target.feed(0, words)
    wanted = target.score([0], [TREE])[0].logits
    target.swap_out(0)
    target.feed(1, [7] * most)  # all the cells that there are
    target.crop(1, most - 200)
    assert target.length(0) == 200
    target.swap_in(0)
    assert target.length(0) == 200
    target.crop(1, 100)
    found = target.score([0], [TREE])[0].logits  # in other cells, so summed in another order
    assert (found - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize(
    ("asks", "lengths"),
    [
        (lambda target: target.swap_in(0), (0, 0)),  # it is read again
        (lambda target: target.share(0, 2, 150), (200, 0)),
    ],
)
def test_what_rests_needs_cells_to_come_back_or_to_be_taken_over(pocket_gguf, asks, lengths):
    target = LlamaCppTarget(exact(pocket_gguf, slots=2, context=256))
    target.feed(0, [8] * 200)
    target.swap_out(0)
    target.feed(1, [7] * (target.llama.cells - 100))
    asks(target)
    assert (target.length(0), target.length(2)) == lengths
    assert target.length(1) == target.llama.cells - 100
    target.crop(0, 0)
    target.feed(0, [8] * 90)
    assert target.length(0) == 90


def test_another_takes_over_the_beginning_of_what_rests(pocket_gguf):
    target = LlamaCppTarget(exact(pocket_gguf))
    words = [(37 * i) % 4000 + 6 for i in range(100)]
    target.feed(0, words)
    target.feed(1, words[:60])
    wanted = target.score([1], [TREE])[0].logits
    target.swap_out(0)
    for _ in range(2):
        target.share(0, 2, 60)
        assert list(target.tokens(2)) == words[:60]
        found = target.score([2], [TREE])[0].logits
        assert (found - wanted).abs().max() < TOLERANCE
    assert list(target.tokens(0)) == words


def test_a_conversation_comes_back_shorter(pocket_gguf):
    target = LlamaCppTarget(exact(pocket_gguf))
    target.feed(0, [7] * 80)
    for kept in (50, 20, 0):
        target.swap_out(0)
        target.crop(0, kept)
        target.swap_in(0)
        assert target.length(0) == kept
        target.feed(1, [9] * 3)
    target.feed(0, [8] * 30)
    target.crop(1, 0)
    target.feed(1, [8] * 30)
    one, other = target.score([0, 1], [TREE, TREE])
    assert torch.allclose(one.logits, other.logits, atol=TOLERANCE)


@pytest.mark.parametrize("head", [None, 16, 48, 8])
@pytest.mark.parametrize("kv_type", ["f32", "f16"])
def test_bytes_are_those_that_were_counted_also_of_heads_of_another_width(tmp_path, head, kv_type):
    file = random_gguf(tmp_path / "tiny.gguf", hidden=64, layers=3, head=head)
    target = LlamaCppTarget(exact(file, context=256, kv_type=kv_type))
    target.feed(0, [7] * 200)
    target.swap_out(0)
    there = target.swapped[0]
    assert (
        0 <= there - 200 * target.swap_bytes < 20 * 200 + 3000
    )  # positions and what is said of them
