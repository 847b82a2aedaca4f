"""Rows scored in passes of one shape are the model's own, and the same bits in any pass."""

import random

import pytest
import torch

from engine.models.hf.exact import SAME_ROWS, exact_target
from engine.models.hf.load import load
from engine.request import ModelSpec
from engine.speculation.tree import chain
from tests.bundled import BUNDLED
from tests.engine.models.checkpoints import HF, IDS, TREES, near, oracle, saved, spec

PROMPT, ANSWER = 9, 40


@pytest.fixture(scope="module", params=TREES)
def both(request, loaded):
    """The target in float32, and transformers' model."""
    target, reference = loaded(request.param)
    return exact_target(target.model, target.context, target.abilities), reference


def answered(target, slot, widths):
    """The logits of the answer's rows, in passes of these widths."""
    target.crop(slot, 0)
    target.feed(slot, IDS[:PROMPT])
    rows, ids = [], IDS[PROMPT : PROMPT + ANSWER]
    while len(rows) < ANSWER:
        part = ids[len(rows) : len(rows) + next(widths)]
        kept = max(1, len(part) - 1)
        [scores] = target.score([slot], [chain(part)])
        target.commit(slot, range(kept))
        rows += scores.logits[:kept]
    return torch.stack(rows)


def test_rows_are_the_models_own(both):
    target, reference = both
    found = answered(target, 0, iter([3, 1, 2 * SAME_ROWS + 3, *[5] * ANSWER]))
    assert near(found, oracle(reference, IDS[: PROMPT + ANSWER])[PROMPT:])


@pytest.mark.parametrize("family", TREES)
def test_rows_have_the_bits_of_plain_ones(family, tmp_path):
    saved(HF[family], tmp_path)
    target = load(spec(tmp_path, dtype="bfloat16", exact=True))
    assert target.sums_alike
    plain = answered(target, 0, iter([1] * ANSWER))
    for seed in range(3):
        chance = random.Random(seed)
        widths = iter(lambda chance=chance: chance.randrange(1, 12), 0)
        assert torch.equal(answered(target, 1, widths), plain)


def test_where_a_long_prompt_was_cut_changes_nothing():
    pocket = ModelSpec("p", str(BUNDLED / "pocket"), dtype="bfloat16", backend="hf", exact=True)
    target, ids = load(pocket), [(37 * i * i + 11 * i) % 4000 + 6 for i in range(620)]
    found = []
    for cuts in ((600,), (100, 500), (256, 300, 44), (300, 200, 100)):
        target.crop(0, 0)
        at = 0
        for rows in cuts:
            target.feed(0, ids[at : at + rows])
            at += rows
        found.append(target.score([0], [chain(ids[600:])])[0].logits)
    assert all(torch.equal(found[0], other) for other in found[1:])
