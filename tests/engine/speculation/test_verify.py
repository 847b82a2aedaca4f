"""Laws of verify() at one node: whatever was proposed, the token follows the target's law."""

from dataclasses import replace

import pytest
import torch

from engine.errors import NumericalError
from engine.request import SamplingParams
from engine.speculation.rng import SeededRandom
from engine.speculation.sampling import probabilities
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Verdict, verify, without
from tests.engine.enumeration import distance, law_of, random_law, residual, rows

SAMPLED = SamplingParams(temperature=1.0)
GREEDY = SamplingParams()
EXACT = 1e-12


def first_token(tree, verdict):
    return tree.tokens[verdict.path[1]] if len(verdict.path) > 1 else verdict.bonus


def star(tokens, q=None):
    """A root with these children."""
    return DraftTree((0, *tokens), (-1, *(0 for _ in tokens)), q)


def level_law(p, q, width, rule=verify):
    """Law of the first emitted token when ``width`` children are drawn from q without replacement."""

    def run(rng):
        tree = star(rng.draw_distinct(q, width), {0: q})
        logits = rows(p, *(p for _ in range(len(tree) - 1)))
        return first_token(tree, rule(tree, logits, SAMPLED, rng))

    return law_of(run)


def law(*shares):
    return torch.tensor(shares, dtype=torch.float64)


VISIBLE = (law(0.1, 0.5, 0.2, 0.2), law(0.7, 0.05, 0.2, 0.05))
PAIRS = [
    VISIBLE,
    (law(0.1, 0.2, 0.7), law(0.6, 0.3, 0.1)),
    (law(0.25, 0.25, 0.5), law(0.25, 0.25, 0.5)),
    (law(0.5, 0.5, 0.0, 0.0), law(0.0, 0.0, 0.5, 0.5)),
    (law(0.5, 0.25, 0.25), law(0.0, 1.0, 0.0)),
    (law(0.0, 1.0, 0.0), law(0.5, 0.25, 0.25)),
    *((random_law(4, s, s % 2), random_law(4, s + 100, (s + 1) % 3)) for s in range(6)),
]


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_children_without_replacement_leave_the_targets_law(p, q, width):
    assert distance(level_law(p, q, width), p) < EXACT


@pytest.mark.parametrize(("p", "q"), PAIRS)
@pytest.mark.parametrize("candidates", [(0,), (1, 0), (2, 1), (0, 1, 2)])
def test_deterministic_children_leave_the_targets_law(p, q, candidates):
    def run(rng):
        tree = star(candidates)
        return first_token(tree, verify(tree, rows(*[p] * len(tree)), SAMPLED, rng))

    assert distance(law_of(run), p) < EXACT


def test_exhausted_draft_mass_continues_uniformly():
    """A fourth child beyond q's support must be drawn, and is judged, as uniform over the rest."""
    p, q = VISIBLE[0], law(0.5, 0.5, 0.0, 0.0)

    def run(rng):
        drawn = rng.draw_distinct(q, 4)
        while len(drawn) < 4:
            rest = torch.ones(4, dtype=torch.float64)
            rest[drawn] = 0
            drawn.append(rng.draw(rest))
        tree = star(drawn, {0: q})
        verdict = verify(tree, rows(*[p] * 5), SAMPLED, rng)
        assert len(verdict.path) > 1  # the cover property: with all tokens drawn, one is accepted
        return first_token(tree, verdict)

    assert distance(law_of(run), p) < EXACT


def drawn_twice(p, q, rng, once):
    """First token of a node with two draws from q with replacement; ``once`` merges equal ones."""
    drawn = [rng.draw(q), rng.draw(q)]
    tree = replace(star(dict.fromkeys(drawn) if once else drawn, {0: q}), replaced=True)
    return first_token(tree, verify(tree, rows(*[p] * len(tree)), SAMPLED, rng))


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_a_token_that_was_drawn_twice_is_tried_twice(p, q):
    assert distance(law_of(lambda rng: drawn_twice(p, q, rng, False)), p) < EXACT


def test_negative_control_merged_duplicates():
    """One attempt in place of two, without counting them."""
    p, q = VISIBLE
    assert distance(law_of(lambda rng: drawn_twice(p, q, rng, True)), p) > 1e-3


# Negative controls: rules from the literature's bugs, which these laws must reject.


def keeps_sibling_in_q(tree, logits, sampling, rng):
    """A rejected sibling stays in the proposal."""
    rest, offer = probabilities(logits[0], sampling), tree.q[0]
    for child in tree.children[0]:
        token = tree.tokens[child]
        if rng.accept(float(rest[token]), float(offer[token])):
            return Verdict((0, child), 0)
        rest = residual(rest, offer)
    return Verdict((0,), rng.draw(rest))


def tries_with_replacement(tree, logits, sampling, rng):
    """Draws without replacement are judged as if they had been replaced."""
    return verify(replace(tree, replaced=True), logits, sampling, rng)


def draws_bonus_from_p(tree, logits, sampling, rng):
    """After rejection the target's law is used instead of the residual."""
    wanted = probabilities(logits[0], sampling)
    child = tree.children[0][0]
    if rng.accept(float(wanted[tree.tokens[child]]), float(tree.q[0][tree.tokens[child]])):
        return Verdict((0, child), 0)
    return Verdict((0,), rng.draw(wanted))


def drops_unlikely_drafts(tree, logits, sampling, rng):
    """A sampled candidate is thrown away because its own draft probability is small."""
    likely = [c for c in tree.children[0] if float(tree.q[0][tree.tokens[c]]) >= 0.2]
    if not likely:
        return Verdict((0,), rng.draw(probabilities(logits[0], sampling)))
    return verify(tree, logits, sampling, rng)


def judges_top_k_by_ratio(tree, logits, sampling, rng):
    """Deterministic candidates are judged as if they had been drawn."""
    best = tree.q[0].topk(len(tree) - 1).indices.tolist()
    return verify(star(best, tree.q), logits, sampling, rng)


@pytest.mark.parametrize(
    ("rule", "width"),
    [
        (keeps_sibling_in_q, 2),
        (tries_with_replacement, 2),
        (draws_bonus_from_p, 1),
        (drops_unlikely_drafts, 1),
        (judges_top_k_by_ratio, 2),
    ],
)
def test_negative_controls_are_caught(rule, width):
    p, q = VISIBLE

    def run(rng):
        tree = star(rng.draw_distinct(q, width), {0: q})
        verdict = rule(tree, rows(*[p] * len(tree)), SAMPLED, rng)
        if len(verdict.path) == 1:
            return verdict.bonus
        best = q.topk(len(tree) - 1).indices.tolist()
        shown = star(best) if rule is judges_top_k_by_ratio else tree
        return first_token(shown, verdict)

    assert distance(law_of(run), p) > 1e-3


def test_negative_control_sorted_siblings():
    p, q = VISIBLE

    def run(rng):
        tree = star(sorted(rng.draw_distinct(q, 2), key=lambda t: -float(q[t])), {0: q})
        return first_token(tree, verify(tree, rows(*[p] * 3), SAMPLED, rng))

    assert distance(law_of(run), p) > 1e-3


# Greedy is the one-hot case.


@pytest.mark.parametrize("seed", range(20))
def test_greedy_is_the_one_hot_case_of_the_general_rule(seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 5, (12,), generator=generator).tolist()
    parents = [-1] + [int(torch.randint(0, n, (), generator=generator)) for n in range(1, 12)]
    taken, kept = set(), []
    for node, parent in enumerate(parents):  # siblings are distinct
        if (parent, tokens[node]) not in taken and (parent == -1 or parent in kept):
            taken.add((parent, tokens[node]))
            kept.append(node)
    place = {node: i for i, node in enumerate(kept)}
    tree = DraftTree(tuple(tokens[n] for n in kept), tuple(place.get(parents[n], -1) for n in kept))
    logits = torch.randn(len(tree), 5, generator=generator, dtype=torch.float64)
    greedy = verify(tree, logits, GREEDY, rng=None)
    one_hot = probabilities(logits, GREEDY).log()
    laws = law_of(lambda rng: verify(tree, one_hot, SAMPLED, rng))
    assert laws == {greedy: 1.0}


def test_greedy_judges_sampled_proposals_by_the_largest_logit():
    q = torch.tensor([0.2, 0.3, 0.5])
    tree = star([2, 1], {0: q})
    logits = torch.tensor([[0.0, 3.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    assert verify(tree, logits, GREEDY, rng=None) == Verdict((0, 2), 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_logits_that_are_not_finite_are_refused(bad, sampling):
    logits = torch.tensor([[0.0, bad, 1.0]])
    with pytest.raises(NumericalError, match="not finite"):
        verify(DraftTree((5,), (-1,)), logits, sampling, SeededRandom(1))


def test_without_follows_its_definition():
    q = VISIBLE[1]
    assert torch.allclose(without(q, [0]), torch.tensor([0, 1 / 6, 2 / 3, 1 / 6]).double())
    assert torch.allclose(without(torch.tensor([1.0, 0, 0]), [0]), torch.tensor([0, 0.5, 0.5]))


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, SamplingParams(0.7, top_k=3)])
def test_rows_of_numpy_are_judged_like_rows_of_torch(sampling):
    logits = torch.randn(4, 5, generator=torch.Generator().manual_seed(6))
    tree = DraftTree((0, 1, 2, int(logits[0].argmax())), (-1, 0, 1, 0))
    found = [
        verify(tree, given, sampling, SeededRandom(seed))
        for seed in range(9)
        for given in (logits, logits.numpy())
    ]
    assert found[::2] == found[1::2]
    bad = logits.clone()
    bad[0, 2] = float("nan")
    with pytest.raises(NumericalError):
        verify(tree, bad.numpy(), sampling, SeededRandom(1))
