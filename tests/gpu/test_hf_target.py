"""Models that the transformers library runs, on a device: near the processor, drafts plain's tokens."""

import pytest

from engine.build import build
from engine.models.hf.load import load
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.tree import DraftTree, chain
from tests.engine.models.checkpoints import HF, TOLERANCE, near, saved, spec
from tests.engine.tiny import run_all

PROMPT = (1, 2, 3, 4, 1, 2, 3, 4, 1, 2)
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("family", sorted(HF))
def test_scores_and_answers(device, family, tmp_path):
    """References: the same family on the processor; drafter ``none`` on the device."""
    saved(HF[family], tmp_path)
    plain, there = load(spec(tmp_path)), load(spec(tmp_path, device=str(device)))
    tree = chain([5, 6]) if there.abilities.trees else DraftTree((5, 6, 7), (-1, 0, 0))
    for target in (plain, there):
        target.feed(0, list(range(3, 13)))
    for _ in range(3):
        expected, found = (target.score([0], [tree])[0].logits.cpu() for target in (plain, there))
        assert near(found, expected, TOLERANCE * max(1.0, expected.abs().max()))
        for target in (plain, there):
            target.commit(0, [0, 1])
    running = build(spec(tmp_path, device=str(device)))
    for sampling in (SamplingParams(), SamplingParams(0.8, seed=2)):
        answers = {
            drafter: run_all(running, [GenerationRequest(PROMPT, 40, sampling, drafter=drafter)])
            for drafter in (*running.facts.drafters, "auto")
        }
        [(plain_ids, _)] = answers["none"]
        for [(ids, done)] in answers.values():
            assert ids == plain_ids
            assert done.error is None
