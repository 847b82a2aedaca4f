"""What requests tell of themselves."""

from hypothesis import given
from hypothesis import strategies as st

from engine.request import tokens_per_pass


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1), st.booleans())
def test_law_tokens_per_pass_are_all_that_passes_gave_and_what_ended_the_answer(rounds, drafted):
    """Each pass accepts some of what was drafted; the end may be drafted, too, or be the pass's own."""
    accepted = [min(pair) for pair in rounds]
    said = sum(accepted) + len(rounds)
    behind_the_end = int(drafted and accepted[-1] > 0)
    emitted = said - 1 - behind_the_end
    assert tokens_per_pass(len(rounds), sum(accepted), emitted) == (emitted + 1) / len(rounds)
    assert tokens_per_pass(len(rounds), sum(accepted), said) == said / len(rounds)
    assert tokens_per_pass(len(rounds), 0, len(rounds) - 1) == 1
