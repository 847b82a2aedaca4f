"""Optimal tree shapes: the paper's recursion against brute force and published vectors."""

import heapq
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.tree_shape import OptimalTree, uniform
from engine.speculation.tree import children_of, depths_of, levels_of

SMALL = (0.6, 0.2, 0.1, 0.05)

# The acceptance by rank that the authors ship (68M draft, 7B target): 11 leading entries, and the
# rest of the published mass of .9265 spread over the remaining ranks.
HEAD = (0.6342, 0.1079, 0.0570, 0.0225, 0.0195, 0.0150, 0.0045, 0.0030, 0.0120, 0.0045, 0.0075)
SHIPPED = HEAD + ((0.9265 - sum(HEAD)) / 52,) * 52
ROUNDED = 1.5e-4  # the vector and the results were published with four digits

ranks = st.lists(st.integers(0, 20), min_size=1, max_size=4).map(lambda ns: [n / 20 for n in ns])


def worth(parents, acceptance):
    """F by its definition: the sum over nodes of the product of P along the path."""
    values, children = [1.0], children_of(parents)
    for node, parent in enumerate(parents[1:], 1):
        values.append(values[parent] * acceptance[children[parent].index(node)])
    return sum(values)


def brute(acceptance, nodes, depth):
    """G(n, d) by trying every way to share the nodes out."""

    @cache
    def best(count, below):
        if count == 1:
            return 1.0
        return -np.inf if below == 0 else 1.0 + split(count - 1, 0, below)

    @cache
    def split(left, rank, below):
        if left == 0:
            return 0.0
        if rank == len(acceptance):
            return -np.inf
        found = -np.inf
        for share in range(1, left + 1):
            under, rest = best(share, below - 1), split(left - share, rank + 1, below)
            if min(under, rest) > -np.inf:
                found = max(found, acceptance[rank] * under + rest)
        return found

    return best(nodes, depth)


@given(ranks, st.integers(1, 9), st.integers(0, 5))
def test_the_recursion_finds_the_best_tree(acceptance, nodes, depth):
    optimum = OptimalTree(acceptance, nodes, depth)
    for count in range(1, nodes + 1):
        for below in range(depth + 1):
            wanted = brute(tuple(acceptance), count, below)
            assert optimum.expected(count, below) == pytest.approx(wanted, abs=1e-12)


@given(ranks, st.integers(1, 40), st.one_of(st.none(), st.integers(1, 6)))
def test_a_shape_is_what_its_number_says(acceptance, nodes, depth):
    optimum = OptimalTree(acceptance, nodes, depth)
    count = optimum.largest(nodes, depth)
    parents = optimum.shape(count, depth)
    assert len(parents) == count
    assert depth is None or max(depths_of(parents)) <= depth
    assert max(map(len, children_of(parents))) <= len(acceptance)
    expected = optimum.expected(count, depth)
    assert worth(parents, acceptance) == pytest.approx(expected, abs=1e-12)


@given(ranks, st.integers(1, 40), st.one_of(st.none(), st.integers(1, 6)))
def test_parents_come_before_children_level_by_level(acceptance, nodes, depth):
    optimum = OptimalTree(acceptance, nodes, depth)
    parents = optimum.shape(optimum.largest(nodes, depth), depth)
    levels, children = levels_of(depths_of(parents)), children_of(parents)
    assert all(first <= second for first, second in pairwise(parents))
    assert [node for level in levels for node in level] == list(range(len(parents)))
    assert all(list(c) == list(range(c[0], c[0] + len(c))) for c in children if c)


@given(ranks.map(lambda p: sorted(p, reverse=True)), st.integers(1, 60))
def test_with_falling_ranks_the_best_tree_is_the_likeliest_paths(acceptance, nodes):
    """An independent way to G where ranks fall: take the n paths of the largest product."""
    total, heap = 0.0, [(-1.0, 0, ())]
    order = 0
    for _ in range(nodes):
        value, _, _ = heapq.heappop(heap)
        total -= value
        for p in acceptance:
            order += 1
            heapq.heappush(heap, (value * p, order, ()))
    assert OptimalTree(acceptance, nodes).expected(nodes) == pytest.approx(total, abs=1e-9)


def test_published_vector_without_a_depth_limit():
    optimum = OptimalTree(SMALL, 16)
    found = [optimum.expected(n) for n in (1, 2, 3, 4, 5, 6, 8, 12, 16)]
    wanted = [1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.7456, 3.0674, 3.3094]
    assert found == pytest.approx(wanted, abs=1e-4)


def test_published_shape_of_eight_nodes():
    parents = OptimalTree(SMALL, 8).shape(8)
    below = [1] * 8
    for node in range(7, 0, -1):
        below[parents[node]] += below[node]
    assert [below[child] for child in children_of(parents)[0]] == [5, 2]


@pytest.mark.parametrize(("nodes", "depth", "wanted"), [
    (2, None, 1.6342), (4, None, 2.2914), (8, None, 2.7322), (16, None, 3.1303),
    (32, None, 3.5007), (64, None, 3.8523), (64, 1, 1.9265), (64, 5, 3.7017),
    (64, 6, 3.7880), (64, 7, 3.8240), (64, 8, 3.8431), (64, 9, 3.8523),
])  # fmt: skip
def test_published_results_of_the_shipped_vector(nodes, depth, wanted):
    found = OptimalTree(SHIPPED, 64, 9).expected(nodes, depth)
    assert found == pytest.approx(wanted, abs=ROUNDED)


@pytest.mark.parametrize(("depth", "wanted"), [(3, 3.2230), (4, 3.5261)])
def test_published_results_of_shallow_trees(depth, wanted):
    """They are wide and use ranks beyond the eleven that are known here."""
    assert OptimalTree(SHIPPED, 64, 9).expected(64, depth) == pytest.approx(wanted, rel=0.01)


def test_what_does_not_fit_is_said():
    optimum = OptimalTree((0.5, 0.2), 20, 2)
    assert optimum.largest(20, 2) == 7
    assert optimum.expected(8, 2) == -np.inf
    with pytest.raises(ValueError, match="8 nodes"):
        optimum.shape(8, 2)
    with pytest.raises(ValueError, match="root"):
        OptimalTree((0.5,), 0)


@pytest.mark.parametrize(
    ("arity", "nodes", "depth", "parents"),
    [
        (2, 8, 9, (-1, 0, 0, 1, 1, 2, 2, 3)),
        (3, 5, 9, (-1, 0, 0, 0, 1)),
        (2, 99, 2, (-1, 0, 0, 1, 1, 2, 2)),
        (1, 4, 9, (-1, 0, 1, 2)),
        (2, 1, 5, (-1,)),
        (2, 5, 0, (-1,)),
    ],
)
def test_uniform_trees(arity, nodes, depth, parents):
    assert uniform(arity, nodes, depth) == parents
