"""Verification kernels give the verdicts of engine.speculation.verify on the same random numbers."""

from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import NumericalError
from engine.kernels.philox import PhiloxRandom
from engine.request import SamplingParams
from engine.speculation.tree import DraftTree, chain, single
from engine.speculation.verify import verify

GREEDY, SAMPLED = SamplingParams(), SamplingParams(temperature=0.8)
FILTERED = SamplingParams(temperature=1.1, top_k=5, top_p=0.9)


def verify_both(tree, logits, sampling, seed, calls=0):
    """(verdict, random calls) of the reference, and of the kernels."""
    from engine.kernels.verify import verify_all

    plain, fast = PhiloxRandom(seed), PhiloxRandom(seed)
    plain.calls = fast.calls = calls
    expected = verify(tree, logits.cpu(), sampling, plain)
    found = verify_all([tree], [logits], [sampling], [fast])[0]
    return (expected, plain.calls), (found, fast.calls)


def chosen_tree(seed, nodes, vocab):
    """A random tree whose siblings have distinct tokens."""
    random = torch.Generator().manual_seed(seed)
    tokens, parents = [0], [-1]
    for node in range(1, nodes):
        parent = int(torch.randint(node, (1,), generator=random))
        used = {tokens[n] for n in range(1, node) if parents[n] == parent}
        free = [t for t in range(vocab) if t not in used]
        if free:
            parents.append(parent)
            tokens.append(free[int(torch.randint(len(free), (1,), generator=random))])
        else:
            parents.append(node - 1)
            tokens.append(0)
    return DraftTree(tuple(tokens), tuple(parents))


def drawn_tree(seed, widths, vocab, closeness, replaced=False):
    """Levels drawn from laws of their own, and logits that are ``closeness`` to these laws."""
    random = torch.Generator().manual_seed(seed)
    chance = PhiloxRandom(seed + 1000)
    tokens, parents, q, level = [0], [-1], {}, [0]
    for width in widths:
        fresh = []
        for node in level:
            q[node] = torch.softmax(2 * torch.randn(vocab, generator=random), -1)
            if seed % 3 == 0:  # laws that run out: the uniform switch
                q[node][torch.randperm(vocab, generator=random)[: vocab - 2]] = 0
                q[node] /= q[node].sum()
            drawn = [chance.draw(q[node]) for _ in range(width)] if replaced else None
            for token in drawn or fill(chance.draw_distinct(q[node], width), width, vocab):
                fresh.append(len(tokens))
                tokens.append(token)
                parents.append(node)
        level = fresh
    logits = torch.randn(len(tokens), vocab, generator=random)
    for node, law in q.items():
        near = law.clamp(min=1e-6).log()
        logits[node] = closeness * near + (1 - closeness) * logits[node]
    return DraftTree(tuple(tokens), tuple(parents), q, replaced), logits


def fill(drawn, width, vocab):
    """Where the mass ran out the rest is drawn uniformly from what is left; here the first ones."""
    return drawn + [t for t in range(vocab) if t not in drawn][: width - len(drawn)]


def same(device, tree, logits, sampling, seed, calls=0):
    expected, found = verify_both(tree, logits.to(device), sampling, seed, calls)
    assert found == expected
    return found[0]


@settings(max_examples=10)
@given(
    seed=st.integers(0, 2**40),
    nodes=st.integers(1, 24),
    vocab=st.sampled_from([3, 16, 37]),
    sampling=st.sampled_from([GREEDY, SAMPLED, FILTERED]),
    calls=st.integers(0, 2**31 - 2**10),
)
def test_chosen_candidates(device, seed, nodes, vocab, sampling, calls):
    tree = chosen_tree(seed, nodes, vocab)
    logits = 2 * torch.randn(len(tree), vocab, generator=torch.Generator().manual_seed(seed))
    same(device, tree, logits, sampling, seed, calls)


WIDTHS = [(2,), (3, 2), (4,), (2, 2, 2), (5, 1), *((1,) * length for length in range(1, 8))]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    widths=st.sampled_from(WIDTHS),
    vocab=st.sampled_from([6, 19]),
    closeness=st.sampled_from([0.0, 0.3, 0.5, 0.8, 0.95]),
    how=st.tuples(st.booleans(), st.sampled_from([SAMPLED, FILTERED])),
)
def test_drawn_trees_and_chains(device, seed, widths, vocab, closeness, how):
    sampling = how[1]
    replaced = how[0] and widths[0] > 1
    tree, logits = drawn_tree(seed, widths, vocab, closeness, replaced)
    same(device, tree, logits, sampling, seed)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, FILTERED])
@pytest.mark.parametrize("seed", range(6))
def test_tokens_that_a_format_forbids_are_never_kept(device, seed, sampling):
    """Minus infinity in a row, all of it but one token here and there."""
    trees = [(chosen_tree(seed, 9, 6), None), drawn_tree(seed, (3, 1), 6, 0.5)]
    trees += [drawn_tree(seed, (1, 1, 1), 6, 0.8)] if sampling is not GREEDY else []
    for tree, drawn in trees:
        random = torch.Generator().manual_seed(seed)
        logits = torch.randn(len(tree), 6, generator=random) if drawn is None else drawn
        kept = torch.randint(6, (len(tree), 1), generator=random)
        forbidden = torch.rand(len(tree), 6, generator=random) < 0.2 + 0.8 * (seed % 3 == 0)
        logits = logits.masked_fill(forbidden.scatter(1, kept, value=False), -torch.inf)
        path, bonus, _ = same(device, tree, logits, sampling, seed)
        said = [*(tree.tokens[node] for node in path[1:]), bonus]
        assert all(logits[node, token] > -torch.inf for node, token in zip(path, said, strict=True))


@pytest.mark.parametrize("widths", [(3, 1), (1, 1, 1)])
def test_every_outcome_of_a_small_sampled_tree_occurs_and_agrees(device, widths):
    """Two seeds of every outcome, found by the reference: the interpreter is slow."""
    tree, logits = drawn_tree(3, widths, 6, 0.0) if widths[0] > 1 else drawn_tree(6, widths, 6, 0.2)
    seeds = defaultdict(list)
    for seed in range(40):
        seeds[verify(tree, logits, SAMPLED, PhiloxRandom(seed)).path].append(seed)
    for path, found in seeds.items():
        assert {same(device, tree, logits, SAMPLED, seed).path for seed in found[:2]} == {path}
    assert {len(path) for path in seeds} == set(range(1, len(widths) + 2))
    assert len({path[1] for path in seeds if len(path) > 1}) == widths[0]


def test_rows_wider_than_a_program(device, monkeypatch):
    from engine.kernels import verify as host

    monkeypatch.setattr(host, "_WIDEST", 16)
    logits = torch.randn(8, 53, generator=torch.Generator().manual_seed(0))
    for sampling in (SAMPLED, GREEDY):
        same(device, chosen_tree(0, 8, 53), logits, sampling, 0)
    for seed, widths, closeness in ((0, (3, 2), 0.8), (1, (3, 2), 0.8), (1, (1, 1, 1), 0.9)):
        tree, scores = drawn_tree(seed, widths, 53, closeness)
        same(device, tree, scores, SAMPLED, seed)


def test_of_equal_logits_the_first_wins(device):
    assert same(device, chain([0, 2, 4]), torch.ones(3, 9), GREEDY, 0).bonus == 0


def test_a_seeded_walk_draws_what_plain_steps_draw(device):
    from engine.kernels.verify import verify_all

    laws = 2 * torch.randn(7, 7, generator=torch.Generator().manual_seed(4))
    plain, ids = PhiloxRandom(5), [0]
    while len(ids) < 12:
        rows = laws[[ids[-1]]].to(device)
        ids.append(verify_all([single(ids[-1])], [rows], [SAMPLED], [plain])[0].bonus)
    drafted, found = PhiloxRandom(5), [0]
    while len(found) < 12:
        tree = chain([found[-1], *ids[len(found) : len(found) + 3], 6])
        verdict = verify_all([tree], [laws[list(tree.tokens)].to(device)], [SAMPLED], [drafted])[0]
        found += [*(tree.tokens[n] for n in verdict.path[1:]), verdict.bonus]
    assert found[:12] == ids[:12]


def test_several_requests_in_one_round(device):
    from engine.kernels.verify import verify_all

    cases = []
    for seed, sampling in enumerate([GREEDY, SAMPLED, FILTERED, SAMPLED]):
        tree, logits = (
            drawn_tree(seed, (2, 1), 8, 0.7) if seed % 2 else (single(1), torch.randn(1, 8))
        )
        cases.append((tree, logits, sampling))
    expected = [verify(*case, PhiloxRandom(9 + i)) for i, case in enumerate(cases)]
    trees, logits, samplings = zip(*cases, strict=True)
    chances = [PhiloxRandom(9 + i) for i in range(len(cases))]
    assert verify_all(trees, [x.to(device) for x in logits], samplings, chances) == expected


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter computes with NumPy
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_logits_that_are_not_finite_are_refused(device, sampling, value):
    from engine.kernels.verify import verify_all

    logits = torch.full((1, 9), value, device=device)
    sound = torch.arange(9.0, device=device)[None]
    rows, chances = [sound, logits, sound], [PhiloxRandom(seed) for seed in range(3)]
    found = verify_all([single(0)] * 3, rows, [sampling] * 3, chances)
    assert isinstance(found[1], NumericalError)
    assert "not finite" in str(found[1])
    assert [verdict.path for verdict in (found[0], found[2])] == [(0,), (0,)]
