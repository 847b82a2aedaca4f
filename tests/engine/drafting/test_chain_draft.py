"""Chains with candidates beside them: which tokens these are, and the target's law whatever they are."""

from dataclasses import dataclass, field

import pytest
import torch

from engine.drafters.early_exit import EarlyExit
from engine.drafting.chain_draft import ChainDraft
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.request import SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.sampling import probabilities
from tests.engine.draft_length.exits import GREEDY
from tests.engine.enumeration import assert_joint_law, law_of, random_law
from tests.engine.tiny import Markov, decoded, tiny_target


@dataclass
class Moody:
    """Fills up beside the first token by how sure the draft was of the last one."""

    room: int = 2
    heard: list[float] = field(default_factory=list)

    def drawn(self, probability):
        self.heard.append(probability)
        return probability < 0.1

    def fed(self, hidden):
        return False

    def beside(self, drafted):
        first = self.room if self.heard[-1] > 0.5 else 0
        return [first, *[int(self.heard[0] > 0.4)] * (drafted - 1)]


@dataclass(frozen=True)
class Given:
    """So many beside each token."""

    counts: tuple[int, ...]

    def beside(self, drafted):
        return self.counts[:drafted]


def strand(counts, sampling=GREEDY, chance=None, depth=3):
    return ChainDraft(
        Context(1, 0, [7], sampling, chance), Budget(depth, 9, siblings=Given(tuple(counts)))
    )


def test_chosen_candidates_are_the_likeliest_but_the_chains_own():
    grown = strand([2, 0, 1])
    for row in ([0.0, 3.0, 1.0, 2.0], [5.0, 0.0, 4.0, 1.0], [1.0, 1.0, 0.0, 1.0]):
        grown.draw(torch.tensor(row))
    tree = grown.tree()
    assert tree.tokens == (7, 1, 0, 0, 3, 2, tree.tokens[6])
    assert tree.parents == (-1, 0, 1, 2, 0, 0, 2)
    assert tree.tokens[6] in {1, 3}  # of equals one, and not the chain's
    assert tree.q is None


def test_a_vocabulary_has_no_more_candidates_than_tokens():
    grown = strand([7])
    grown.draw(torch.tensor([1.0, 2.0, 0.0]))
    assert sorted(grown.tree().tokens[1:]) == [0, 1, 2]


def test_an_empty_draft_has_no_siblings():
    assert strand([3]).tree().tokens == (7,)


def test_no_candidate_is_drawn_where_the_mass_runs_out():
    logits = torch.tensor([0.0, 1.0, 2.0]).log()  # two tokens have mass
    grown = strand([5, 5], SamplingParams(1.0, top_k=1), SeededRandom(1), depth=2)
    grown.draw(logits)
    grown.draw(logits)
    assert grown.tree().tokens == (7, 2, 2)
    grown = strand([5], SamplingParams(1.0), SeededRandom(1), depth=1)
    grown.draw(logits)
    assert sorted(grown.tree().tokens[1:]) == [1, 2]


CUT = SamplingParams(0.8, top_k=2)


@pytest.mark.parametrize(("sampling", "room"), [(SamplingParams(1.0), 2), (CUT, 1), (CUT, 2)])
def test_the_joint_law_is_the_targets_with_any_number_of_siblings(sampling, room):
    """How many stand beside the first token follows from how sure the draft was of the last one."""
    size, length = 3, 3
    laws, early = (
        torch.stack([random_law(size, seed + row) for row in range(size)]) for seed in (3, 90)
    )
    seen = set()

    def run(chance):
        target, ids = Markov(laws, 0.4 * laws + 0.6 * early), [0, 1]
        target.feed(0, ids[:-1])
        drafter = EarlyExit(DrafterResources(target))

        def draft(here):
            mood = Moody(room)
            return drafter.draft([here], [Budget(2, 9, stop=mood, siblings=mood)])[0]

        for outcome in decoded(target, ids, length, draft, sampling=sampling, rng=chance):
            seen.add((outcome.tree.parents, outcome.verdict.path))
        return tuple(ids[2 : 2 + length])

    assert_joint_law(law_of(run), probabilities(laws.log(), sampling), last=1, length=length)
    first = {parents[3:].count(0) for parents, _ in seen if len(parents) > 2}
    assert len(first) > 1  # it did depend on what was drawn below
    assert any(path[-1] > 1 and parents[path[-1]] == 0 for parents, path in seen)  # one was taken


@pytest.mark.parametrize("exit_layer", [1, 2, 4])
def test_a_tree_resumed_after_an_exit_scores_each_path_like_the_path_alone(exit_layer):
    """Those beside the chain have not run through the early layers: they catch up in the pass."""
    target, fresh = tiny_target(3, layers=5), tiny_target(3, layers=5)
    ids = [1, 2, 3, 4]
    target.feed(0, ids[:-1])
    budget = Budget(3, 9, exit_layer=exit_layer, siblings=Given((2, 0, 3)))
    here = Context(1, 0, ids, GREEDY, SeededRandom(0))
    [tree] = EarlyExit(DrafterResources(target)).draft([here], [budget])
    assert len(tree) == 1 + 3 + 5
    scores = target.score([0], [tree])[0]
    for node in range(len(tree)):
        path, at = [], node
        while at >= 0:
            path.insert(0, at)
            at = tree.parents[at]
        fresh.crop(0, 0)
        fresh.feed(0, [*ids[:-1], *(tree.tokens[n] for n in path[:-1])])
        alone = fresh.shallow([0], [tree.tokens[node]], fresh.layers)[0][0]
        assert scores.logits[node] == pytest.approx(alone, abs=1e-3)
    path = (0, 1, 2, 8)  # a candidate beside the third token
    target.commit(0, path)
    assert list(target.tokens(0)) == ids[:-1] + [tree.tokens[n] for n in path]
    fresh.crop(0, 0)
    fresh.feed(0, list(target.tokens(0)))
    for layer in range(5):
        pairs = zip(target.cache.rows(0, layer), fresh.cache.rows(0, layer), strict=True)
        assert all((held - wanted).abs().max() < 1e-4 for held, wanted in pairs)
