"""Recorded passes on a device: every test names the reference that it compares with."""

from dataclasses import replace

import pytest
import torch

from engine.build import build
from engine.decoder.weights import load_weights
from engine.kernels.philox import PhiloxRandom
from engine.kernels.verify import verify_all
from engine.models.own.cuda_target import BUCKETS, on_device
from engine.models.own.target import TorchTarget
from engine.request import GenerationRequest, ModelSpec, SamplingParams
from engine.speculation.tree import DraftTree, ReusedRows, chain
from engine.speculation.verify import verify
from tests.bundled import POCKET, POCKET_DRAFT
from tests.engine.tiny import run_all

BOTH = ModelSpec("pocket", str(POCKET), str(POCKET_DRAFT), device="cuda", exit_layer=2)
PROMPT = tuple(range(20, 60))
pytestmark = pytest.mark.gpu


@pytest.fixture
def both(device):
    """The target on the processor and the one that records passes, after the same prompt."""
    plain = TorchTarget(load_weights(POCKET, torch.float32, torch.device("cpu")))
    recorded = on_device(load_weights(POCKET, torch.float32, device))
    for target in (plain, recorded):
        target.feed(0, PROMPT)
    return plain, recorded


def tree_of(rows):
    return DraftTree(tuple(n % 97 for n in range(rows)), (-1, *(n // 2 for n in range(rows - 1))))


@pytest.mark.parametrize("rows", BUCKETS)
def test_recorded_scores_are_torch_targets(both, rows):
    """Reference: TorchTarget on the processor in float32."""
    plain, recorded = both
    for _ in range(3):  # recorded once, replayed twice after a growing prefix
        expected = plain.score([0], [tree_of(rows)])[0].logits
        found = recorded.score([0], [tree_of(rows)])[0].logits.cpu()
        torch.testing.assert_close(found, expected, atol=2e-3, rtol=2e-3)
        for target in (plain, recorded):
            target.commit(0, [0])


@pytest.mark.parametrize("vocab", [4096, 151_936])
@pytest.mark.parametrize("kind", ["greedy", "lookup", "drawn", "chain"])
def test_verdicts_are_those_of_the_torch_code(device, kind, vocab):
    """Reference: engine.speculation.verify on the CPU, on the same random numbers."""
    random = torch.Generator().manual_seed(1)
    law = torch.softmax(torch.randn(vocab, generator=random), -1)
    tree = tree_of(64) if kind != "chain" else chain(range(8), dict.fromkeys(range(7), law))
    if kind == "drawn":
        tree = DraftTree(tree.tokens, tree.parents, dict.fromkeys(range(32), law))
    sampling = SamplingParams(temperature=0.0 if kind == "greedy" else 0.9)
    logits = torch.randn(len(tree), vocab, generator=random)
    logits[:, : len(tree)] += 9
    for seed in range(20):
        plain, fast = PhiloxRandom(seed), PhiloxRandom(seed)
        expected = verify(tree, logits, sampling, plain)
        assert verify_all([tree], [logits.to(device)], [sampling], [fast]) == [expected]
        assert fast.calls == plain.calls


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(temperature=0.8, seed=3)])
@pytest.mark.parametrize("drafter", ["suffix", "sequoia", "specexec", "chain", "early_exit"])
def test_answers_are_those_of_plain_decoding(device, drafter, sampling):
    """Reference: drafter ``none`` on the same device; drafts are as long whether they pay or not."""
    asked = GenerationRequest(PROMPT, 48, sampling, draft_depth=4, draft_nodes=12)
    running, answers = build(BOTH), []
    for name, length in (("none", "default"), (drafter, "fixed")):
        [(ids, done)] = run_all(running, [replace(asked, drafter=name, length=length)])
        assert done.error is None
        assert (done.stats.drafted > 0) == (name != "none")
        answers.append(ids)
    assert answers[0] == answers[1]


@pytest.mark.parametrize("trace", [False, True])
def test_a_recorded_draft_of_early_layers_and_its_verification(both, trace):
    """Reference: TorchTarget on the processor in float32."""
    plain, recorded = both
    for layers in (2, 4, 2):
        found = []
        for target in (plain, recorded):
            steps = [target.shallow([0], [token], layers) for token in (30, 31, 32)]
            warm = ReusedRows(torch.cat([states for _, states in steps], 1))
            tree = replace(chain([30, 31, 32, 33]), warm=warm, trace=trace)
            scores = target.score([0], [tree])[0]
            found.append([logits.cpu() for logits, _ in steps] + [scores.logits.cpu()])
            found[-1] += [scores.states.cpu()] if trace else []
            target.commit(0, [0, 1])
        for was, expected in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(was, expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("drafters", [("none",) * 3, ("chain", "early_exit", "lookup")])
def test_requests_side_by_side_are_answered_as_alone(device, drafters):
    """Reference: the same requests one by one, on the same device."""
    running = build(BOTH)
    requests = [
        GenerationRequest(PROMPT[at:], 32, drafter=drafter, length="fixed", draft_depth=4)
        for at, drafter in enumerate(drafters)
    ]
    alone = [run_all(running, [request])[0] for request in requests]
    together = run_all(running, requests)
    assert [ids for ids, _ in together] == [ids for ids, _ in alone]
    assert all(done.error is None for _, done in (*together, *alone))
