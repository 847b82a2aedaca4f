"""The target contract, and transformers as the oracle for every supported family."""

from dataclasses import replace

import pytest
import torch
import transformers

from engine.interfaces.target import Rows
from engine.models.own.target import load_target
from engine.speculation.tree import DraftTree, ReusedRows, chain, single
from tests.engine.tiny import tiny_target

TOLERANCE = 1e-4
SMALL = {
    "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 64, "vocab_size": 61, "max_position_embeddings": 256,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64, "rope_theta": 500000.0,
}  # fmt: skip
FAMILIES = {
    "llama": transformers.LlamaConfig(**SMALL),
    "llama tied": transformers.LlamaConfig(**SMALL, tie_word_embeddings=True),
    "llama biased": transformers.LlamaConfig(**SMALL, attention_bias=True, mlp_bias=True),
    "llama scaled": transformers.LlamaConfig(**SMALL, rope_parameters=LLAMA3),
    "llama wide heads": transformers.LlamaConfig(**SMALL, head_dim=16),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=None),
    "qwen2": transformers.Qwen2Config(**SMALL),
    "qwen3": transformers.Qwen3Config(**SMALL, head_dim=16),
    "phi3": transformers.Phi3Config(**SMALL),
}
IDS = torch.randint(3, 61, (40,), generator=torch.Generator().manual_seed(1)).tolist()
TREE = DraftTree((IDS[20], 5, 10, 11, 20, 21), (-1, 0, 0, 1, 1, 2))


@pytest.fixture(params=FAMILIES, scope="module")
def pair(request, tmp_path_factory):
    """(our target, transformers' model) over one random checkpoint."""
    folder = tmp_path_factory.mktemp("model")
    transformers.set_seed(0)
    reference = transformers.AutoModelForCausalLM.from_config(FAMILIES[request.param]).eval()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if "norm" in name or "bias" in name:  # ones and zeros would hide a missing term
                parameter.uniform_(0.5, 1.5)
    reference.save_pretrained(folder)
    return load_target(folder, "float32", "cpu"), reference


def reference_logits(reference, ids):
    with torch.no_grad():
        return reference(torch.tensor([ids])).logits[0]


def path_tokens(tree, node):
    found = []
    while node >= 0:
        found.append(tree.tokens[node])
        node = tree.parents[node]
    return found[::-1]


def test_prompt_logits_equal_transformers(pair):
    target, reference = pair
    target.crop(0, 0)
    ours = target.score([0], [chain(IDS)])[0].logits
    assert (ours - reference_logits(reference, IDS)).abs().max() < TOLERANCE


def test_steps_after_a_fed_prompt_equal_transformers(pair):
    target, reference = pair
    target.crop(0, 0)
    target.feed(0, IDS[:13])
    target.feed(0, IDS[13:20])
    wanted = reference_logits(reference, IDS)
    for at in range(20, 30):
        logits = target.score([0], [single(IDS[at])])[0].logits
        assert (logits[0] - wanted[at]).abs().max() < TOLERANCE
        target.commit(0, [0])


def test_every_node_of_a_tree_equals_its_path_alone(pair):
    target, reference = pair
    target.crop(0, 0)
    target.feed(0, IDS[:20])
    logits = target.score([0], [TREE])[0].logits
    for node in range(len(TREE)):
        alone = reference_logits(reference, IDS[:20] + path_tokens(TREE, node))[-1]
        assert (logits[node] - alone).abs().max() < TOLERANCE


@pytest.mark.parametrize("path", [(0,), (0, 2, 5), (0, 1, 4), (0, 1)])
def test_a_kept_path_equals_the_plain_sequence(pair, path):
    target, reference = pair
    target.crop(0, 0)
    target.feed(0, IDS[:20])
    target.score([0], [TREE])
    target.commit(0, path)
    logits = target.score([0], [single(7)])[0].logits
    alone = reference_logits(reference, IDS[:20] + path_tokens(TREE, path[-1]) + [7])[-1]
    assert (logits[0] - alone).abs().max() < TOLERANCE


def test_growing_level_by_level_equals_scoring_at_once():
    target = tiny_target()
    target.feed(0, [1, 2, 3])
    tree = DraftTree((4, 5, 6, 7, 8), (-1, 0, 0, 1, 2))
    whole = target.score([0], [tree])[0].logits
    target.crop(0, target.length(0))
    cuts = (slice(0, 1), slice(1, 3), slice(3, 5))
    rows = [Rows(0, tree.tokens[cut], tree.parents[cut]) for cut in cuts]
    parts = [target.grow([row])[0].logits for row in rows]
    assert (torch.cat(parts) - whole).abs().max() < TOLERANCE


@pytest.mark.parametrize("exit_layer", [1, 2])
def test_resuming_after_early_exit_equals_a_full_pass(exit_layer):
    target = tiny_target()
    target.feed(0, [1, 2, 3])
    whole = target.score([0], [chain([4, 5, 6])])[0].logits
    target.crop(0, target.length(0))
    states = [target.shallow([0], [token], exit_layer)[1] for token in (4, 5)]
    warm = ReusedRows(torch.cat(states, 1))
    resumed = target.score([0], [DraftTree((4, 5, 6), (-1, 0, 1), warm=warm)])[0].logits
    assert (resumed - whole).abs().max() < TOLERANCE


def test_a_batch_equals_each_sequence_alone():
    batch, alone = tiny_target(), tiny_target()
    prompts = ([1, 2, 3], [4, 5, 6, 7, 8], [9])
    trees = (chain([4, 5]), DraftTree((1, 2, 3), (-1, 0, 0)), single(2))
    for slot, prompt in enumerate(prompts):
        batch.feed(slot, prompt)
        alone.feed(slot, prompt)
    warm = replace(trees[0], warm=ReusedRows(batch.shallow([0], [4], 1)[1]))
    together = batch.score([0, 1, 2], [warm, *trees[1:]])
    for slot, tree in enumerate(trees):
        single_run = alone.score([slot], [tree])[0].logits
        assert (together[slot].logits - single_run).abs().max() < TOLERANCE


def test_bfloat16_runs_and_stays_near_float32(pair, tmp_path):
    target, reference = pair
    reference.save_pretrained(tmp_path)
    half = load_target(tmp_path, "bfloat16", "cpu")
    target.crop(0, 0)
    full = target.score([0], [chain(IDS)])[0].logits
    rounded = half.score([0], [chain(IDS)])[0].logits.float()
    assert (full - rounded).abs().max() < 0.05 * full.abs().max() + 0.05


@pytest.mark.gpu
def test_cuda_equals_the_processor(pair, tmp_path):
    target, reference = pair
    reference.save_pretrained(tmp_path)
    device = load_target(tmp_path, "float32", "cuda")
    for held in (target, device):
        held.crop(0, 0)
        held.feed(0, IDS[:20])
    ours, theirs = (held.score([0], [TREE])[0].logits.cpu() for held in (target, device))
    assert (ours - theirs).abs().max() < 1e-3
