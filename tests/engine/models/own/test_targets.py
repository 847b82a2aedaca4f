"""TorchTarget against itself, and CudaTarget's static passes, on any device, against TorchTarget."""

import random
from dataclasses import replace

import pytest
import torch

from engine.decoder import static_cache
from engine.decoder.weights import load_weights
from engine.errors import OutOfMemory
from engine.interfaces.target import Rows
from engine.models.own.cuda_target import CudaTarget
from engine.models.own.pass_kernels import WRITTEN_OUT, kernels_for
from engine.models.own.target import TorchTarget
from engine.platform.device_memory import out_of_memory_as_ours
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.tree import DraftTree, ReusedRows, chain, single
from tests.bundled import POCKET
from tests.engine.models.conversations import SLOTS, converse, same_rows
from tests.engine.tiny import engine_over, run_all, tiny_target, tiny_weights

TREE = DraftTree((3, 4, 5, 6, 7, 8), (-1, 0, 0, 1, 1, 2))


@pytest.mark.parametrize("exit_layer", [1, 2])
def test_resuming_after_early_exit_equals_a_full_pass(exit_layer):
    target = tiny_target()
    target.feed(0, [1, 2, 3])
    whole = target.score([0], [chain([4, 5, 6])])[0].logits
    target.crop(0, target.length(0))
    states = [target.shallow([0], [token], exit_layer)[1] for token in (4, 5)]
    warm = ReusedRows(torch.cat(states, 1))
    resumed = target.score([0], [DraftTree((4, 5, 6), (-1, 0, 1), warm=warm)])[0].logits
    assert (resumed - whole).abs().max() < 1e-4


def test_a_batch_in_which_one_resumes_equals_each_sequence_alone():
    batch, alone = tiny_target(), tiny_target()
    trees = (chain([4, 5]), DraftTree((1, 2, 3), (-1, 0, 0)), single(2))
    for slot, prompt in enumerate(([1, 2, 3], [4, 5, 6, 7, 8], [9])):
        for target in (batch, alone):
            target.feed(slot, prompt)
    warm = replace(trees[0], warm=ReusedRows(batch.shallow([0], [4], 1)[1]))
    together = batch.score([0, 1, 2], [warm, *trees[1:]])
    for slot, tree in enumerate(trees):
        near(together[slot].logits, alone.score([slot], [tree])[0].logits)


# The CUDA target.


def pair(**shape):
    """The reference and the static target over the same weights."""
    weights = tiny_weights(**shape)
    return TorchTarget(weights), CudaTarget(weights, WRITTEN_OUT, graphs=False)


def near(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    return True


def test_conversations_are_the_reference_targets():
    plain, static = pair()
    converse(plain, static, random.Random(0), near)
    assert all(same_rows(static, plain, slot) for slot in range(SLOTS))


def test_rows_that_are_grown_have_the_references_states():
    plain, static = pair()
    for wave in [Rows(0, [1, 2, 3], [-1, 0, 1], last=1), Rows(0, [4, 5], [2, 2])]:
        (expected,), (found,) = plain.grow([wave]), static.grow([wave])
        near(found.logits, expected.logits)
        near(found.hidden, expected.hidden)


@pytest.mark.parametrize("trace", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_draft_of_early_layers_and_its_verification(layers, trace):
    plain, static = pair()
    found = []
    for target in (plain, static):
        target.feed(0, [1, 2, 3])
        steps = [target.shallow([0], [token], layers) for token in (4, 5)]
        warm = ReusedRows(torch.cat([states for _, states in steps], 1))
        tree = replace(chain([4, 5, 6]), warm=warm, trace=trace)
        found.append((*steps, target.score([0], [tree])[0]))
        target.commit(0, [0, 1])
    for (expected, was), (logits, states) in zip(found[0][:2], found[1][:2], strict=True):
        near(logits, expected)
        near(states, was)
    near(found[1][2].logits, found[0][2].logits)
    if trace:
        near(found[1][2].states, found[0][2].states)
    near(static.score([0], [TREE])[0].logits, plain.score([0], [TREE])[0].logits)


@pytest.mark.parametrize("rows", [255, 256, 257])
def test_trees_around_the_widest_bucket(rows):
    plain, static = pair(context=600)
    wide = DraftTree(tuple(n % 13 for n in range(rows)), (-1, *(n // 2 for n in range(rows - 1))))
    near(static.score([0], [wide])[0].logits, plain.score([0], [wide])[0].logits)


def test_kernels_in_place_of_what_they_stand_for():
    """In Triton's interpreter where there is no device; heads as wide as kernels take, one layer."""
    pytest.importorskip("triton", reason="triton is not installed: pip install 'slipstream[test]'")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    whole = load_weights(POCKET, torch.float32, device)
    one = replace(whole.arch, layers=1)
    weights = replace(whole, arch=one, layers=whole.layers[:1])
    plain = TorchTarget(weights)
    kernels = CudaTarget(weights, kernels_for(weights.arch), graphs=False)
    for target in (plain, kernels):
        target.feed(0, list(range(20, 30)))
    tree = DraftTree((30, 31, 32), (-1, 0, 0))
    found, expected = (target.score([0], [tree])[0].logits for target in (kernels, plain))
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)
    for target in (plain, kernels):
        target.commit(0, [0, 2])
    assert same_rows(kernels, plain, tolerance=1e-4)


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=0.9, seed=4)])
@pytest.mark.parametrize("drafter", ["none", "sequoia", "early_exit", "suffix"])
def test_whole_answers_are_the_same(drafter, sampling):
    plain, static = pair()
    draft = CudaTarget(tiny_weights(1), WRITTEN_OUT, graphs=False)
    asked = GenerationRequest((1, 2, 3, 1, 2, 3), 20, sampling, drafter=drafter)
    [(expected, _)] = run_all(engine_over(plain), [replace(asked, drafter="none")])
    assert run_all(engine_over(static, draft), [asked])[0][0] == expected


def test_addresses_stay_while_a_conversation_fits_and_rows_survive_a_move(monkeypatch):
    monkeypatch.setattr(static_cache, "FIRST_ROWS", 8)
    monkeypatch.setattr(static_cache, "SPARE", 8)
    plain, static = pair()
    moves, address = 0, None
    for step in range(12):
        tree = chain([step % 13, (step + 5) % 13, 2, 3])
        near(static.score([0], [tree])[0].logits, plain.score([0], [tree])[0].logits)
        for target in (plain, static):
            target.commit(0, [0, 1, 2, 3])
        here = static.cache.layers(0)[0][0].data_ptr()
        moves, address = moves + (here != address), here
    assert 2 <= moves <= 5


def test_running_out_of_memory_while_moving_loses_nothing(monkeypatch):
    plain, static = pair()
    for target in (plain, static):
        target.feed(0, [1, 2, 3])
    made = []

    def failing(*args, **kwargs):
        made.append(args)
        if len(made) > 3:
            raise torch.OutOfMemoryError("Tried to allocate 2.50 GiB. GPU 0 has ...")
        return torch.empty(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr("engine.decoder.static_cache.torch.zeros", failing)
        with (
            pytest.raises(OutOfMemory, match=r"2560.0 MiB were needed"),
            out_of_memory_as_ours(torch.device("cpu")),
        ):
            static.cache.reserve(0, 10_000)
    near(static.score([0], [TREE])[0].logits, plain.score([0], [TREE])[0].logits)


def test_a_pass_that_runs_out_of_memory_can_be_tried_again(monkeypatch):
    plain, static = pair()
    with monkeypatch.context() as patch:
        patch.setattr(
            "engine.models.own.cuda_target.block",
            lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("Tried to allocate 20.00 MiB")),
        )
        with pytest.raises(OutOfMemory) as caught:
            static.score([0], [TREE])
    assert caught.value.needed == 20 * 2**20
    near(static.score([0], [chain([1, 2])])[0].logits, plain.score([0], [chain([1, 2])])[0].logits)
