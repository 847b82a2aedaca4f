"""A guide holds one answer to its grammar; the laws over whole answers are in tests/laws."""

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


def guide(grammar=ABC, words=WORDS):
    return GrammarMatcher(TokenMasks(grammar, Spelling(words)), STOPS, 1)


def allowed(row):
    return [token for token, value in enumerate(row.tolist()) if value > -np.inf]


def test_every_node_is_held_on_its_own_path():
    tree = DraftTree((9, 1, 2, 3, 4, 6), (-1, 0, 1, 2, 0, 0))  # a, then b, then c; ab; x
    rows = guide().restricted(tree, torch.zeros(6, 7), [9], greedy=False)
    assert [allowed(row) for row in rows] == [
        [1, 4, 5], [2, 6], [3], [STOP], [3], list(range(7)),  # behind what cannot be, all is one
    ]  # fmt: skip


def test_the_answer_goes_on_where_it_was():
    one = guide()
    assert allowed(one.restricted(single(9), torch.zeros(1, 7), [9], greedy=False)[0]) == [1, 4, 5]
    ids = [9, 1, 2]
    assert allowed(one.restricted(single(2), torch.zeros(1, 7), ids, greedy=False)[0]) == [3]
    ids = [9, 1, 2, 3]
    assert allowed(one.restricted(single(3), torch.zeros(1, 7), ids, greedy=False)[0]) == [STOP]


def test_greedy_rows_that_say_what_fits_stay_as_they_are():
    rows = np.zeros((1, 7), np.float32)
    rows[0, 4] = 1
    assert guide().restricted(single(9), rows, [9], greedy=True) is rows
    rows[0, 2] = 2
    held = guide().restricted(single(9), rows, [9], greedy=True)
    assert int(held[0].argmax()) == 4
    assert rows[0, 2] == 2


def test_where_no_token_goes_on_it_says_so():
    one = guide(words=(b"", b"b"))  # nothing spells the first letter
    with pytest.raises(Stuck, match="no token of this model"):
        one.restricted(single(1), torch.zeros(1, 2), [1], greedy=True)


def test_an_answer_ends_where_the_format_does_and_not_before():
    engine = engine_over(tiny_target(), tiny_target(5), speller=Words(WORDS))
    request = GenerationRequest((5, 6, 7), 20, stop_tokens=STOPS, grammar=ABC)
    for ids, done in run_all(engine, [request] * 3):
        assert b"".join(WORDS[token] for token in ids) in (b"abc", b"ax")
        assert done.reason is FinishReason.STOP


def test_a_request_without_a_format_beside_one_with_it_says_what_it_says_alone():
    free = GenerationRequest((5, 6, 7), 12, drafter="chain")
    held = GenerationRequest((5, 6, 7), 12, stop_tokens=STOPS, drafter="chain", grammar=ABC)
    alone = run_all(engine_over(tiny_target(), tiny_target(5)), [free])[0][0]
    engine = engine_over(tiny_target(), tiny_target(5), speller=Words(WORDS))
    assert run_all(engine, [held, free, held])[1][0] == alone


@pytest.mark.parametrize(
    ("changed", "words", "said"),
    [
        ({"stop_tokens": frozenset()}, WORDS, "needs stop tokens"),
        ({}, WORDS[:2], "the byte 0x62"),
        ({"grammar": Grammar((("root", Choice(())),))}, WORDS, "choice of nothing"),
    ],
)
def test_a_format_that_cannot_be_held_is_refused(changed, words, said):
    engine = engine_over(tiny_target(), speller=Words(words))
    asked = {"stop_tokens": STOPS, "grammar": ABC, **changed}
    with pytest.raises(InvalidRequest, match=said):
        engine.submit(GenerationRequest((1,), 5, **asked))
    assert not engine.busy


LETTERS = Bytes(((0x61, 0x63),))
TANGLED = Grammar((("root", Repeat(Repeat(Repeat(LETTERS, 0, 50), 1, 50), 40, 40)),))
BROKEN_OFF = Grammar((("root", Row((Text(b"aa"), Bytes(((0xE9, 0xE9),))))),))  # nobody spells it


@pytest.mark.parametrize("drafter", ["none", "auto", "chain"])
@pytest.mark.parametrize(
    ("grammar", "code"), [(TANGLED, "format_ambiguous"), (BROKEN_OFF, "format_stuck")]
)
def test_a_format_that_lets_nothing_follow_ends_its_own_answer_alone(grammar, code, drafter):
    """It ended all the answers that were under way."""
    free = GenerationRequest((5, 6, 7), 40, drafter="none")
    held = GenerationRequest((5, 6, 7), 40, stop_tokens=STOPS, drafter=drafter, grammar=grammar)
    alone = run_all(engine_over(tiny_target(), tiny_target(5)), [free])[0]
    engine = engine_over(tiny_target(), tiny_target(5), speller=Words(WORDS))
    (_, ended), (ids, done) = run_all(engine, [held, free])
    assert (ended.reason, ended.code) == (FinishReason.ERROR, code)
    assert (ids, done.reason) == (alone[0], alone[1].reason)
    assert run_all(engine, [held])[0][1].code == code  # it is begun anew, and ends as soon


def test_an_engine_that_cannot_spell_refuses_formats():
    with pytest.raises(InvalidRequest, match="not told how its tokens are spelled"):
        engine_over(tiny_target()).submit(
            GenerationRequest((1,), 5, stop_tokens=STOPS, grammar=ABC)
        )


def test_the_vocabulary_is_read_once_and_old_grammars_go():
    words = Words(WORDS)
    guides = GrammarCache(13, words)
    for length in range(1, KEPT + 4):
        grammar = Grammar((("root", Text(b"a" * length)),))
        request = GenerationRequest((1,), 5, stop_tokens=STOPS, grammar=grammar)
        first, second = guides.guide(request), guides.guide(request)
        assert first.masks is second.masks
    assert words.read == 1
    assert len(guides._masks) == KEPT
    assert guides.guide(GenerationRequest((1,), 5)) is None


def test_a_grammar_whose_states_grew_too_many_is_begun_anew(monkeypatch):
    guides = GrammarCache(13, Words(WORDS))
    request = GenerationRequest((1,), 5, stop_tokens=STOPS, grammar=ABC)
    first = guides.guide(request).masks
    monkeypatch.setattr("engine.speculation.grammar_mask.MOST_STATES", len(first.states))
    assert guides.guide(request).masks is first
    monkeypatch.setattr("engine.speculation.grammar_mask.MOST_STATES", len(first.states) - 1)
    assert guides.guide(request).masks is not first
