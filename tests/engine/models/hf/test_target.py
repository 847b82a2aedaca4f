"""The target contract over families of the transformers library, and what each of them is refused."""

import functools
import json

import pytest
import torch
import transformers

from engine.build import assemble, build
from engine.drafters import DRAFTERS
from engine.errors import ModelUnusable
from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import Rows
from engine.models.hf import model as hf_model
from engine.models.hf.target import Abilities, HfTarget, abilities_of, load
from engine.request import AUTO, GenerationRequest, ModelSpec
from engine.runtime.profiling import profile
from engine.speculation.tree import DraftTree, chain, single
from engine.statistics.pass_cost import PassCost
from tests.engine.decoder.test_families import (
    IDS,
    SMALL,
    TREE,
    edit_config,
    oracle,
    path_tokens,
    saved,
)
from tests.engine.decoder.test_weights import edit_weights
from tests.engine.models.hf.conftest import ALL, CHAINS, RECURRENT, TREES, near, spec
from tests.engine.tiny import SlowMachine, run_all


@pytest.mark.parametrize("family", ALL)
def test_a_prompt_in_chunks_and_steps_after_it_equal_transformers(loaded, family):
    target, reference = loaded(family)
    target.feed(0, IDS[:13])
    target.feed(0, IDS[13:30])
    wanted = oracle(reference, IDS[:36])
    for at in range(30, 36):
        logits = target.score([0], [single(IDS[at])])[0].logits
        assert near(logits[0], wanted[at])
        target.commit(0, [0])
    assert list(target.tokens(0)) == IDS[:36]


@pytest.mark.parametrize("family", [*TREES, *CHAINS])
def test_a_chain_and_the_part_of_it_that_is_kept_equal_transformers(loaded, family):
    target, reference = loaded(family)
    target.feed(0, IDS[:20])
    logits = target.score([0], [chain(IDS[20:26])])[0].logits
    assert near(logits, oracle(reference, IDS[:26])[20:])
    target.commit(0, (0, 1))
    after = target.score([0], [single(7)])[0].logits
    assert near(after[0], oracle(reference, [*IDS[:22], 7])[-1])


@pytest.mark.parametrize("family", TREES)
class TestTrees:
    def test_every_node_equals_its_path_alone(self, loaded, family):
        """Of windowed layers too: the prefix is longer than their window."""
        target, reference = loaded(family)
        target.feed(0, IDS[:20])
        logits = target.score([0], [TREE])[0].logits
        for node in range(len(TREE)):
            assert near(logits[node], oracle(reference, IDS[:20] + path_tokens(TREE, node))[-1])

    @pytest.mark.parametrize("path", [(0,), (0, 2, 5), (0, 1, 4), (0, 1)])
    def test_a_kept_path_equals_the_plain_sequence(self, loaded, family, path):
        target, reference = loaded(family)
        target.feed(0, IDS[:20])
        target.score([0], [TREE])
        target.commit(0, path)
        ids = IDS[:20] + path_tokens(TREE, path[-1])
        assert list(target.tokens(0)) == ids
        assert near(target.score([0], [single(7)])[0].logits[0], oracle(reference, [*ids, 7])[-1])

    def test_growing_level_by_level_equals_scoring_at_once(self, loaded, family):
        target, _ = loaded(family)
        target.feed(0, IDS[:20])
        whole = target.score([0], [TREE])[0].logits
        target.crop(0, 20)
        cuts = (slice(0, 1), slice(1, 3), slice(3, 6))
        rows = [Rows(0, TREE.tokens[cut], TREE.parents[cut]) for cut in cuts]
        grown = [target.grow([row])[0] for row in rows]
        assert near(torch.cat([g.logits for g in grown]), whole)
        assert grown[1].hidden.shape == (2, 48)
        assert target.pending(0) == 6


@pytest.mark.parametrize("family", ALL)
def test_a_batch_equals_each_sequence_alone(loaded, family):
    target, reference = loaded(family)
    prompts = (IDS[:5], IDS[5:17], IDS[17:18])
    for slot, prompt in enumerate(prompts):
        target.feed(slot, prompt)
    found = target.score([0, 1, 2], [single(9)] * 3)
    for prompt, scores in zip(prompts, found, strict=True):
        assert near(scores.logits[0], oracle(reference, [*prompt, 9])[-1])


@pytest.mark.parametrize("family", ALL)
def test_a_shorter_prefix_can_be_continued(loaded, family):
    """A running state cannot go back, so it forgets everything, and cannot be shared."""
    target, reference = loaded(family)
    assert target.can_share == (family not in RECURRENT)
    target.feed(0, IDS[:10])
    target.score([0], [chain(IDS[30:34])])
    target.crop(0, 10)  # a request is cancelled between the pass and the commit
    assert target.length(0) == 10
    again = target.score([0], [single(8)])[0].logits
    assert near(again[0], oracle(reference, [*IDS[:10], 8])[-1])
    target.crop(0, 6)
    assert target.length(0) == (0 if family in RECURRENT else 6)
    target.feed(0, IDS[target.length(0) : 12])
    again = target.score([0], [single(8)])[0].logits
    assert near(again[0], oracle(reference, [*IDS[:12], 8])[-1])


def test_positions_that_begin_elsewhere_are_left_to_the_family(tmp_path):
    """RoBERTa's begin after the number of its padding token."""
    config = transformers.RobertaConfig(
        vocab_size=61, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, is_decoder=True,
        intermediate_size=64, max_position_embeddings=256,
    )  # fmt: skip
    reference = saved(config, tmp_path)
    target = load(spec(tmp_path))
    target.feed(0, IDS[:13])
    logits = target.score([0], [chain(IDS[13:20])])[0].logits
    assert near(logits, oracle(reference, IDS[:20])[13:])


@pytest.mark.parametrize("family", [*TREES, *CHAINS])
def test_a_slot_takes_over_what_another_has_read(loaded, family):
    """The other one is in the middle of a pass, and both continue separately."""
    target, reference = loaded(family)
    target.feed(0, IDS[:20])
    target.feed(1, IDS[30:34])
    target.score([0], [chain(IDS[20:24])])
    target.share(0, 1, 12)
    assert list(target.tokens(1)) == IDS[:12]
    target.commit(0, (0, 1))
    target.feed(1, IDS[30:33])
    found = target.score([0, 1], [single(7), single(9)])
    assert near(found[0].logits[0], oracle(reference, [*IDS[:22], 7])[-1])
    assert near(found[1].logits[0], oracle(reference, [*IDS[:12], *IDS[30:33], 9])[-1])


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


@pytest.mark.parametrize("family", ALL)
def test_every_drafter_that_runs_emits_the_models_own_tokens(engine_of, family):
    engine, reference = engine_of(family)
    prompt = tuple(IDS[:9] * 2)
    wanted = greedy(reference, prompt, 24)
    for drafter in (*engine.facts.drafters, AUTO):
        request = GenerationRequest(prompt, 24, drafter=drafter, stop_tokens=frozenset())
        (ids, done), (again, _) = run_all(engine, [request, request])
        assert ids == again == wanted, (drafter, done.error)


@pytest.mark.parametrize("family", ALL)
def test_what_cannot_run_is_said_with_the_reason(engine_of, family):
    engine, _ = engine_of(family)
    refused = dict(engine.facts.refused)
    if family in RECURRENT:
        assert engine.facts.drafters == ("none",)
        assert set(refused) == set(DRAFTERS) - {"none", AUTO}
        assert all(f"({family}) keep a running state" in why for why in refused.values())
    elif family in CHAINS:
        assert {"none", "lookup", "suffix"} <= set(engine.facts.drafters)
        assert "attention" in refused["recycling"] or "cannot score trees" in refused["recycling"]
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

    def blind(branches, window, dtype):
        return torch.zeros(1, 1, len(branches.seen), branches.length + len(branches.depths))

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
    for family in ("granite", "mamba"):
        folders[family] = tmp_path / family
        saved(ALL[family], folders[family])
        vocabulary = {"model": {"vocab": {str(i): i for i in range(61)}}}
        (folders[family] / "tokenizer.json").write_text(json.dumps(vocabulary))
    paired = spec(folders["granite"], draft_folder=str(folders["granite"]), draft_backend="hf")
    engine = build(paired)
    assert "chain" in engine.facts.drafters
    request = GenerationRequest(tuple(IDS[:9]), 8, drafter="chain", length="fixed", draft_depth=3)
    ((ids, done),) = run_all(engine, [request])
    assert len(ids) == 8
    assert done.stats.accepted == done.stats.drafted > 0  # it drafts for itself
    alone = build(spec(folders["granite"], draft_folder=str(folders["mamba"]), draft_backend="hf"))
    assert "running state" in dict(alone.facts.refused)["chain"]


def test_a_context_asked_for_is_kept(loaded, tmp_path):
    saved(TREES["granite"], tmp_path)
    assert load(spec(tmp_path)).context == 256
    assert load(spec(tmp_path, context=100)).context == 100
    assert isinstance(loaded("granite")[0], HfTarget)


def test_an_unusual_tree_of_one_long_branch_and_stubs(loaded):
    target, reference = loaded("gemma3")
    parents = (-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 11)
    tree = DraftTree(tuple(IDS[40:53]), parents)
    target.feed(0, IDS[:11])
    logits = target.score([0], [tree])[0].logits
    for node in (10, 12):  # the branch is longer than the window
        assert near(logits[node], oracle(reference, IDS[:11] + path_tokens(tree, node))[-1])


def test_costs_are_measured_for_a_model_that_cannot_go_back(loaded):
    target, _ = loaded("falcon_h1")
    cost = PassCost()
    profile(target, cost)
    assert cost.seconds(1, 0) > 0
    assert target.length(0) == 0
