"""A matcher holds one answer to its grammar; the laws over whole answers are in tests/laws."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLParserLimits

from engine.errors import InvalidRequest, Stuck
from engine.grammar.grammar import Grammar
from engine.grammar.vocabulary import Vocabulary
from engine.request import FinishReason, GenerationRequest
from engine.speculation.grammar_mask import KEPT, Compiled, GrammarCache, GrammarMatcher
from engine.speculation.tree import DraftTree, single
from tests.engine.tiny import Words, engine_over, run_all, tiny_target

STOP = 0
WORDS = (b"", b"a", b"b", b"c", b"ab", b"abc", b"x")
ABC = Grammar('start: "abc" | "ax"')
STOPS = frozenset({STOP})


def matcher(grammar=ABC, words=WORDS):
    return GrammarMatcher(Compiled(grammar, Vocabulary(words)), STOPS, 1)


def allowed(row):
    return [token for token, value in enumerate(row.tolist()) if value > -np.inf]


def test_every_node_is_masked_along_its_own_path():
    tree = DraftTree((9, 1, 2, 3, 4, 6), (-1, 0, 1, 2, 0, 0))  # a, then b, then c; ab; x
    rows = matcher().mask(tree, torch.zeros(6, 7), [9], greedy=False)
    assert [allowed(row) for row in rows] == [
        [1, 4, 5], [2, 6], [3], [STOP], [3], list(range(7)),  # an impossible path is not masked
    ]  # fmt: skip


def test_greedy_rows_with_an_allowed_token_are_not_copied():
    rows = np.zeros((1, 7), np.float32)
    rows[0, 4] = 1
    assert matcher().mask(single(9), rows, [9], greedy=True) is rows
    rows[0, 2] = 2
    held = matcher().mask(single(9), rows, [9], greedy=True)
    assert int(held[0].argmax()) == 4
    assert rows[0, 2] == 2


def test_no_allowed_token_is_an_error():
    one = matcher(words=(b"", b"b"))  # no token has the first letter
    with pytest.raises(Stuck, match="no token in this model's vocabulary"):
        one.mask(single(1), torch.zeros(1, 2), [1], greedy=True)


def test_an_answer_ends_where_the_format_does_and_not_before():
    engine = engine_over(tiny_target(), tiny_target(5), speller=Words(WORDS))
    request = GenerationRequest((5, 6, 7), 20, stop_tokens=STOPS, grammar=ABC)
    for ids, done in run_all(engine, [request] * 3):
        assert b"".join(WORDS[token] for token in ids) in (b"abc", b"ax")
        assert done.reason is FinishReason.STOP


def test_a_request_without_a_grammar_is_not_changed_by_one_with_a_grammar():
    free = GenerationRequest((5, 6, 7), 12, drafter="chain")
    held = GenerationRequest((5, 6, 7), 12, stop_tokens=STOPS, drafter="chain", grammar=ABC)
    alone = run_all(engine_over(tiny_target(), tiny_target(5)), [free])[0][0]
    engine = engine_over(tiny_target(), tiny_target(5), speller=Words(WORDS))
    assert run_all(engine, [held, free, held])[1][0] == alone


@pytest.mark.parametrize(
    ("changed", "words", "said"),
    [
        ({}, None, "no tokenizer, which grammars need"),
        ({"stop_tokens": frozenset()}, WORDS, "needs at least one stop token"),
        ({"grammar": Grammar("start: other")}, WORDS, "cannot be used"),
        ({"grammar": Grammar("start: /a{2}/ & /b*/")}, WORDS, "cannot be used"),
    ],
)
def test_an_invalid_grammar_is_refused(changed, words, said):
    engine = engine_over(tiny_target(), speller=words and Words(words))
    asked = {"stop_tokens": STOPS, "grammar": ABC, **changed}
    with pytest.raises(InvalidRequest, match=said):
        engine.submit(GenerationRequest((1,), 5, **asked))
    assert not engine.busy


TANGLED = Grammar("start: /[a-c]/ start | /[a-c]/")  # every letter may end all that began before
BROKEN_OFF = Grammar('start: "aa" /[éè]/')  # no token has the last letter's bytes


@pytest.mark.parametrize("drafter", ["none", "auto", "chain"])
@pytest.mark.parametrize(
    ("grammar", "code"), [(TANGLED, "format_ambiguous"), (BROKEN_OFF, "format_stuck")]
)
def test_a_grammar_that_fails_ends_its_own_answer_only(grammar, code, drafter, monkeypatch):
    """Regression: it ended all running answers."""
    few = LLParserLimits(max_items_in_row=20, verbose_errors=False)
    monkeypatch.setattr("engine.grammar.vocabulary.LIMITS", few)
    free = GenerationRequest((5, 6, 7), 40, drafter="none")
    held = GenerationRequest((5, 6, 7), 40, stop_tokens=STOPS, drafter=drafter, grammar=grammar)
    alone = run_all(engine_over(tiny_target(), tiny_target(5)), [free])[0]
    engine = engine_over(tiny_target(), tiny_target(5), speller=Words(WORDS))
    (_, ended), (ids, done) = run_all(engine, [held, free])
    assert (ended.reason, ended.code) == (FinishReason.ERROR, code)
    assert (ids, done.reason) == (alone[0], alone[1].reason)
    assert run_all(engine, [held])[0][1].code == code  # compiled again, it fails again


def test_the_vocabulary_is_read_once_and_the_least_recent_grammar_is_dropped():
    words = Words(WORDS)
    cache = GrammarCache(13, words)
    requests = [
        GenerationRequest((1,), 5, stop_tokens=STOPS, grammar=Grammar(f'start: "{"a" * length}"'))
        for length in range(1, KEPT + 2)
    ]
    compiled = [cache.matcher(request).compiled for request in requests]
    assert cache.matcher(requests[-1]).compiled is compiled[-1]
    assert cache.matcher(requests[1]).compiled is compiled[1]
    assert cache.matcher(requests[0]).compiled is not compiled[0]
    assert words.read == 1
    assert cache.matcher(GenerationRequest((1,), 5)) is None


GRAMMARS = [
    ABC,
    Grammar('start: ("cabba" | "abcab" | "x")*'),
    Grammar('start: "a" start "b" | "c"'),
    Grammar('start: /[abc]{0,9}x/ | "ab" /[ab]*/'),
    Grammar('start: ("a" | "ab" | "b" | "abc")* "x"'),
]


@st.composite
def trees(draw):
    """Any tokens, the root's first."""
    tokens = draw(st.lists(st.integers(0, len(WORDS) - 1), min_size=1, max_size=12))
    parents = [-1, *(draw(st.integers(0, at)) for at in range(len(tokens) - 1))]
    return DraftTree(tuple(tokens), tuple(parents))


@settings(deadline=None, max_examples=200)
@given(st.sampled_from(GRAMMARS), st.lists(st.integers(1, 6), max_size=3), trees(), st.booleans())
def test_law_every_node_has_the_mask_of_plain_decoding(grammar, said, tree, greedy):
    """And the tree leaves no trace: afterwards the answer goes on as if it had never been."""
    held, logits = matcher(grammar), torch.randn(len(tree), len(WORDS))
    ids = [9, *said]
    if not held.advance(ids):
        return
    rows = torch.as_tensor(held.mask(tree, logits, ids, greedy=greedy))
    for node in range(len(tree)):
        path = []
        up = node
        while up > 0:
            path.insert(0, tree.tokens[up])
            up = tree.parents[up]
        plain = matcher(grammar)
        fits = plain.advance([9, *said, *path])
        alone = plain.mask(single(1), logits[node : node + 1], [9, *said, *path], greedy=False)
        if not greedy:
            assert torch.equal(rows[node], torch.as_tensor(alone)[0]), (node, path)
        elif fits and node == 0:
            assert int(rows[0].argmax()) == int(torch.as_tensor(alone)[0].argmax())
    fresh = matcher(grammar)
    fresh.advance(ids)
    again, wanted = (one.mask(single(1), logits[:1], ids, greedy=False) for one in (held, fresh))
    assert torch.equal(torch.as_tensor(again), torch.as_tensor(wanted))


def test_answers_of_one_grammar_do_not_see_each_other():
    compiled = Compiled(ABC, Vocabulary(WORDS))
    one, other = (GrammarMatcher(compiled, STOPS, 1) for _ in range(2))
    assert one.advance([9, 4])
    rows = other.mask(single(9), torch.zeros(1, 7), [9], greedy=False)
    assert allowed(rows[0]) == [1, 4, 5]
    assert not other.advance([9, 3])
    assert allowed(one.mask(single(4), torch.zeros(1, 7), [9, 4], greedy=False)[0]) == [3]


DIGITS = (b"", b"1", b"00", b"a", b".", b"a0")


def test_digits_have_an_end_where_something_else_may_follow():
    grammar = Grammar('start: /[0-9.]+/ "a"?', most_digits=3)
    held = GrammarMatcher(Compiled(grammar, Vocabulary(DIGITS)), STOPS, 1)
    tree = DraftTree((9, 1, 2, 1, 4, 3), (-1, 0, 1, 2, 2, 2))  # 1, 100, then 1 or . or a
    rows = held.mask(tree, torch.zeros(6, 6), [9], greedy=False)
    assert allowed(rows[0]) == [1, 2, 4]
    assert allowed(rows[1]) == [STOP, 1, 2, 3, 4]
    assert allowed(rows[2]) == [STOP, 3, 4]
    assert allowed(rows[4]) == [STOP, 1, 2, 3, 4]
    logits = torch.zeros(1, 6)
    logits[0, 1] = 1
    assert held.advance([9, 1, 2])
    assert (
        int(torch.as_tensor(held.mask(single(2), logits, [9, 1, 2], greedy=True))[0].argmax()) != 1
    )
    only = Grammar("start: /[0-9]{9}/", most_digits=3)
    held = GrammarMatcher(Compiled(only, Vocabulary(DIGITS)), STOPS, 1)
    assert allowed(held.mask(single(2), torch.zeros(1, 6), [9, 1, 2], greedy=False)[0]) == [1, 2]


JSON_WORDS = (b"", b"1", b"000", b'"', b"\\", b'":', b"{", b"}", b",", b"[", b"]", b'1"', b"u003")


@pytest.mark.parametrize(
    ("said", "digits"),
    [
        (['"', "000", "000"], True),  # a text of digits
        (["{", '"', "000", "000"], True),  # a name
        (["[", '"', "000", "\\", '"', "000", "000"], True),  # behind an escaped quote
        (["[", '"', "\\", "u003", "000", "000"], True),
        (["000"], False),
        (["[", '"', "000", "000", '"', ",", "000"], False),  # after a text
        (["[", '"', "\\", "\\", '"', ",", "1", "000"], False),  # what ended with a backslash
        (["{", '"', '":', "000"], False),
    ],
)
def test_digits_of_a_text_have_no_end(said, digits):
    free = Grammar('start: /[0-9"\\\\:{},\\[\\]u]*/', most_digits=3)
    held = GrammarMatcher(Compiled(free, Vocabulary(JSON_WORDS)), STOPS, 1)
    ids = [9, *(JSON_WORDS.index(word.encode()) for word in said)]
    assert held.advance(ids)
    row = held.mask(single(ids[-1]), torch.zeros(1, len(JSON_WORDS)), ids, greedy=False)[0]
    assert (1 in allowed(row)) == digits
