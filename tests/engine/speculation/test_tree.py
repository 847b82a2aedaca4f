"""DraftTree: malformed trees are refused, ancestors are what parents say. Common prefixes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.speculation.common_prefix import common_prefix
from engine.speculation.tree import DraftTree, ancestor_bits, bit_rows, chain


@st.composite
def parent_lists(draw, largest=24):
    count = draw(st.integers(1, largest))
    return [-1] + [draw(st.integers(0, node - 1)) for node in range(1, count)]


def climb(parents, node):
    seen = set()
    while node >= 0:
        seen.add(node)
        node = parents[node]
    return seen


@given(parent_lists())
def test_a_node_sees_itself_and_its_ancestors(parents):
    seen = bit_rows(ancestor_bits(parents), len(parents))
    for node in range(len(parents)):
        assert set(np.flatnonzero(seen[node])) == climb(parents, node)


@given(parent_lists(), st.integers(0, 23))
def test_growing_in_two_parts_equals_growing_at_once(parents, cut):
    cut = min(cut, len(parents))
    first = ancestor_bits(parents[:cut])
    assert ancestor_bits(parents[cut:], first) == ancestor_bits(parents)[cut:]


@given(parent_lists())
def test_depth_and_children_agree_with_parents(parents):
    tree = DraftTree(tuple(range(len(parents))), tuple(parents))
    assert list(tree.depth) == [len(climb(parents, n)) - 1 for n in range(len(parents))]
    assert sorted(c for cs in tree.children for c in cs) == list(range(1, len(parents)))
    assert all(parents[c] == node for node, cs in enumerate(tree.children) for c in cs)


@pytest.mark.parametrize(
    ("tokens", "parents"),
    [((), ()), ((1,), (0,)), ((1, 2), (-1,)), ((1, 2), (-1, 1)), ((1, 2, 3), (-1, 2, 0)), ((1, 2), (-1, -1))],
)  # fmt: skip
def test_malformed_trees_are_refused(tokens, parents):
    with pytest.raises(ValueError, match="parent"):
        DraftTree(tokens, parents)


def test_a_chain_is_a_tree_without_branches():
    assert chain([7, 8, 9]) == DraftTree((7, 8, 9), (-1, 0, 1))
    assert chain([7, 8, 9]).is_chain
    assert not DraftTree((1, 2, 3), (-1, 0, 0)).is_chain


IDS = st.lists(st.integers(0, 1), max_size=6)


@given(begin=IDS, one=IDS, other=IDS)
def test_a_common_prefix_is_all_that_two_sequences_begin_with(begin, one, other):
    left, right = [*begin, *one], (*begin, *other)
    assert common_prefix(left, list(right)) == common_prefix(left, right)
    found = common_prefix(left, right)
    assert found >= len(begin)
    assert found == common_prefix(right, left)
    assert left[:found] == list(right[:found])
    assert found in (len(left), len(right)) or left[found] != right[found]
    assert common_prefix("drafted", "draughts") == 3  # of texts too
