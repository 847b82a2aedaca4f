"""A grammar that no answer could follow is refused before one begins."""

import pickle

import pytest

from engine.errors import InvalidRequest
from engine.grammar.rules import MOST_PARTS, MOST_REPEATS, Choice, Grammar, Named, Repeat, Row, Text

A = Text(b"a")


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
    grammar = Grammar((("root", Choice((A, Row((A, Named("root")))))),))
    grammar.check()
    again = pickle.loads(pickle.dumps(grammar))
    assert again == grammar
    assert hash(again) == hash(grammar)
    assert again != Grammar((("root", A),))
