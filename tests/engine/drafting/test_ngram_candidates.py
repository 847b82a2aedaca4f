"""Continuations: what several matches predict together, at the first token and after it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafting.match_confidence import MatchConfidence
from engine.drafting.ngram_candidates import FINISHED, OWN, Continuations, Source

TEXTS = st.lists(
    st.tuples(
        st.integers(1, 30),
        st.sampled_from([OWN, FINISHED]),
        st.lists(st.integers(0, 3), min_size=1, max_size=8),
    ),
    min_size=1,
    max_size=8,
)
NOTHING = frozenset()


def sources(places):
    """Longest match first, as drafters sort them; each text stands behind the match alone."""
    found = [Source(length, origin, text, 0) for length, origin, text in places]
    return sorted(found, key=lambda source: (-source.length, source.origin))


def grown(places, most=8, stops=NOTHING, least=0.0):
    found = Continuations(9, sources(places), most, [MatchConfidence() for _ in range(2)])
    found.grow(stops, least)
    return found


def chances(found):
    """Probability of every path below the root."""
    paths = {0: ()}
    for node in range(1, len(found.tokens)):
        paths[node] = (*paths[found.parents[node]], found.tokens[node])
    return {paths[node]: found.scores[node] for node in range(1, len(found.tokens))}


def alone(length):
    """What nothing but a match of this length says, before anything was measured."""
    return (length + 0.5) / (length + 1.5)


def test_two_agreeing_matches_count_at_every_token():
    found = chances(grown([(5, OWN, [1, 2]), (3, FINISHED, [1, 2])], most=2))
    first = alone(5) + (1 - alone(5)) * alone(3)
    second = alone(6) + (1 - alone(6)) * alone(4)
    assert found == {(1,): pytest.approx(first), (1, 2): pytest.approx(first * second)}


def test_a_match_with_another_token_counts_on_its_own_path_only():
    found = chances(grown([(5, OWN, [1, 2]), (3, FINISHED, [3, 2])], most=2))
    rest = (1 - alone(5)) * alone(3)
    assert found[1, 2] == pytest.approx(alone(5) * alone(6))
    assert found[3, 2] == pytest.approx(rest * alone(4))


def test_equal_matches_are_frequencies_among_those_that_are_left():
    found = chances(grown([(4, FINISHED, [1, 2]), (4, FINISHED, [1, 3]), (4, FINISHED, [5])]))
    assert found[1,] == pytest.approx(alone(4) * 2 / 3)
    assert found[1, 2] == found[1, 3] == pytest.approx(found[1,] * alone(5) / 2)


def test_the_share_of_an_ended_text_is_not_given_to_others():
    found = chances(grown([(4, FINISHED, [1]), (4, FINISHED, [1, 2])]))
    assert found[1, 2] == pytest.approx(found[1,] * alone(5) / 2)


@given(TEXTS)
def test_children_have_together_no_more_chance_than_their_parent(places):
    found = grown(places)
    below = [0.0] * len(found.tokens)
    for node in range(1, len(found.tokens)):
        below[found.parents[node]] += found.scores[node]
        assert 0 < found.scores[node] <= found.scores[found.parents[node]]
    limits = zip(below, found.scores, strict=True)
    assert all(together <= score * (1 + 1e-12) for together, score in limits)


@given(TEXTS)
def test_every_path_comes_from_a_text_and_occurs_once(places):
    paths = chances(grown(places))
    assert len(paths) == len(grown(places).tokens) - 1
    said = {tuple(s.following(8)[:n]) for s in sources(places) for n in range(1, 9)}
    assert set(paths) == said


@given(TEXTS, st.floats(0.01, 0.9))
def test_what_is_less_likely_than_asked_is_left_out_and_nothing_else(places, least):
    whole = chances(grown(places))
    assert chances(grown(places, least=least)) == {p: c for p, c in whole.items() if c >= least}


@given(TEXTS)
def test_the_likeliest_next_token_is_known_without_growing(places):
    found = grown(places)
    first = [found.scores[n] for n in range(1, len(found.tokens)) if found.parents[n] == 0]
    assert found.likeliest == max(first)


@given(TEXTS)
def test_ranks_never_put_a_token_before_the_one_that_it_follows(places):
    found = grown(places)
    place = {node: at for at, node in enumerate([0, *found.ranked()])}
    assert len(place) == len(found.tokens)
    assert all(place[found.parents[node]] < place[node] for node in found.ranked())


@given(TEXTS, st.sampled_from([0, 1, 2, 3]))
def test_a_stop_token_ends_every_path(places, stop):
    paths = chances(grown(places, stops=frozenset({stop})))
    assert paths == {p: c for p, c in chances(grown(places)).items() if stop not in p}
