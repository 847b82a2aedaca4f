"""Patterns of JSON Schema: whatever a grammar lets through matches, and what matches passes."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text.formats.json_schema import schema_grammar
from engine.errors import InvalidRequest
from tests.app.text.formats.walks import has, made, said

SPACES = "\\t-\\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
ATOMS = {  # as ECMA-262 has it -> the same in Python
    **{letter: letter for letter in ("a", "b", "é", "€", '"', "/", "-", "}", "😀")},
    r"\\": r"\\", r"\.": r"\.", r"\/": "/", r"\n": r"\n", r"\x41": "A", r"\u00e9": "é", r"\u{1f600}": "😀",
    r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[A-Za-z0-9_]", r"\W": "[^A-Za-z0-9_]",
    r"\s": f"[{SPACES}]", r"\S": f"[^{SPACES}]", ".": "[^\\n\\r\u2028\u2029]",
    "[a-c]": "[a-c]", "[^a-c]": "[^a-c]", r"[\d_-]": "[0-9_-]", r"[^\s\"]": f'[^{SPACES}"]', "[^]": r"[\s\S]",
    r"[\]\\x]": r"[\]\\x]", "[.+*]": "[.+*]", r"[à-ÿ€-😀]": "[à-ÿ€-😀]",
}  # fmt: skip
COUNTS = ("*", "+", "?", "{2}", "{1,}", "{0,3}", "*?", "+?")


def both(join):
    """The same in both languages."""
    return lambda parts: tuple(join([part[at] for part in parts]) for at in (0, 1))


def composed(inner):
    some = st.lists(inner, min_size=1, max_size=3)
    grouped = some.map(both(lambda parts: f"(?:{'|'.join(parts)})"))
    named = st.tuples(inner).map(lambda one: (f"(?<n>{one[0][0]})", f"(?:{one[0][1]})"))
    counted = st.tuples(grouped, st.sampled_from(COUNTS)).map(
        lambda two: (two[0][0] + two[1], two[0][1] + two[1])
    )
    return st.one_of(some.map(both("".join)), grouped, named, counted)


patterns = st.recursive(st.sampled_from(sorted(ATOMS.items())), composed, max_leaves=6)


def grammar(pattern, **more):
    return schema_grammar({"type": "string", "pattern": pattern, **more})


def passes(pattern, text, **more):
    written = json.dumps(text, ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )  # as llguidance has it
    return has(grammar(pattern, **more), written)


READ_AT_ONCE = 24  # characters: Python tries repeats within repeats in every way that there is


@settings(max_examples=100)
@given(patterns, st.sampled_from(["{}", "^{}", "{}$", "^{}$", "^(?:{})$|b"]), st.integers(0, 99))
def test_law_whatever_the_grammar_lets_through_matches(pattern, tied, seed):
    ecma, python = (tied.format(one) for one in pattern)
    found, source = grammar(ecma), random.Random(seed)
    for _ in range(5):
        written = said(found, source, may_fail=True)
        text = None if written is None else json.loads(written.decode())
        if text is not None and len(text) <= READ_AT_ONCE:
            assert re.search(python.replace("$", r"\Z"), text), (ecma, text)


@settings(max_examples=150)
@given(patterns, st.integers(0, 5), st.integers(0, 5), st.integers(0, 99))
def test_law_length_bounds_are_supported_or_refused(pattern, least, more, seed):
    asked = {
        "type": "string",
        "pattern": f"^{pattern[0]}$",
        "minLength": least,
        "maxLength": least + more,
    }
    found, sentence = made(schema_grammar, asked)
    assert found is not None or "at # cannot be held" in sentence
    for _ in range(3 if found else 0):
        text = json.loads(said(found, random.Random(seed)).decode())
        assert least <= len(text) <= least + more
        assert re.search(f"^{pattern[1]}\\Z", text)


@settings(max_examples=100)
@given(patterns, st.data())
def test_law_whatever_matches_passes(pattern, data):
    ecma, python = pattern
    text = data.draw(st.from_regex(re.compile(python), fullmatch=True))
    assert passes(f"^(?:{ecma})$", text)
    assert passes(ecma, f"x{text}\ny")


@pytest.mark.parametrize(
    ("pattern", "more", "good", "bad"),
    [
        (r"^\d{4}-\d{2}$", {}, ["2026-11"], ["2026-1", "x2026-11", "2026-11\n"]),
        (r"^[A-Z][a-z]*$", {"maxLength": 3}, ["A", "Abc"], ["Abcd", "abc", ""]),
        (r"^[a-z]*$", {"minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
        (r"^-[a-z]+\d\d$", {"maxLength": 5}, ["-a12", "-ab12"], ["-12", "-abc12"]),
        (r"^[ab]{2,}$", {"minLength": 3}, ["aba"], ["ab"]),
        (r"^[a-z]+$", {"minLength": 3, "maxLength": 3}, ["abc"], ["ab", "abcd"]),
        (r"^.{2,8}$", {"maxLength": 3}, ["ab", "é😀x"], ["a", "abcd"]),
        (r"^(\+1)?[0-9]+$", {"maxLength": 99, "minLength": 1}, ["+17"], ["1+7"]),
        ("b", {}, ["b", "abc", "\nb"], ["", "a"]),
        ("^$|^a$", {}, ["", "a"], ["aa"]),
        (r"^(?P<year>\d+)\/$", {}, ["12/"], ["12"]),
        ("^a{b}$", {}, ["a{b}"], ["ab"]),
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", {}, ["1", "-1.5", ".5", "+0"], ["", "-", ".", "+."]),
        (r"^(?!\s*$).+", {}, ["a", " a "], ["", "  "]),
        ("^(?!a*$)[ab]+$", {"maxLength": 3}, ["b", "aab"], ["aa", "baab"]),
        (r"^(?![^\d]+$).*$", {}, ["1", "a1", ""], ["a", "ab"]),
    ],
)  # fmt: skip
def test_examples(pattern, more, good, bad):
    assert all(passes(pattern, text, **more) for text in good)
    assert not any(passes(pattern, text, **more) for text in bad)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?=a)b", "'(?='"), ("(?!a*$)b", "'(?!'"), ("^(?!ab)c", "'(?!'"), ("^(?!a*)c", "'(?!'"), ("^(?!)c", "'(?!'"), ("^(?!a*$", "'(?!'"), ("(?<!a)b", "'(?<!'"), ("(?i)a", "'(?i'"), (r"(a)\1", r"'\\1'"), (r"\bword", r"'\\b'"),
        (r"\p{L}", r"'\\p'"), ("a^b", "'^'"), ("(a$)b", "'$'"), ("a**", "two quantifiers"), ("a{2}{3}", "two quantifiers"),
        ("*a", "'*'"), ("(a", "'('"), ("a)", "')'"), ("[a", "ends too early"), ("a\\", "ends too early"),
        ("[z-a]", "'-'"), ("[]", "empty character class"), (r"\ud800", r"'\\ud800'"), (r"\xzz", r"'\\xzz'"), ("a{3,2}", "the smaller first"),
        ("a{0,999999}", "choose 0 to"), ("(" * 40 + ")" * 40, "32 nested groups"), (r"\u{110000}", "is not supported"),
    ],
)  # fmt: skip
def test_unsupported_patterns_are_refused(pattern, said):
    with pytest.raises(InvalidRequest) as caught:
        grammar(pattern)
    assert said in str(caught.value)
    assert "'pattern' at #: " in str(caught.value)


@settings(max_examples=300)
@given(st.text(alphabet="ab()[]{}|*+?^$.\\-,:<>=!1dwsux", max_size=14))
def test_law_whatever_is_sent_gets_a_grammar_or_one_sentence(pattern):
    found, sentence = made(grammar, pattern)
    assert (found is None) == bool(sentence)
    assert "\n" not in sentence
    if found is not None:  # and its walk meets no error
        (said(found, random.Random(1), may_fail=True) or b"").decode()
