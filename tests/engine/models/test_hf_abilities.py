"""What loading finds out about a model of the transformers library, by trying and from its config."""

from dataclasses import replace

import pytest

from engine.decode.tree import single
from engine.errors import ModelUnusable
from engine.models.hf_model import CausalModel
from engine.models.hf_target import HfTarget, abilities_of
from tests.engine.models.hf_families import near
from tests.engine.models.test_families import IDS, oracle


def test_the_check_notices_a_model_that_is_wrong_token_by_token(loaded):
    """Negative control: a Bamba that is not told where its rows stand rotates them all as the first."""
    model = loaded("bamba")[0]._model
    assert abilities_of(model).chunks
    with pytest.raises(ModelUnusable, match="'bamba' .* other logits for 9 tokens one by one"):
        abilities_of(replace(model, places=False))


def test_what_is_right_token_by_token_alone_runs_so(loaded, monkeypatch):
    """Its chunks are wrong: behind a prefix every row is read as the first."""
    target, reference = loaded("mamba")
    run = CausalModel.run

    def misreads(self, tokens, cache, place, *, last, hidden):
        read = tokens[:1] * len(tokens) if place else tokens
        return run(self, read, cache, place, last=last, hidden=hidden)

    monkeypatch.setattr(CausalModel, "run", misreads)
    abilities = abilities_of(target._model)
    assert not abilities.chunks
    alone = HfTarget(target._model, 256, abilities)
    alone.feed(0, IDS[:5])
    alone.feed(0, IDS[5:12])
    assert near(alone.score([0], [single(IDS[12])])[0].logits[0], oracle(reference, IDS[:13])[-1])
