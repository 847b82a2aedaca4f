"""Grammars over characters and what llguidance reads of them in lexemes have the same texts."""

from itertools import product

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.text.formats.json_schema import schema_grammar
from app.text.formats.lexemes import Chars, Choice, Named, Repeat, Row, written
from engine.grammar.grammar import Grammar
from engine.grammar.vocabulary import trouble_with
from tests.app.text.formats.walks import had, has

A, B, BOTH = Chars(((97, 97),)), Chars(((98, 98),)), Chars(((97, 98),))
TEXTS = ["".join(text) for size in range(6) for text in product("ab", repeat=size)]


def composed(inner):
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: Row(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda ways: Choice(tuple(ways))),
        st.tuples(inner, st.sampled_from([(0, 1), (0, None), (1, None), (2, 2), (0, 2)])).map(
            lambda two: Repeat(two[0], *two[1])
        ),
    )


plain = st.recursive(st.sampled_from([A, B, BOTH]), composed, max_leaves=5)
# A rule that contains itself does so after a character, or it would be read by hand for ever.
guarded = st.tuples(
    st.sampled_from([A, B]), st.sampled_from([Named("root"), Named("other")]), plain
).map(Row)
bodies = st.tuples(plain, guarded, plain).map(
    lambda three: Choice((three[0], Row((three[1], three[2]))))
)
grammars = st.tuples(bodies, st.one_of(plain, bodies)).map(
    lambda two: {"root": two[0], "other": two[1]}
)


def texts_of(rules):
    """Those of ``TEXTS`` that the rule ``root`` has, read by hand."""
    return {text for text in TEXTS if len(text) in ends(text, rules, Named("root"), 0)}


def ends(text, rules, rule, at):
    """Where readings of the rule from a place end."""
    match rule:
        case Chars(ranges):
            return (
                {at + 1}
                if any(low <= ord(c) <= high for c in text[at : at + 1] for low, high in ranges)
                else set()
            )
        case Named(name):
            return ends(text, rules, rules[name], at)
        case Choice(options):
            return set().union(*(ends(text, rules, option, at) for option in options))
        case Row(parts):
            return followed(text, rules, parts, {at})
        case Repeat(part, least, most):
            here, found = followed(text, rules, [part] * least, {at}), set()
            for _ in range(len(text) + 1 if most is None else most - least):
                found |= here
                here = followed(text, rules, [part], here)
            return found | here


def followed(text, rules, parts, here):
    for part in parts:
        here = {end for start in here for end in ends(text, rules, part, start)}
    return here


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(grammars)
def test_law_lexemes_have_the_texts_of_the_characters(rules):
    grammar = Grammar(written(rules))
    assert trouble_with(grammar) == ""
    wanted = texts_of(rules)
    assert had(grammar, TEXTS) == wanted


LETTERS = Chars(((97, 122),))


@pytest.mark.parametrize(
    ("rules", "good", "bad"),
    [
        # a word and the same letter guarded it: the word must not take both
        ({"root": Choice((Row((A, Named("root"), B)), Row((Repeat(LETTERS, 1, None), B))))}, ["ab", "aabb", "aabbb", "cbb"], ["a", "c"]),
        # two words that begin alike, with other things guarded them
        ({"root": Choice((Row((A, B, A, Named("root"))), Row((LETTERS, LETTERS, B)), A))}, ["abb", "abaa", "zzb", "a"], ["ab", "zza"]),
    ],
)  # fmt: skip
def test_a_lexeme_never_takes_what_is_another_ones(rules, good, bad):
    grammar = Grammar(written(rules))
    assert all(has(grammar, text) for text in good)
    assert not any(has(grammar, text) for text in bad)


def test_a_grammar_without_recursion_is_one_lexeme():
    rules = {
        "root": Row((Named("word"), Chars(((32, 32),)), Named("word"))),
        "word": Repeat(LETTERS, 1, None),
    }
    assert written(rules).splitlines()[0] == "start: L0"
    assert has(Grammar(written(rules)), "one two")


def test_space_is_bounded():
    """Small models write one line after the other, until no tokens are left."""
    found = schema_grammar({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})
    for space in ("", " ", "  ", "\n", "\r\n  ", f"\n{' ' * 24}", "\n\t\t"):
        assert has(found, f'{{{space}"a":{space}1{space}}}')
    for space in ("\n\n", "   ", f"\n{' ' * 25}", " \n", "\n \n"):
        assert not has(found, f'{{{space}"a": 1}}')


@pytest.mark.parametrize("text", ["00", "01", "-00", "+1", "1.0", "1e3", "", "-"])
def test_a_number_is_written_in_one_way(text):
    assert not has(schema_grammar({"type": "integer", "minimum": -100, "maximum": 100}), text)
