"""Suffix index against its definition, searched by brute force."""

from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.suffix_index import SuffixIndex
from engine.drafting.tuning import TUNING

GRAMS, NEWEST = TUNING.grams, TUNING.newest
TEXT = st.lists(st.integers(0, 2), max_size=80)
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=30), max_size=6)


def common(text, end, tail):
    """Tokens before ``text[end]`` that equal the end of ``tail``."""
    most = min(TUNING.longest_match, end, len(tail))
    return next((n for n in range(most) if text[end - 1 - n] != tail[-1 - n]), most)


def places(texts, tail):
    """(length, text, end) by definition: longer gram first, then newest text and place first."""
    found = []
    for size in GRAMS:
        behind = [
            (common(text, end, tail), number, end)
            for number, text in reversed(list(enumerate(texts)))
            for end in range(len(text) - 1, 0, -1)
            if common(text, end, tail) >= size
        ]
        found += [place for place in behind[:NEWEST] if place not in found]
    return found[:NEWEST]


def indexed(text):
    index = SuffixIndex()
    index.extend(text)
    return index


@given(TEXT)
def test_matches_of_a_text_with_itself_are_the_definition(text):
    found = indexed(text).matches(text)
    assert [(m.length, 0, m.end) for m in found] == places([text], text)


@given(TEXT)
def test_the_longest_match_is_found_unless_newer_places_hide_it(text):
    found = max((m.length for m in indexed(text).matches(text)), default=0)
    lengths = [common(text, end, text) for end in range(1, len(text))]
    longest = max(lengths, default=0)
    size = next((size for size in GRAMS if size <= longest), GRAMS[-1])
    hidden = sum(length >= size for length in lengths) > NEWEST
    assert found == longest or (hidden and found >= size)


@given(TEXT, st.integers(0, 80))
def test_feeding_in_parts_changes_nothing(text, cut):
    index = indexed(text[:cut])
    index.extend(text[cut:])
    assert index.matches(text) == indexed(text).matches(text)


@given(TEXTS, TEXT)
def test_matches_in_several_texts_never_cross_from_one_to_the_next(texts, tail):
    index, kept = SuffixIndex(), []
    for text in texts:
        index.add(text)
        if not any(old[: len(text)] == text for old in kept if len(old) > len(text)):
            kept = [*(old for old in kept if text[: len(old)] != old), text]
    assert len(index) == sum(len(text) for text in kept)
    found = index.matches(tail)
    assert [(m.length, m.text, m.end) for m in found] == [
        (length, kept[number], end) for length, number, end in places(kept, tail)
    ]


@given(TEXTS, st.integers(0, 40))
def test_memory_is_bounded_and_the_newest_texts_stay(texts, capacity):
    index = SuffixIndex(capacity)
    for text in texts:
        index.add(text)
        assert len(index) <= capacity
        kept = text[max(0, len(text) - capacity) :]
        if len(kept) > 1:  # what follows its first tokens is found again
            assert any(match.text[: len(kept)] == kept for match in index.matches(kept[:-1]))


def test_a_dropped_text_is_removed_whole():
    index = SuffixIndex(8)
    index.add([1, 2, 3, 4])
    index.add([5, 6, 7])
    assert [(m.length, m.end) for m in index.matches([9, 1, 2])] == [(2, 2)]
    index.add([8, 9])
    assert index.matches([9, 1, 2]) == []
    assert [m.text for m in index.matches([5, 6])] == [[5, 6, 7]]
    assert len(index) == 5


def test_a_rare_long_match_survives_many_newer_short_ones():
    """The short gram's list is full of newer places; the long one still leads to the first."""
    start = [*range(10, 22), 7]
    text = start + [token for i in range(30) for token in (100 + i, 7)]
    found = indexed(text).matches(start)
    assert (found[0].length, found[0].end) == (13, 13)
    assert len(found) == NEWEST


def test_equal_hashes_are_distinguished():
    """hash(-1) == hash(-2) in CPython; so are the hashes of tuples of them."""
    assert hash((-1,)) == hash((-2,))
    assert indexed([-1, 5, -2, 6]).matches([-1])[0].end == 1
    assert len(indexed([-1, 5, -2, 6]).matches([-1])) == 1
