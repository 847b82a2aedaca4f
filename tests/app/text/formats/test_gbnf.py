"""Grammars as llama.cpp takes them: what they let through, and what is refused."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.text.formats.gbnf import LARGEST, gbnf_grammar
from engine.errors import InvalidRequest
from tests.app.text.formats.walks import has, made, said

JSON = r"""
# a JSON object, as llama.cpp's examples have it
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,1})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
SUMS = """root ::= (expr "=" ws term "\\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \\t\\n]*"""
# a grammar -> Python's expression of the same texts
SAME = {
    r'root ::= "yes" | "no"': "yes|no",
    'root ::= ([a-c] | "x"{2,3})+ .?': r"(?:[a-c]|x{2,3})+(?s:.)?",
    'root ::= a b{2} | \n  b{,}\na ::= "é" # one\nb ::= [^\\x00-\\u2FFF]': None,
    'root ::= one (two | ) one\none ::= "\\u00e9\\U0001F600\\t"\ntwo ::= [-a\\]]': "é😀\t[-a\\]]?é😀\t",
    'root ::= ("a"? "b"*){2,}\n\n\n# nothing follows': "(?:a?b*){2,}",
    'root::=under_score "|"  \r\nunder_score ::= ["#]': '["#]\\|',
}


@pytest.mark.parametrize(("grammar", "python"), [pair for pair in SAME.items() if pair[1]])
def test_texts_are_those_of_the_same_expression(grammar, python):
    found, source = gbnf_grammar(grammar), random.Random(3)
    for _ in range(30):
        assert re.fullmatch(python, said(found, source).decode())
    for text in ("yes", "ab", "xxa", "é😀\té😀\t", "bbab", '"|', "", "no\n", "x"):
        assert has(found, text) == bool(re.fullmatch(python, text)), text


@pytest.mark.parametrize("value", [{}, {"a": [1, -2.5e3, None, True, {"é": '"\n'}]}, {"": {}}])
def test_json_passes_the_grammar_of_json(value):
    grammar = gbnf_grammar(JSON)
    assert has(grammar, json.dumps(value))
    assert not has(grammar, json.dumps(value)[:-1])
    assert not has(grammar, json.dumps([value]))


@given(st.integers(0, 999))
def test_law_what_the_grammar_of_json_lets_through_is_json(seed):
    text = said(gbnf_grammar(JSON), random.Random(seed)).decode()
    if not re.search(r"(?<![0-9.eE+-])-?0[0-9]", text):
        assert isinstance(json.loads(text), dict)


def test_rules_that_contain_themselves():
    grammar = gbnf_grammar(SUMS)
    assert has(grammar, "a +(b*(2 -c_1))= 7\n")
    assert not has(grammar, "a +(b= 7\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no rule 'root'"), ("a ::= [b]", "no rule 'root'"), ("root ::= a", "no rule 'a'"),
        ("root ::= [a] root", "never ends"),
        ('root ::= "a"\nroot ::= "b"', "line 2: there are two rules 'root'"), ('root = "a"', "line 1: '::=' is missing"),
        ('root ::= "a', "ends too early"), ("root ::= [a", "ends too early"), ('root ::= ("a"', "')' is missing"),
        ('root ::= "a")', "a new line is missing"), ("root ::= [z-a]", "ends before it begins"), ("root ::= []", "no characters"),
        ('root ::= "a"**', "two quantifiers"), ('root ::= ("a"{999}){999}', "998001 times in all"), ('root ::= "a"{x}', "quantifier in braces"), ('root ::= "a"{2', "quantifier in braces"), ('root ::= "a"{3,2}', "the smaller first"),
        ('root ::= "a"{99999}', "choose 0 to"), ("root ::= !<think>", "tokens are not supported"),
        ('root ::= "\\xzz"', "is no character"), ('root ::= "\\x+1"', "is no character"), ('root ::= "\\ud800"', "is no character"), ("root ::= é", "a new line is missing"),
        ("root ::= " + "(" * 99, "64 nested groups"), ("#" * (LARGEST + 1), f"at most {LARGEST}"), ("::= [a]", "name is missing"),
    ],
)  # fmt: skip
def test_errors_are_reported_with_the_line(text, words):
    with pytest.raises(InvalidRequest) as caught:
        gbnf_grammar(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(max_examples=300)
@given(
    st.text(alphabet='root:= \n|"[]ab^-*+?{1,}().#\\x', max_size=20).map(
        lambda end: "root ::= " + end
    )
)
def test_law_whatever_is_sent_gets_a_grammar_or_one_sentence(text):
    found, sentence = made(gbnf_grammar, text)
    assert (found is None) == bool(sentence)
    assert "\n" not in sentence
    assert found is None or said(found, random.Random(1)).decode() is not None
