"""A vocabulary: which tokens a grammar allows, and how a text is spelled with them."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InvalidRequest
from engine.grammar.grammar import CONTROL_BYTE, Grammar
from engine.grammar.vocabulary import LONGEST, Vocabulary, trouble_with

MARK = CONTROL_BYTE + b"<|end|>"


def allowed(words, grammar, before=()):
    """Whether each word may follow, and whether the text may end."""
    state = Vocabulary(words).matcher(grammar)
    assert state.try_consume_tokens(list(before)) == len(before)
    bits = np.unpackbits(np.frombuffer(state.compute_bitmask(), np.uint8), bitorder="little")
    return bits[: len(words)].astype(bool).tolist(), bool(bits[len(words)])


def test_grammars_are_pickled_and_compared_by_value():
    grammar = Grammar('start: "a"', ("x",))
    again = pickle.loads(pickle.dumps(grammar))
    assert (again, hash(again)) == (grammar, hash(grammar))
    assert again != Grammar('start: "a"')


@pytest.mark.parametrize(
    "source", ["", "start: other", "start: /(/", 'start: %json {"type": "text"}', "start: <|end|>"]
)
def test_what_is_no_grammar_is_refused_in_one_sentence(source):
    with pytest.raises(InvalidRequest) as caught:
        Vocabulary([b"a"]).matcher(Grammar(source))
    assert "\n" not in str(caught.value)
    assert trouble_with(Grammar(source))


expressions = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "ab", "ba?"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]})(?:{two[1]})"),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        inner.map(lambda one: f"(?:{one})*"),
        inner.map(lambda one: f"(?:{one}){{1,3}}"),
    ),
    max_leaves=6,
)
WORDS = [b"", b"a", b"b", b"ab", b"bb", b"aba", MARK, b"c"]


def texts_of(expression):
    """All its texts of up to six letters."""
    letters = [
        "".join("ab"[n >> at & 1] for at in range(size))
        for size in range(7)
        for n in range(1 << size)
    ]
    return {text for text in letters if re.fullmatch(expression, text)}


@settings(deadline=None)
@given(expressions, st.lists(st.sampled_from([1, 2, 3, 4, 5]), max_size=1))
def test_law_a_token_is_allowed_where_its_bytes_lead_on(expression, before):
    fitting = texts_of(expression)
    begun = "".join(WORDS[token].decode() for token in before)
    if not any(text.startswith(begun) for text in fitting):
        return
    found, ends = allowed(WORDS, Grammar(f"start: /{expression}/"), before)
    for word, may in zip(WORDS, found, strict=True):
        leads = any(text.startswith(begun + word.decode(errors="replace")) for text in fitting)
        assert may == (bool(word) and word not in (MARK, b"c") and leads), word
    assert ends == (begun in fitting)


def test_control_tokens_and_endless_ones_never_follow():
    words = [b"", b" ", b" " * LONGEST, b" " * (LONGEST + 1), MARK, b"\xff"]
    found, ends = allowed(words, Grammar("start: / {200}/"))
    assert (found, ends) == ([False, True, True, False, False, False], False)


def test_control_tokens_follow_where_they_are_named_and_nowhere_else():
    words = [b"a", MARK, b"<|end|>", b"<"]
    grammar = Grammar('start: "a" <|end|> "a"')
    assert allowed(words, grammar)[0] == [True, False, False, False]
    assert allowed(words, grammar, [0])[0] == [False, True, False, False]
    assert allowed(words, grammar, [0, 1])[0] == [True, False, False, False]
    assert trouble_with(grammar, ["<|end|>"]) == ""


def test_bytes_and_marks_are_read_one_by_one():
    words = Vocabulary([b"ab", MARK, "é".encode()])
    state = words.byte_matcher(Grammar('start: "ab" <|end|> "é"'))
    path = words.in_bytes([0, 1, 2])
    assert len(path) == 5
    assert state.try_consume_tokens(path) == 5
    assert state.is_accepting()


def test_a_text_is_spelled_after_what_was_written():
    words = {" a": 1, "b": 2, "a": 3, " ": 4}
    tokens = [b"", b" a", b"b", b"a", b" "]

    def encode(text):
        found, at = [], 0
        while at < len(text):
            word = next(w for w in sorted(words, key=len, reverse=True) if text.startswith(w, at))
            found.append(words[word])
            at += len(word)
        return found

    vocabulary = Vocabulary(tokens, encode)
    assert vocabulary.spell(b"b", b" ab") == (1, 2)
    assert vocabulary.spell(b" ", b"ab") == (3, 2)
    assert vocabulary.spell(b"", b"") == ()
    assert Vocabulary(tokens).spell(b"", b"ab") == ()
