"""Grammars: what is refused, which texts states accept, and which tokens may follow."""

import pickle
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import Ambiguous, InvalidRequest
from engine.grammar.rules import (
    MOST_PARTS,
    MOST_REPEATS,
    Bytes,
    Choice,
    Grammar,
    Named,
    Repeat,
    Row,
    Text,
)
from engine.grammar.states import BUDGET, DEAD, States
from engine.grammar.token_bytes import LONGEST, Spelling

A, X, Y = Text(b"a"), Text(b"x"), Text(b"y")


def grammar_of(rule):
    grammar = Grammar((("root", rule),))
    grammar.check()
    return grammar


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ((("other", A),), "no rule 'root'"),
        ((("root", Named("x")),), "no rule 'x'"),
        ((("root", Choice(())),), "empty choice"),
        ((("root", Row((A, Named("root")))),), "'root' never ends"),
        ((("root", Choice((A, Named("b")))), ("b", Row((A, Named("b"))))), "'b' never ends"),
        ((("root", Choice((A, Row((Named("root"), A))))),), "'root' begins with itself"),
        ((("root", Choice((A, Row((Repeat(A), Named("root"), A))))),), "begins with itself"),
        ((("root", Choice((A, Named("b")))), ("b", Choice((A, Named("root"))))), "begins with"),
        ((("root", Repeat(A, 3, 2)),), "repeats 3 to 2"),
        ((("root", Repeat(A, 0, MOST_REPEATS + 1)),), "choose 0 to"),
        ((("root", Repeat(Row((A, Repeat(A, 5))), 0, 20_001)),), "choose 0 to"),
        ((("root", Repeat(Row((A, Repeat(A, 0, 400))), 0, 400)),), "160000 times in all"),
        ((("root", Row((A,) * MOST_PARTS)),), f"more than {MOST_PARTS} parts"),
    ],
)
def test_grammars_without_an_answer_are_refused(rules, said):
    with pytest.raises(InvalidRequest, match=said):
        Grammar(rules).check()


def test_grammars_are_pickled_and_compared_by_value():
    grammar = grammar_of(Choice((A, Row((A, Named("root"))))))
    again = pickle.loads(pickle.dumps(grammar))
    assert (again, hash(again)) == (grammar, hash(grammar))
    assert again != grammar_of(A)


# States accept exactly the texts of their grammar, and none that is alive is without an end.


def grown(children):
    return st.one_of(
        st.builds(Row, st.lists(children, max_size=3).map(tuple)),
        st.builds(Choice, st.lists(children, min_size=1, max_size=3).map(tuple)),
        st.builds(Repeat, children, st.integers(0, 2), st.none()),
        st.builds(lambda r, n, m: Repeat(r, n, n + m), children, st.integers(0, 2), st.integers(0, 2)),
    )  # fmt: skip


leaves = st.one_of(
    st.builds(Text, st.text("ab", max_size=2).map(str.encode)),
    st.sampled_from([Bytes(((97, 97),)), Bytes(((97, 98),)), Bytes(((97, 97), (98, 98)))]),
)
rules = st.recursive(leaves, grown, max_leaves=8)
texts = st.text("ab", max_size=7).map(str.encode)


def as_regex(rule):
    match rule:
        case Text(value):
            return value.decode()
        case Bytes(ranges):
            return "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges) + "]"
        case Row(parts):
            return "".join(f"(?:{as_regex(part)})" for part in parts)
        case Choice(options):
            return "|".join(f"(?:{as_regex(option)})" for option in options)
        case Repeat(inner, least, most):
            return f"(?:{as_regex(inner)}){{{least},{'' if most is None else most}}}"


def accepted(states, text):
    state = states.walk(states.start, text)
    return state != DEAD and states.accepts(state)


@given(rules, st.lists(texts, max_size=6))
def test_law_a_regular_grammar_accepts_what_the_regular_expression_does(rule, asked):
    states, expression = States(grammar_of(rule)), re.compile(as_regex(rule))
    for text in asked:
        assert accepted(states, text) == bool(expression.fullmatch(text.decode()))


@given(rules, texts, texts)
def test_law_a_walk_in_parts_comes_to_the_same_state(rule, first, second):
    states = States(grammar_of(rule))
    whole = states.walk(states.start, first + second)
    assert states.walk(states.walk(states.start, first), second) == whole


@given(rules, texts)
def test_law_every_living_state_has_a_way_to_an_end(rule, text):
    states = States(grammar_of(rule))
    state = states.walk(states.start, text)
    if state == DEAD:
        return
    met, ahead, ends = {state}, [state], False
    while ahead and not ends:
        here = ahead.pop()
        ends = states.accepts(here)
        nexts = set(np.unique(states.steps([here])[here]).tolist()) - {DEAD} - met
        met |= nexts
        ahead += nexts
    assert ends


NESTED = grammar_of(Choice((X, Row((Text(b"("), Named("root"), Text(b")"))))))


@pytest.mark.parametrize("depth", [0, 1, 5, 100])
def test_a_rule_that_contains_itself_counts_its_brackets(depth):
    states = States(NESTED)
    assert accepted(states, b"(" * depth + b"x" + b")" * depth)
    assert not accepted(states, b"(" * depth + b"x" + b")" * (depth + 1))
    assert states.walk(states.start, b"(" * depth + b"x" + b")" * (depth + 1)) == DEAD
    if depth:
        assert not accepted(states, b"(" * depth + b"x" + b")" * (depth - 1))


def test_the_table_grows_with_the_states():
    states = States(grammar_of(Text(b"a" * 500)))
    assert accepted(states, b"a" * 500)
    assert not accepted(states, b"a" * 499)
    assert len(states) > 500
    assert states.walk(states.start, b"a" * 501) == DEAD


ROOT = Named("root")
LETTER = Bytes(((0x61, 0x7A),))
THRICE = Repeat(Repeat(Repeat(LETTER, 0, 50), 0, 50), 0, 40)
TWO_ENDS = Choice((Row((A, ROOT, X)), Row((A, ROOT, Y)), Text(b"")))
REMEMBERED = Row((Repeat(LETTER), A, Repeat(LETTER, 18, 18)))


@pytest.mark.parametrize(
    ("rule", "letters"), [(THRICE, b"abc"), (TWO_ENDS, b"a"), (REMEMBERED, b"abc")]
)
def test_an_ambiguous_grammar_fails_soon(rule, letters):
    """Regression: one such request blocked the engine for minutes."""
    states, source = States(grammar_of(rule)), random.Random(0)
    words = [bytes(source.choices(letters, k=24)) for _ in range(20_000)]
    with pytest.raises(Ambiguous, match="too ambiguous"):
        masks_along(states, Spelling([b"a", *words]), source.choices(letters, k=300))
    assert states.exhausted
    assert len(states) < BUDGET / 32


def masks_along(states, spelling, text):
    state = states.start
    for byte in text:
        spelling.allowed(states, state)
        state = states.walk(state, bytes([byte]))


def test_an_answer_may_need_as_much_as_it_has_tokens(monkeypatch):
    with monkeypatch.context() as little:
        little.setattr("engine.grammar.states.BUDGET", 60)  # the start alone takes half of it
        states = States(grammar_of(Repeat(A)))
    with pytest.raises(Ambiguous):
        states.walk(states.start, b"a")
    states.grant(1)
    assert accepted(states, b"a" * 3)
    assert not states.exhausted


# Tokens may follow where walking their bytes one by one leads on.

tokens = st.lists(st.text("abc", max_size=4).map(str.encode), min_size=1, max_size=20)


@given(rules, texts, tokens)
def test_law_a_token_is_allowed_where_its_bytes_lead_on(rule, before, spelled):
    states = States(grammar_of(rule))
    state = states.walk(states.start, before)
    wanted = [bool(token) and states.walk(state, token) != DEAD for token in spelled]
    assert Spelling(spelled).allowed(states, state).tolist() == wanted


def test_control_tokens_and_endless_ones_never_follow():
    states = States(grammar_of(Text(b" " * 200)))
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
    grammar = grammar_of(rule)
    with pytest.raises(InvalidRequest, match=lacking):
        Spelling([b"a", b"ab", b"b"]).check(grammar)
    Spelling([bytes([byte]) for byte in range(256)]).check(grammar)
