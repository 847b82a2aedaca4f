"""Dynamic exit in the engine: the target's law and the plain answer, whatever exits do."""

from dataclasses import replace

import pytest
import torch

from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, DrafterResources
from engine.models.own.target import TorchTarget
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.sampling import probabilities
from engine.statistics.pass_cost import PassCost
from tests.engine.draft_length.exits import GREEDY, Deep, flat, new, over
from tests.engine.enumeration import assert_joint_law, law_of, random_law
from tests.engine.tiny import decoded, engine_over, run_all, tiny_target, tiny_weights


@pytest.mark.parametrize(
    "sampling", [SamplingParams(1.0), SamplingParams(0.7, top_k=2), SamplingParams(1.0, seed=1)]
)
def test_the_joint_law_is_the_targets_while_exits_and_lengths_change(sampling):
    """Every round's exit, length and end follow from the past and the drafted tokens alone."""
    seen = check_joint_law(sampling, new)
    assert {1, 2} <= {exit_layer for exit_layer, _, _ in seen}
    assert {1, 2} <= {drafted for _, drafted, _ in seen}
    assert all(is_chain for _, _, is_chain in seen)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(1.0), SamplingParams(0.7, top_k=2), SamplingParams(1.0, seed=1)]
)
def test_the_joint_law_is_the_targets_with_siblings(sampling):
    """Rows cost nothing here, so that as many are drafted as there is room for."""
    seen = check_joint_law(sampling, lambda target: over(target, flat()))
    assert not all(is_chain for _, _, is_chain in seen)


def check_joint_law(sampling, policy_over):
    """Enumerate answers of four tokens; returns (exit, drafted tokens, whether a chain) of all rounds."""
    length, size = 4, 2
    target_law, other = (
        torch.stack([random_law(size, seed + row) for row in range(size)]) for seed in (35, 85)
    )
    laws = [target_law.flip(-1), 0.9 * target_law + 0.1 * other, target_law]
    prompt, seen = [1, 0, 1], set()

    def run(chance):
        target = Deep(*laws)
        policy = policy_over(target)
        ids = list(prompt)
        target.feed(0, ids[:-1])
        drafter = EarlyExit(DrafterResources(target))

        def draft(here):
            return drafter.draft([here], policy.budgets([here], [Budget(2, 2)]))[0]

        for outcome in decoded(target, ids, length, draft, sampling=sampling, rng=chance):
            policy.observe([outcome])
            tree = outcome.tree
            seen.add((tree.warm.layer if tree.warm else 0, tree.drafted, tree.is_chain))
        return tuple(ids[len(prompt) : len(prompt) + length])

    assert_joint_law(law_of(run), probabilities(laws[-1].log(), sampling), prompt[-1], length)
    return seen


class Unmeasured(PassCost):
    """Passes are never measured: choices are the paper's, however fast this machine is."""

    def observe(self, rows, context, seconds, overhead=0.0, requests=1):
        """Nothing is learned."""


class Recording(TorchTarget):
    """A tiny target that keeps the exits of every round, and counts the cost of drafting."""

    def __init__(self, weights):
        super().__init__(weights)
        self.drafted = self.read_rows = 0
        self.exits = {}

    def shallow(self, slots, tokens, layers):
        self.drafted += layers * len(tokens)
        for slot in slots:
            self.exits.setdefault(slot, set()).add(layers)
        return super().shallow(slots, tokens, layers)

    def read(self, states):
        self.read_rows += states.shape[:-1].numel()
        return super().read(states)


def drafted(request, **options):
    return replace(request, drafter="early_exit", length="dynamic_exit", **options)


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(0.9, seed=4)])
def test_whatever_exits_do_the_answer_is_the_plain_one(sampling):
    changed = 0
    for seed in range(2):
        prompts = [(1, 2, 3), (4,), (5, 6, 7, 8, 9, 1, 2), (3, 3, 3)]
        requests = [GenerationRequest(p, 30, sampling, frozenset({0})) for p in prompts]
        plain = run_all(engine_over(tiny_target(seed, layers=6)), [replace(r, drafter="none") for r in requests])  # fmt: skip
        target = tiny_target(seed, Recording, layers=6)
        asked = [drafted(r, draft_depth=8) for r in requests]
        found = run_all(engine_over(target, cost=Unmeasured()), asked)
        assert [ids for ids, _ in found] == [ids for ids, _ in plain]
        changed += sum(len(exits) > 1 for exits in target.exits.values())
    assert changed >= 2


def test_the_cache_equals_a_fresh_one_after_every_round():
    target, fresh = tiny_target(8, Recording, layers=8), tiny_target(8, layers=8)
    engine = engine_over(target, slots=1, cost=Unmeasured())
    ids = [1, 2, 3, 1, 2]
    request = GenerationRequest(tuple(ids), 60, SamplingParams(1.0, seed=3))
    engine.submit(drafted(request))
    while engine.busy:
        for _, event in engine.step():
            ids += getattr(event, "ids", ())
        fresh.crop(0, 0)
        fresh.feed(0, ids[: target.length(0)])
        for layer in range(target.layers):
            pairs = zip(target.cache.rows(0, layer), fresh.cache.rows(0, layer), strict=True)
            assert all((held - wanted).abs().max() < 1e-4 for held, wanted in pairs)
    assert len(target.exits[0]) > 1


# Where exits bring nothing.


def test_weights_without_early_exits_cost_next_to_nothing():
    """Random layers disagree with the last one: drafts end after a few rounds, and stay away."""
    target = Recording(tiny_weights(2, layers=12, vocab=97, context=256))
    engine = engine_over(target, cost=Unmeasured())
    request = drafted(GenerationRequest((1, 2, 3), 200))
    [(ids, _)] = run_all(engine, [request])
    first = target.drafted, target.read_rows
    assert first[0] <= 12 * len(ids) / 25  # layers run beyond plain decoding
    assert first[1] <= 2 * len(ids)  # of 12 rows for each token, and no rows but these
    run_all(engine, [replace(request, prompt=(5, 6, 7))])
    assert target.drafted - first[0] <= 12 * len(ids) / 25


def test_a_target_of_one_layer_decodes_plainly():
    engine = engine_over(tiny_target(layers=1))
    request = drafted(GenerationRequest((1, 2, 3), 9))
    [(ids, done)] = run_all(engine, [request])
    [(plain, _)] = run_all(engine_over(tiny_target(layers=1)), [replace(request, drafter="none", length="fixed")])  # fmt: skip
    assert ids == plain
    assert done.stats.drafted == 0
