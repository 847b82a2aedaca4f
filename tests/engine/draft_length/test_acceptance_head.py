"""Acceptance heads: the network, its files, the threshold, and drafts that change no answer."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from engine.build import assemble
from engine.draft_length.acceptance_head import (
    CARD,
    EVIDENCE,
    WEIGHTS,
    AcceptanceHead,
    Head,
    Judge,
    Kind,
    Likeness,
    load_head,
    save_head,
)
from engine.errors import InvalidRequest, ModelUnusable
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.models.own.target import load_target
from engine.request import GenerationRequest, ModelSpec, SamplingParams
from engine.statistics.pass_cost import PassCost
from tests.engine.tiny import engine_over, run_all, tiny_target

BUNDLED = Path(__file__).parents[3] / "engine" / "bundled"
WIDTH = 32  # of the tiny models
GREEDY = SamplingParams()
HERE = Context(1, 0, [1], GREEDY, None)
DRAWN, SEEDED = SamplingParams(1.0), SamplingParams(1.0, seed=3)


def random_head(width=WIDTH, depth=3, seed=0, scale=0.3):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"evidence": (width, EVIDENCE), "blocks": (depth, width, width), "biases": (depth, width),
              "out": (2, width), "out_bias": (2,)}  # fmt: skip
    return Head(**{n: torch.randn(s, generator=generator) * scale for n, s in shapes.items()})


def constant_head(acceptance, width=WIDTH):
    """Gives every token the same chance."""
    head = random_head(width, scale=0.0)
    return replace(head, out_bias=torch.tensor([0.0, math.log(acceptance / (1 - acceptance))]))


@pytest.fixture
def pair():
    return tiny_target(), tiny_target(0, layers=1)


def parts_with(folder, pair, head, **options):
    save_head(head, folder, Likeness.of(*pair), {})
    return DrafterResources(*pair, acceptance_head=folder, options=options)


# --- the network ----------------------------------------------------------------------------------


def test_the_network_is_the_papers_blocks_and_two_logits():
    head = random_head(depth=2)
    linears = [nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2)]
    with torch.no_grad():
        for linear, weight, bias in zip(
            linears, [*head.blocks, head.out], [*head.biases, head.out_bias], strict=True
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        states, evidence = torch.randn(5, WIDTH), torch.randn(5, EVIDENCE)
        x = states + evidence @ head.evidence.T
        for linear in linears[:2]:
            x = x + nn.functional.silu(linear(x))
        assert (head.logits(states, evidence) - linears[2](x)).abs().max() < 1e-5


@pytest.mark.parametrize("log", [-30.0, -0.7, -1e-3, 0.0, 1e-7])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_the_judge_says_what_the_network_says_of_one_state(scale, log):
    head = random_head(depth=3)
    judge = Judge(head)
    for state in scale * torch.randn(5, WIDTH):
        for sampling in (GREEDY, DRAWN, SEEDED):
            kind = Kind.of(Context(1, 0, [1], sampling, None))
            logits = head.logits(state, kind.evidence(torch.tensor(log)))
            wanted = float(logits.softmax(-1)[1])
            assert judge.acceptance(state.numpy(), log, kind) == pytest.approx(wanted, abs=1e-3)


def test_sure_tokens_differ_by_their_remaining_doubt():
    """Their logarithms differ by a hundredth, and one is refused ten times as often as the other."""
    sure, surer, certain = Kind(drawn=False, greedy=True).evidence(torch.tensor([-0.01, -0.001, 0.0]))  # fmt: skip
    assert float(sure[1] - surer[1]) == pytest.approx(math.log(10), abs=0.01)
    assert surer[1] > certain[1] > -10


# --- files ----------------------------------------------------------------------------------------


def test_a_saved_head_is_read_back(tmp_path):
    head, likeness = random_head(), Likeness((13, 3), (13, 1, 7))
    save_head(head, tmp_path / "new" / "folder", likeness, {"figures": {"auc": 0.8}})
    again, found = load_head(tmp_path / "new" / "folder")
    assert found == likeness
    for name, tensor in head.tensors().items():
        assert torch.equal(again.tensors()[name], tensor)
    card = json.loads((tmp_path / "new" / "folder" / CARD).read_text())
    assert card["figures"] == {"auc": 0.8}
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == {WEIGHTS, CARD}


@pytest.mark.parametrize("lost", [WEIGHTS, CARD])
def test_a_missing_or_damaged_file_is_explained(tmp_path, lost):
    save_head(random_head(), tmp_path, Likeness((1, 1), (1, 1, 1)), {})
    (tmp_path / lost).write_text("[]")
    with pytest.raises(ModelUnusable):
        load_head(tmp_path)
    (tmp_path / lost).unlink()
    with pytest.raises(ModelUnusable, match="no acceptance head can be read from"):
        load_head(tmp_path)


def test_foreign_tensors_and_shapes_are_named(tmp_path):
    save_head(random_head(), tmp_path, Likeness((1, 1), (1, 1, 1)), {})
    tensors = random_head().tensors()
    save_file({"weight": torch.ones(1)}, str(tmp_path / WEIGHTS))
    with pytest.raises(ModelUnusable, match="holds weight"):
        load_head(tmp_path)
    save_file({**tensors, "out": torch.zeros(3, WIDTH)}, str(tmp_path / WEIGHTS))
    with pytest.raises(ModelUnusable, match=r"out is \(3, 32\), expected \(2, 32\)"):
        load_head(tmp_path)


# --- the rule -------------------------------------------------------------------------------------


def drafted_until(policy, sampling=GREEDY, probability=0.9):
    context = Context(1, 0, [1], sampling, None)
    (budget,) = policy.budgets([context], [Budget(30, 30)])
    for count in range(1, budget.depth + 1):
        assert not budget.stop.fed(torch.zeros(WIDTH))
        if budget.stop.drawn(probability):
            return count
    return math.inf


@pytest.mark.parametrize(
    ("h", "wanted"), [(0.3, 2), (0.5, 4), (0.7, 6), (0.9, 11), (0.0, 1), (1.0, math.inf)]
)
def test_a_draft_ends_once_a_rejection_is_likelier_than_h(tmp_path, pair, h, wanted):
    """At 0.8 for each token, 1 - 0.8^n passes h."""
    policy = AcceptanceHead(parts_with(tmp_path, pair, constant_head(0.8), h=h), "chain")
    assert drafted_until(policy) == wanted


def test_the_probability_and_the_kind_reach_the_head(tmp_path, pair):
    evidence = torch.zeros(WIDTH, EVIDENCE)
    evidence[0] = torch.tensor([2.0, 0.0, 0.0, -1.0])
    out = torch.zeros(2, WIDTH)
    out[1, 0] = 1.0
    head = replace(constant_head(0.9), evidence=evidence, out=out)
    policy = AcceptanceHead(parts_with(tmp_path, pair, head, h=0.5), "chain")
    assert drafted_until(policy, probability=0.9) > drafted_until(policy, probability=0.3)
    assert drafted_until(policy, DRAWN) > drafted_until(policy, GREEDY)


# --- in the engine --------------------------------------------------------------------------------


def run_with(folder, pair, head, sampling=GREEDY, prompts=((1, 2, 3),), **options):
    save_head(head, folder, Likeness.of(*pair), {})
    dear = PassCost({1: 1e3, 64: 1e3})  # so that goodput never says no
    parts = DrafterResources(*pair, dear, acceptance_head=folder)
    engine = assemble(ModelSpec("tiny", "", slots=3), parts, "no draft model")
    requests = [
        GenerationRequest(
            p, 40, sampling, frozenset({0}), drafter="chain", length="acceptance_head",
            draft_depth=12, options=tuple(options.items()),
        )
        for p in prompts
    ]  # fmt: skip
    return run_all(engine, requests)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
@pytest.mark.parametrize("options", [{}, {"h": 0.3}])
def test_answers_are_plains_token_by_token(tmp_path, sampling, options):
    prompts = ((1,), (1, 2, 3), (5, 4, 3, 2, 1, 2, 3), tuple(range(12)))
    plain = run_all(
        engine_over(tiny_target()),
        [GenerationRequest(p, 40, sampling, frozenset({0}), drafter="none") for p in prompts],
    )
    pair = tiny_target(), tiny_target(0, layers=1)
    drafted = run_with(tmp_path, pair, random_head(), sampling, prompts, **options)
    assert [ids for ids, _ in drafted] == [ids for ids, _ in plain]
    assert sum(done.stats.drafted for _, done in drafted) > 0


def test_a_head_of_another_width_ends_the_request_with_a_sentence(tmp_path, pair):
    [(_, done)] = run_with(tmp_path, pair, constant_head(0.9, width=8))
    assert "reads states of width 8" in done.error
    assert "train-head" in done.error


def test_the_bundled_head_is_the_bundled_pairs_and_tells_rejections():
    folder = BUNDLED / "pocket-head"
    target, draft = (load_target(BUNDLED / n, "float32", "cpu") for n in ("pocket", "pocket-draft"))
    policy = AcceptanceHead(DrafterResources(target, draft, acceptance_head=folder), "chain")
    sure = policy.acceptance(torch.zeros(128), math.log(0.99), Kind.of(HERE))
    unsure = policy.acceptance(torch.zeros(128), math.log(0.05), Kind.of(HERE))
    assert sure > unsure + 0.3
    card = json.loads((folder / CARD).read_text())
    assert card["figures"]["auc"] > 0.75
    assert card["licence"] == "Apache-2.0"
    assert sum(file.stat().st_size for file in folder.iterdir()) < 500_000


# --- mistakes -------------------------------------------------------------------------------------


def test_without_a_head_it_says_how_to_get_one(pair):
    with pytest.raises(InvalidRequest, match=r"no acceptance head.*slipstream train-head"):
        AcceptanceHead(DrafterResources(*pair), "chain")
    request = GenerationRequest((1,), 5, drafter="chain", length="acceptance_head")
    with pytest.raises(InvalidRequest, match="no acceptance head"):
        engine_over(*pair).submit(request)


def test_a_head_of_another_pair_is_refused(tmp_path, pair):
    parts = parts_with(tmp_path, (tiny_target(layers=5), tiny_target()), random_head())
    with pytest.raises(ModelUnusable, match=r"was trained for a model of 5 layers.*these are"):
        AcceptanceHead(replace(parts, target=pair[0], draft_model=pair[1]), "chain")


@pytest.mark.parametrize(("name", "value"), [("h", 1.5), ("h", -2.0)])
def test_an_option_out_of_its_range_is_named(tmp_path, pair, name, value):
    with pytest.raises(InvalidRequest, match=f"option {name} is"):
        AcceptanceHead(parts_with(tmp_path, pair, random_head(), **{name: value}), "chain")
