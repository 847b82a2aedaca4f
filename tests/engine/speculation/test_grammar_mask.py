"""A matcher holds one answer to its grammar; the laws over whole answers are in tests/laws."""

import numpy as np
import pytest
import torch

from engine.errors import InvalidRequest, Stuck
from engine.grammar.rules import Bytes, Choice, Grammar, Repeat, Row, Text
from engine.grammar.token_bytes import Spelling
from engine.request import FinishReason, GenerationRequest
from engine.speculation.grammar_mask import KEPT, GrammarCache, GrammarMatcher, TokenMasks
from engine.speculation.tree import DraftTree, single
from tests.engine.tiny import Words, engine_over, run_all, tiny_target

STOP = 0
WORDS = (b"", b"a", b"b", b"c", b"ab", b"abc", b"x")
ABC = Grammar((("root", Choice((Text(b"abc"), Text(b"ax")))),))
STOPS = frozenset({STOP})


def matcher(grammar=ABC, words=WORDS):
    return GrammarMatcher(TokenMasks(grammar, Spelling(words)), STOPS, 1)


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
        ({}, WORDS[:2], "the byte 0x62"),
        ({"grammar": Grammar((("root", Choice(())),))}, WORDS, "empty choice"),
    ],
)
def test_an_invalid_grammar_is_refused(changed, words, said):
    engine = engine_over(tiny_target(), speller=words and Words(words))
    asked = {"stop_tokens": STOPS, "grammar": ABC, **changed}
    with pytest.raises(InvalidRequest, match=said):
        engine.submit(GenerationRequest((1,), 5, **asked))
    assert not engine.busy


LETTERS = Bytes(((0x61, 0x63),))
TANGLED = Grammar((("root", Repeat(Repeat(Repeat(LETTERS, 0, 50), 1, 50), 40, 40)),))
BROKEN_OFF = Grammar(
    (("root", Row((Text(b"aa"), Bytes(((0xE9, 0xE9),))))),)
)  # no token has the last byte


@pytest.mark.parametrize("drafter", ["none", "auto", "chain"])
@pytest.mark.parametrize(
    ("grammar", "code"), [(TANGLED, "format_ambiguous"), (BROKEN_OFF, "format_stuck")]
)
def test_a_grammar_that_fails_ends_its_own_answer_only(grammar, code, drafter):
    """Regression: it ended all running answers."""
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
        GenerationRequest(
            (1,), 5, stop_tokens=STOPS, grammar=Grammar((("root", Text(b"a" * length)),))
        )
        for length in range(1, KEPT + 2)
    ]
    compiled = [cache.matcher(request).masks for request in requests]
    assert cache.matcher(requests[-1]).masks is compiled[-1]
    assert cache.matcher(requests[1]).masks is compiled[1]
    assert cache.matcher(requests[0]).masks is not compiled[0]
    assert words.read == 1
    assert cache.matcher(GenerationRequest((1,), 5)) is None


def test_a_grammar_with_too_many_states_is_compiled_again(monkeypatch):
    cache = GrammarCache(13, Words(WORDS))
    request = GenerationRequest((1,), 5, stop_tokens=STOPS, grammar=ABC)
    first = cache.matcher(request).masks
    monkeypatch.setattr("engine.speculation.grammar_mask.MOST_STATES", len(first.states))
    assert cache.matcher(request).masks is first
    monkeypatch.setattr("engine.speculation.grammar_mask.MOST_STATES", len(first.states) - 1)
    assert cache.matcher(request).masks is not first
