"""Poisoned weights in every target: an error that names the files, and never a token of garbage."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine.build import build
from engine.decoder.config import backend_for
from engine.errors import EngineError, ModelUnusable, NumericalError
from engine.models.gguf.header import read_header
from engine.request import AUTO, FinishReason, GenerationRequest, ModelSpec, SamplingParams
from tests.engine.models.checkpoints import SMALL, TREES, saved, write_tokenizer
from tests.engine.models.gguf import tiny as tiny_gguf
from tests.engine.tiny import run_all

POISON = 50  # the one token whose embedding is no number
PLACES = {  # kind -> (weights that every token needs, weights of one token)
    "torch": ("model.norm.weight", "model.embed_tokens.weight"),
    "streamed": ("model.norm.weight", "model.embed_tokens.weight"),
    "hf": ("gpt_neox.final_layer_norm.weight", "gpt_neox.embed_in.weight"),
    "llama_cpp": ("output_norm.weight", "token_embd.weight"),
}
CONFIGS = {
    "torch": transformers.LlamaConfig(**SMALL),
    "streamed": transformers.LlamaConfig(**SMALL),
    "hf": TREES["gpt_neox"],
}
SAMPLINGS = {
    "greedy": SamplingParams(),
    "drawn": SamplingParams(1.0),
    "seeded": SamplingParams(1.0, seed=3, top_p=0.9),
}


@pytest.fixture
def poisoned(tmp_path):
    """(kind, whether all tokens are hit) -> the spec of a model with that damage."""

    def make(kind, whole, name="model"):
        tensor = PLACES[kind][0 if whole else 1]
        if kind == "llama_cpp":
            pytest.importorskip("llama_cpp")
            place = _poisoned_file(tmp_path / f"{name}.gguf", tensor, whole)
        else:
            place = tmp_path / name
            saved(CONFIGS[kind], place)
            weights = load_file(place / "model.safetensors")
            weights[tensor][slice(None) if whole else POISON] = torch.nan
            save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
        memory = 1 << 30 if kind == "streamed" else None
        return ModelSpec(
            "m", str(place), slots=2, resident=memory, backend=backend_for(place), threads=1
        )

    return make


def _poisoned_file(path, tensor, whole):
    header = read_header(tiny_gguf.write(path))
    found = next(t for t in header.tensors if t.name == tensor)
    at = header.data_start + found.offset
    row = 4 * found.shape[0]
    data = bytearray(path.read_bytes())
    start, size = (at, found.bytes) if whole else (at + POISON * row, row)
    data[start : start + size] = np.full(size // 4, np.nan, "<f4").tobytes()
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", PLACES)
def test_weights_that_give_no_numbers_at_all_do_not_load(poisoned, kind):
    spec = poisoned(kind, whole=True)
    with pytest.raises(ModelUnusable) as refusal:
        build(spec)
    assert f"the weights in {spec.folder} give logits that are not finite" in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("law", SAMPLINGS)
@pytest.mark.parametrize("kind", PLACES)
def test_a_request_that_meets_the_damage_ends_with_the_files_and_others_go_on(poisoned, kind, law):
    spec = poisoned(kind, whole=False)
    engine = build(spec)
    for drafter in ("none", "recycling", AUTO):
        request = GenerationRequest((3, POISON, 9), 8, SAMPLINGS[law], drafter=drafter)
        ((ids, done),) = run_all(engine, [request])
        assert ids == []
        assert (done.reason, done.code) == (FinishReason.ERROR, NumericalError.code)
        assert f"the weights in {spec.folder} give logits" in done.error
        ((ids, done),) = run_all(engine, [GenerationRequest((3, 4, 9), 1, drafter=drafter)])
        assert len(ids) == 1
        assert done.error is None


def test_in_float16_another_format_is_advised(poisoned):
    with pytest.raises(ModelUnusable, match="too narrow for this model, choose bfloat16$"):
        build(replace(poisoned("torch", whole=True), dtype="float16"))


class TestDraftModels:
    """A damaged draft model costs speed, and never an answer."""

    @pytest.fixture
    def pair(self, poisoned, tmp_path):
        def make(whole):
            draft = poisoned("torch", whole, "draft")
            saved(CONFIGS["torch"], tmp_path / "target")
            for folder in (tmp_path / "target", tmp_path / "draft"):
                write_tokenizer(folder)
            return build(ModelSpec("m", str(tmp_path / "target"), draft.folder))

        return make

    def test_one_that_gives_no_numbers_is_refused_with_its_files(self, pair, tmp_path):
        engine = pair(whole=True)
        said = dict(engine.facts.refused)["chain"]
        assert f"the weights in {tmp_path / 'draft'} give logits that are not finite" in said
        assert run_all(engine, [GenerationRequest((3, 4), 4)])[0][1].error is None

    @pytest.mark.parametrize("drafter", ["chain", "specexec", "sequoia"])
    @pytest.mark.parametrize("law", ["greedy", "seeded"])
    def test_one_that_breaks_now_and_then_changes_no_answer(self, pair, drafter, law):
        engine = pair(whole=False)
        prompt = (3, POISON, 9)
        asked = (
            GenerationRequest(prompt, 12, SAMPLINGS[law], drafter=d) for d in ("none", drafter)
        )
        (plain, _), (drafted, done) = (run_all(engine, [request])[0] for request in asked)
        assert drafted == plain
        assert done.error is None


def test_every_kind_of_error_has_a_code():
    kinds = [EngineError, *EngineError.__subclasses__()]
    assert all(kind.code and kind.code.replace("_", "").isalpha() for kind in kinds)
