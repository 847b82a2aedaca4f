"""Out of memory: the same answer with smaller trees and passes, or a refusal in numbers."""

from itertools import count

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.errors import OutOfMemory
from engine.request import FinishReason, GenerationRequest, SamplingParams
from engine.runtime.memory_backoff import CALM, MemoryBackoff, truncate_tree
from engine.speculation.tree import DraftTree, ReusedRows, chain, single
from engine.speculation.verify import verify
from tests.engine.enumeration import law_of, random_law
from tests.engine.tiny import SlowMachine, engine_over, run_all, tiny_target

PROMPT = (1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3)
GREEDY, SEEDED = SamplingParams(), SamplingParams(temperature=0.9, seed=5)
MIB = 2**20


class Cramped:
    """A target on a device that holds so many rows of one pass; every call is counted."""

    def __init__(self, target, rows, fail_at=()):
        self._target, self.rows = target, rows
        self._fail_at, self._calls = set(fail_at), count(1)
        self.refusals, self.widest = 0, 0

    def __getattr__(self, name):
        return getattr(self._target, name)

    def _check(self, rows):
        if rows > self.rows or next(self._calls) in self._fail_at:
            self.refusals += 1
            raise OutOfMemory(rows * MIB, self.rows * MIB, 100 * MIB)
        self.widest = max(self.widest, rows)

    def score(self, slots, trees):
        self._check(sum(len(tree) for tree in trees))
        return self._target.score(slots, trees)

    def feed(self, slot, tokens):
        self._check(len(tokens))
        return self._target.feed(slot, tokens)

    def grow(self, batch):
        self._check(sum(len(rows.tokens) for rows in batch))
        return self._target.grow(batch)

    def shallow(self, slots, tokens, layers):
        self._check(len(slots))
        return self._target.shallow(slots, tokens, layers)


def requests(drafter, sampling, number=2):
    asked = [PROMPT, (5, 6, 7, 5, 6, 7, 5, 6)][:number]
    return [GenerationRequest(p, 24, sampling, drafter=drafter, length="fixed") for p in asked]


def answers(target, drafter, sampling, draft=None, number=2):
    engine = engine_over(target, draft or tiny_target(1), cost=SlowMachine())
    return run_all(engine, requests(drafter, sampling, number))


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
@pytest.mark.parametrize("drafter", [*DRAFTERS])
def test_the_answer_is_the_same_in_little_memory(drafter, sampling):
    plain = answers(tiny_target(), "none", sampling)
    for rows in (1, 2, 5):
        cramped = Cramped(tiny_target(), rows)
        found = answers(cramped, drafter, sampling)
        assert [ids for ids, _ in found] == [ids for ids, _ in plain]
        assert all(done.reason is FinishReason.LENGTH for _, done in found)
        assert cramped.refusals > 0
        assert cramped.widest <= rows


@pytest.mark.parametrize("drafter", ["chain", "sequoia", "specexec"])
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_a_draft_model_without_memory_costs_speed_and_nothing_else(drafter, sampling):
    plain = answers(tiny_target(), "none", sampling)
    draft = Cramped(tiny_target(1), 3, fail_at=range(4, 400, 3))
    found = answers(tiny_target(), drafter, sampling, draft)
    assert [ids for ids, _ in found] == [ids for ids, _ in plain]
    assert draft.refusals > 0


@pytest.mark.parametrize("at", range(1, 20, 3))
def test_trouble_at_any_pass_is_survived(at):
    plain = answers(tiny_target(), "none", GREEDY)
    found = answers(Cramped(tiny_target(), 99, fail_at=(at,)), "suffix", GREEDY)
    assert [ids for ids, _ in found] == [ids for ids, _ in plain]


def test_a_refusal_has_numbers_and_what_was_tried():
    for ids, done in answers(Cramped(tiny_target(), 0), "suffix", GREEDY):
        assert ids == []
        assert done.reason is FinishReason.ERROR
        assert "1.0 MiB were needed" in done.error
        assert "of 100.0 MiB were free" in done.error
        assert "1 request" in done.error


def test_what_was_given_up_is_tried_again():
    cramped = Cramped(tiny_target(), 2)
    retreat = MemoryBackoff(cramped)
    cramped.feed(0, [1, 2])
    tree = chain([3, 4, 5, 6, 7, 8, 9, 10])
    assert len(retreat.score([0], [tree])[0].tree) == 2
    cramped.rows = 99
    lengths = [len(retreat.score([0], [tree])[0].tree) for _ in range(3 * CALM)]
    assert lengths == [2] * (CALM - 1) + [4] * CALM + [8] * (CALM + 1)


def test_requests_are_parted_until_as_many_calm_passes_went_by():
    cramped = Cramped(tiny_target(), 99)
    retreat = MemoryBackoff(cramped)
    for slot in (0, 1, 2, 3):
        cramped.feed(slot, [1, 2])
    pass_of_four = ([0, 1, 2, 3], [single(3)] * 4)
    for _ in range(CALM // 2):
        retreat.score(*pass_of_four)
    cramped.rows = 2
    retreat.score(*pass_of_four)
    assert retreat.together == 2
    cramped.rows, cramped.refusals = 99, 0
    widths = []
    for _ in range(CALM):
        cramped.widest = 0
        retreat.score(*pass_of_four)
        widths.append(cramped.widest)
    assert widths == [2] * (CALM - 1) + [4]


def test_a_cut_tree_is_the_shorter_draft():
    laws = {0: torch.ones(4) / 4, 1: torch.ones(4) / 4}
    tree = DraftTree((0, 1, 2, 3, 1), (-1, 0, 0, 1, 1), laws, warm=ReusedRows(torch.zeros(1, 2, 3)))
    shorter = truncate_tree(tree, 3)
    assert (shorter.tokens, shorter.parents) == ((0, 1, 2), (-1, 0, 0))
    assert set(shorter.q) == {0}
    assert shorter.warm is None
    assert truncate_tree(tree, 9) is tree
    assert truncate_tree(tree, None) is tree


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_the_law_of_a_cut_drawn_tree_is_the_targets(nodes):
    """Enumerated: three children drawn without replacement, some cut, one token out."""
    p, q = random_law(4, 1), random_law(4, 2)
    logits = p.log().repeat(4, 1)

    def run(chance):
        tokens = chance.draw_distinct(q, 3)
        tree = truncate_tree(DraftTree((0, *tokens), (-1, *(0 for _ in tokens)), {0: q}), nodes)
        verdict = verify(tree, logits[: len(tree)], SamplingParams(1.0), chance)
        return tree.tokens[verdict.path[1]] if len(verdict.path) > 1 else verdict.bonus

    found = law_of(run)
    assert all(abs(found.get(t, 0.0) - float(p[t])) < 1e-12 for t in range(4))


def test_a_draft_without_memory_makes_the_next_ones_half_as_large():
    draft = Cramped(tiny_target(1), 99, fail_at=(2,))
    engine = engine_over(tiny_target(), draft, cost=SlowMachine())
    run_all(engine, requests("sequoia", GREEDY, 1))
    assert draft.refusals == 1
    assert engine.backoff.nodes is not None
