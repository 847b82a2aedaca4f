"""Models that the transformers library runs, on a device: near the processor, drafts plain's tokens."""

import pytest

from engine.build import build
from engine.models.hf.target import load
from engine.request import Done, GenerationRequest, SamplingParams, Tokens
from engine.speculation.tree import DraftTree, chain
from tests.engine.models.checkpoints import HF, near, saved, spec

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
        assert near(found, expected)
        for target in (plain, there):
            target.commit(0, [0, 1])
    running = build(spec(tmp_path, device=str(device)))
    for sampling in (SamplingParams(), SamplingParams(0.8, seed=2)):
        answers = {
            drafter: answer(running, GenerationRequest(PROMPT, 40, sampling, drafter=drafter))
            for drafter in (*running.facts.drafters, "auto")
        }
        assert all(ids == answers["none"] for ids in answers.values())


def answer(running, request):
    running.submit(request)
    ids = []
    while running.busy:
        for _, event in running.step():
            assert not isinstance(event, Done) or event.error is None
            ids += event.ids if isinstance(event, Tokens) else ()
    return ids
