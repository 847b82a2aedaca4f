"""What loading finds out about a model of the transformers library, by trying and from its config."""

from dataclasses import replace

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.errors import ModelUnusable
from engine.models.hf.model import CausalModel
from engine.models.hf.target import HfTarget, abilities_of
from engine.speculation.tree import single
from tests.engine.models.checkpoints import IDS, near, oracle


def test_the_check_notices_a_model_that_is_wrong_token_by_token(loaded):
    """Negative control: a Bamba without positions rotates all rows as the first."""
    model = loaded("bamba")[0].model
    assert abilities_of(model).chunks
    with pytest.raises(ModelUnusable, match="'bamba' .* other logits for 9 tokens one by one"):
        abilities_of(replace(model, places=False))


def test_what_is_right_token_by_token_alone_runs_so(loaded, monkeypatch):
    """Its chunks are wrong: after a prefix every row is read as the first."""
    target, reference = loaded("mamba")
    run = CausalModel.run

    def misreads(self, tokens, cache, place, *, last, hidden):
        read = tokens[:1] * len(tokens) if place else tokens
        return run(self, read, cache, place, last=last, hidden=hidden)

    monkeypatch.setattr(CausalModel, "run", misreads)
    abilities = abilities_of(target.model)
    assert not abilities.chunks
    alone = HfTarget(target.model, 256, abilities)
    alone.feed(0, IDS[:5])
    alone.feed(0, IDS[5:12])
    assert near(alone.score([0], [single(IDS[12])])[0].logits[0], oracle(reference, IDS[:13])[-1])


LIMITS = {  # of attention, or chunks of a running state, in families with experts
    "attention_chunk_size", "chunk_size", "index_local_blocks", "keep_window_size",
    "mamba_chunk_size", "sliding_window_size",
}  # fmt: skip


def described(family):
    """A model of which only the family's own config is there; None without one, or without experts."""
    try:
        config = CONFIG_MAPPING[family]().get_text_config(decoder=True)
    except StrictDataclassError:  # the library refuses the defaults of one of its own
        return None
    if not any("expert" in name for name in config.to_dict()):
        return None
    return CausalModel(None, config, "cache", torch.float32, torch.device("cpu"), 0, True, True)


def test_what_configs_say_of_experts_is_not_taken_for_attention():
    """``decoder_sparse_step`` kept Qwen2-MoE and Qwen3-MoE from trees."""
    found = {family: described(family) for family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES}
    fields = {
        family: set(model.sparse_fields()) - set(getattr(model.config, "layer_types", None) or ())
        for family, model in found.items()
        if model
    }
    assert {family: names - LIMITS for family, names in fields.items() if names - LIMITS} == {}
    for family in ("mixtral", "qwen2_moe", "qwen3_moe", "cohere2_moe"):
        assert fields[family] == set()
    assert fields["llama4"] == {"attention_chunk_size"}
