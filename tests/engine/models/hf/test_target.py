"""Families that the transformers library runs: answers of every drafter, and what each is refused."""

import functools
import json
import re

import pytest
import torch
import transformers

from engine.build import assemble, build
from engine.drafters import DRAFTERS
from engine.errors import ModelUnusable
from engine.interfaces.drafter import DrafterResources
from engine.models.hf import model as hf_model
from engine.models.hf.load import load
from engine.models.hf.target import Abilities, abilities_of
from engine.request import AUTO, GenerationRequest, ModelSpec
from engine.runtime.profiling import profile
from engine.speculation.tree import DraftTree
from engine.statistics.pass_cost import PassCost
from tests.engine.models.checkpoints import (
    CHAINS,
    HF,
    IDS,
    SMALL,
    STUCK,
    TREES,
    edit_config,
    edit_weights,
    near,
    oracle,
    saved,
    spec,
    write_tokenizer,
)
from tests.engine.models.conversations import path_to
from tests.engine.tiny import SlowMachine, run_all


@pytest.fixture(scope="module")
def engine_of(loaded):
    """An engine over a family, on a machine where every draft pays."""

    def make(family):
        target, reference = loaded(family)
        return assemble(
            ModelSpec("tiny", ""), DrafterResources(target, cost=SlowMachine()), "no pair"
        ), reference

    return make


def greedy(reference, prompt, count):
    ids = list(prompt)
    for _ in range(count):
        ids.append(int(oracle(reference, ids)[-1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("family", HF)
def test_every_drafter_that_runs_emits_the_models_own_tokens(engine_of, family):
    engine, reference = engine_of(family)
    prompt = tuple(IDS[:9] * 2)
    wanted = greedy(reference, prompt, 16)
    for drafter in (*engine.facts.drafters, AUTO):
        request = GenerationRequest(prompt, 16, drafter=drafter, stop_tokens=frozenset())
        (ids, done), (again, _) = run_all(engine, [request, request])
        assert ids == again == wanted, (drafter, done.error)


@pytest.mark.parametrize("family", HF)
def test_what_cannot_run_is_said_with_the_reason(engine_of, family):
    engine, _ = engine_of(family)
    refused = dict(engine.facts.refused)
    if family in STUCK:
        assert engine.facts.drafters == ("none",)
        assert set(refused) == set(DRAFTERS) - {"none", AUTO}
        assert all(f"({family}) keep a running state" in why for why in refused.values())
    elif family in CHAINS:
        assert {"none", "lookup", "suffix"} <= set(engine.facts.drafters)
        assert re.search("attention|cannot score trees|scores trees wrongly", refused["recycling"])
    else:
        assert {"none", "lookup", "suffix", "recycling"} <= set(engine.facts.drafters)


@pytest.fixture
def folder(tmp_path):
    saved(TREES["gpt_neox"], tmp_path)
    return tmp_path


def refused(folder, match, **changes):
    with pytest.raises(ModelUnusable, match=match) as refusal:
        load(spec(folder, **changes))
    assert "\n" not in str(refusal.value)


def config(**changes):
    return lambda folder: edit_config(folder, **changes)


def weights(change):
    return lambda folder: edit_weights(folder, change)


def pickled(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


def outside(folder):
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../outside.safetensors"}}))


GONE, NORM = "gpt_neox.layers.1.mlp.dense_h_to_4h.weight", "gpt_neox.final_layer_norm.weight"
ODD = {"AutoModelForCausalLM": "modeling_odd.OddForCausalLM"}
REFUSED = {
    "more weights than the files hold": (
        config(num_hidden_layers=1000), r"config\.json describes \d+ weights and the files hold 69376"
    ),
    "a missing tensor": (
        weights(lambda t: t.update(spare=t.pop(GONE))), f"1 tensors are missing, {GONE}"
    ),
    "a tensor without a place": (
        weights(lambda t: t.update(spare=torch.zeros(2))), "1 tensors have no place .*, spare first"
    ),
    "a misshapen tensor": (
        weights(lambda t: t.update({NORM: torch.ones(96)})),
        f"1 tensors have another shape than the config says, {NORM}",
    ),
    "no causal model": (
        lambda folder: (folder / "config.json").write_text('{"model_type": "vit"}'),
        "Unrecognized configuration class",
    ),
    # the library itself would follow the index, run the code and unpickle the weights
    "an index that points outside": (outside, "points outside the model's folder"),
    "code of its own": (config(auto_map=ODD), r"needs code of its own \(modeling_odd\.OddFor"),
    "weights that can run code": (pickled, "are in pytorch_model.bin, a format that can run code"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "says"), REFUSED.values(), ids=REFUSED)
def test_a_folder_that_cannot_be_right_is_refused(folder, damage, says):
    damage(folder)
    (folder / "modeling_odd.py").write_text("raise SystemExit('ran')")
    refused(folder, says)


@pytest.mark.parametrize(
    "changes", [{"weights": "int8"}, {"inflate": 2}, {"resident": 1 << 20}], ids=str
)
def test_what_only_the_own_decoder_does_is_refused(folder, changes):
    refused(folder, "tiny runs on the transformers library, which has no", **changes)


def test_a_family_whose_forward_takes_a_cache_and_gives_none_is_refused(tmp_path):
    """RecurrentGemma's keeps its state in the module, where sequences would share it."""
    saved(
        transformers.RecurrentGemmaConfig(**SMALL, attention_window_size=8, lru_width=48), tmp_path
    )
    refused(tmp_path, "gives family 'recurrent_gemma' no cache that can be handed from pass")


@pytest.mark.parametrize("good", [0, 7], ids=["the very first", "after a cache"])
def test_a_family_that_breaks_in_its_passes_is_refused(folder, good, monkeypatch):
    """It was an error of the library's own that the engine's process ended with."""
    model = transformers.GPTNeoXForCausalLM
    forward, passes = model.forward, []

    @functools.wraps(forward)
    def breaks(self, *args, **kwargs):
        passes.append(kwargs)
        if len(passes) > good:
            raise AttributeError("it has no 'cache'\nand more")
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(model, "forward", breaks)
    refused(
        folder,
        r"family 'gpt_neox' fail in the transformers library \(AttributeError: it has no 'cache'\)",
    )


def test_the_check_notices_a_model_whose_trees_are_wrong(loaded, monkeypatch):
    """Negative control: without masks of our own a node would see its siblings."""

    def blind(visible, dtype):
        return torch.zeros(1, 1, *visible.shape, dtype=dtype)

    model = loaded("granite")[0].model
    assert abilities_of(model) == Abilities()
    monkeypatch.setattr(hf_model, "_mask", blind)
    assert "scores trees wrongly" in abilities_of(model).trees


def test_trees_that_break_a_family_are_refused_and_the_family_is_not(loaded, monkeypatch):
    """Some families look for the shape of a mask that is two masks by kind of layer."""

    def breaks(self, branches):
        raise AttributeError("'dict' object has no attribute 'shape'")

    model = loaded("granite")[0].model
    monkeypatch.setattr(type(model), "_masks", breaks)
    abilities = abilities_of(model)
    assert "cannot score trees: 'dict' object has no attribute 'shape'" in abilities.trees
    assert not abilities.chains


def test_a_draft_model_drafts_for_its_target_or_is_refused(tmp_path):
    folders = {}
    for family in ("granite", "minimax"):
        folders[family] = tmp_path / family
        saved(HF[family], folders[family])
        write_tokenizer(folders[family])
    paired = spec(folders["granite"], draft_folder=str(folders["granite"]), draft_backend="hf")
    engine = build(paired)
    assert "chain" in engine.facts.drafters
    request = GenerationRequest(tuple(IDS[:9]), 8, drafter="chain", length="fixed", draft_depth=3)
    ((ids, done),) = run_all(engine, [request])
    assert len(ids) == 8
    assert done.stats.accepted == done.stats.drafted > 0  # it drafts for itself
    alone = build(
        spec(folders["granite"], draft_folder=str(folders["minimax"]), draft_backend="hf")
    )
    assert "running state" in dict(alone.facts.refused)["chain"]


def test_a_context_asked_for_is_kept(folder):
    assert load(spec(folder)).context == 256
    assert load(spec(folder, context=100)).context == 100


def test_an_unusual_tree_of_one_long_branch_and_stubs(loaded):
    target, reference = loaded("gemma3")
    parents = (-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 11)
    tree = DraftTree(tuple(IDS[40:53]), parents)
    target.feed(0, IDS[:11])
    logits = target.score([0], [tree])[0].logits
    for node in (10, 12):  # the branch is longer than the window
        path = [tree.tokens[at] for at in path_to(tree, node)]
        assert near(logits[node], oracle(reference, IDS[:11] + path)[-1])


def test_costs_are_measured_for_a_model_that_cannot_go_back(loaded):
    target, _ = loaded("falcon_h1")
    cost = PassCost()
    profile(target, cost)
    assert cost.seconds(1, 0) > 0
    assert target.length(0) == 0
