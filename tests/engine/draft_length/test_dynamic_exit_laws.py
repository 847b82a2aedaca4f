"""Dynamic exit in the engine: the target's law and the plain answer, whatever exits do."""

from dataclasses import replace

import pytest
import torch

from engine.draft_length.tuning import TUNING
from engine.drafters.early_exit import EarlyExit
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.models.own.target import TorchTarget
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.sampling import probabilities
from tests.engine.draft_length.exits import GREEDY, PAPER, Deep, flat, new, over
from tests.engine.enumeration import assert_joint_law, law_of, random_law
from tests.engine.tiny import SlowMachine, decoded, engine_over, run_all, tiny_target, tiny_weights


@pytest.mark.parametrize("kept", [1, 4])
@pytest.mark.parametrize(
    "sampling", [SamplingParams(1.0), SamplingParams(0.7, top_k=2), SamplingParams(1.0, seed=1)]
)
def test_the_joint_law_is_the_targets_while_exits_and_lengths_change(monkeypatch, sampling, kept):
    """Every round's exit, length and end follow from the past and the drafted tokens alone."""
    tuning = replace(TUNING, choice_rounds=kept)
    monkeypatch.setattr("engine.draft_length.dynamic_exit.TUNING", tuning)
    seen = check_joint_law(sampling, new)
    assert kept > 1 or {1, 2} <= {exit_layer for exit_layer, _, _ in seen}
    assert {1, 2} <= {drafted for _, drafted, _ in seen}
    assert all(is_chain for _, _, is_chain in seen)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(1.0), SamplingParams(0.7, top_k=2), SamplingParams(1.0, seed=1)]
)
def test_the_joint_law_is_the_targets_with_siblings(sampling):
    """Rows cost nothing here, so that as many are drafted as there is room for."""
    seen = check_joint_law(sampling, lambda target: over(target, cost=flat()))
    assert not all(is_chain for _, _, is_chain in seen)


def check_joint_law(sampling, policy_over):
    """Enumerate answers of four tokens; returns (exit, drafted tokens, whether a chain) of all rounds."""
    length, size = 4, 2
    target_law, other = (
        torch.stack([random_law(size, seed + row) for row in range(size)]) for seed in (35, 85)
    )
    laws = [0.8 * other + 0.2 * target_law, 0.5 * other + 0.5 * target_law, target_law]
    prompt, seen = [1, 0, 1], set()

    def run(chance):
        target = Deep(*laws)
        policy = policy_over(target)
        ids = list(prompt)
        here = Context(1, 0, ids, sampling, chance)
        policy.prompt(here, target.feed(0, ids[:-1], policy.prompt_rows))
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


class Recording(TorchTarget):
    """A tiny target that keeps the exits and trees of every round, and counts the cost of drafting."""

    def __init__(self, weights):
        super().__init__(weights)
        self.drafted = self.read_rows = 0
        self.exits, self.by_sibling, self.drafts = {}, [], {}

    def shallow(self, slots, tokens, layers):
        self.drafted += layers * len(tokens)
        for slot in slots:
            self.exits.setdefault(slot, set()).add(layers)
        return super().shallow(slots, tokens, layers)

    def read(self, states):
        self.read_rows += states.shape[:-1].numel()
        return super().read(states)

    def score(self, slots, trees):
        self.drafts |= dict(zip(slots, trees, strict=True))
        return super().score(slots, trees)

    def commit(self, slot, path):
        tree = self.drafts.get(slot)
        if tree is not None and tree.warm is not None and not tree.is_chain:
            self.by_sibling.append(path[-1] > tree.warm.states.shape[1])  # whether a sibling was
        super().commit(slot, path)


def drafted(request, **options):
    return replace(request, drafter="early_exit", length="dynamic_exit", **options)


@pytest.mark.parametrize(
    ("options", "sampling"),
    [(PAPER, GREEDY), ((), GREEDY), (PAPER, SamplingParams(0.9, seed=4))],
)
def test_whatever_exits_do_the_answer_is_the_plain_one(options, sampling):
    changed = 0
    for seed in range(2):
        prompts = [(1, 2, 3), (4,), (5, 6, 7, 8, 9, 1, 2), (3, 3, 3)]
        requests = [GenerationRequest(p, 30, sampling, frozenset({0})) for p in prompts]
        plain = run_all(engine_over(tiny_target(seed, layers=6)), [replace(r, drafter="none") for r in requests])  # fmt: skip
        target = tiny_target(seed, Recording, layers=6)
        asked = [drafted(r, options=options, draft_depth=8) for r in requests]
        assert [ids for ids, _ in run_all(engine_over(target), asked)] == [ids for ids, _ in plain]
        changed += sum(len(exits) > 1 for exits in target.exits.values())
    assert changed >= 2


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(0.9, seed=4), SamplingParams(0.9)])
def test_with_siblings_the_answer_is_the_plain_one(sampling):
    """A sampled answer has random numbers of its own: of that it is enough that it runs."""
    taken = []
    for seed in range(3):
        request = GenerationRequest((5, 6, 7), 40, sampling)
        [(plain, _)] = run_all(engine_over(tiny_target(seed, layers=6)), [replace(request, drafter="none")])  # fmt: skip
        target = tiny_target(seed, Recording, layers=6)
        cheap = SlowMachine()  # rows stay free
        [(found, _)] = run_all(engine_over(target, cost=cheap), [drafted(request)])
        taken += target.by_sibling
        assert len(found) == 40
        assert found == plain or Context(1, 0, [], sampling, None).draws
    assert any(taken)
    assert not all(taken)


def test_the_cache_equals_a_fresh_one_after_every_round():
    target, fresh = tiny_target(8, Recording, layers=8), tiny_target(8, layers=8)
    engine = engine_over(target, slots=1)
    ids = [1, 2, 3, 1, 2]
    request = GenerationRequest(tuple(ids), 60, SamplingParams(1.0, seed=3), options=PAPER)
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
    engine = engine_over(target)
    request = drafted(GenerationRequest((1, 2, 3), 200, options=PAPER))
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
