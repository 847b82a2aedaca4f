"""Which tokens may follow is what walking each of them byte by byte says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.grammar.rules import Bytes, Choice, Grammar, Row, Text
from engine.grammar.states import DEAD, States
from engine.grammar.token_bytes import LONGEST, Spelling
from tests.engine.grammar.test_states import rules, texts

tokens = st.lists(st.text("abc", max_size=4).map(str.encode), min_size=1, max_size=20)


@given(rules, texts, tokens)
def test_law_a_token_is_allowed_where_its_bytes_lead_on(rule, before, spelled):
    states = States(Grammar((("root", rule),)))
    state = states.walk(states.start, before)
    wanted = [bool(token) and states.walk(state, token) != DEAD for token in spelled]
    assert Spelling(spelled).allowed(states, state).tolist() == wanted


def test_control_tokens_and_endless_ones_never_follow():
    states = States(Grammar((("root", Text(b" " * 200)),)))
    spelled = [b"", b" ", b" " * LONGEST, b" " * (LONGEST + 1)]
    found = Spelling(spelled).allowed(states, states.start)
    assert found.tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("rule", "lacking"),
    [
        (Text(b"ax"), "0x78"),
        (Bytes(((0x78, 0x7A),)), "0x78"),
        (Choice((Text(b"a"), Row((Text(b"a"), Text(b"x"))))), "0x78"),
        (Text("é".encode()), "0xC3"),
    ],
)
def test_a_format_that_cannot_be_spelled_is_refused(rule, lacking):
    grammar = Grammar((("root", rule),))
    with pytest.raises(InvalidRequest, match=lacking):
        Spelling([b"a", b"ab", b"b"]).check(grammar)
    Spelling([bytes([byte]) for byte in range(256)]).check(grammar)
