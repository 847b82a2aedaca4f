"""Answers of one form or of another."""

import pytest

from app.text.formats.gbnf import gbnf_grammar
from app.text.formats.lark import either
from tests.app.text.formats.walks import has

ONE = 'root ::= part "!"\npart ::= "a" [0-9]{1,2}'
OTHER = 'root ::= part part\npart ::= "(" part? ")"'


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("a1!", True),
        ("a12!", True),
        ("()(())", True),
        ("a1", False),
        ("()!", False),
        ("(a1)()", False),
        ("a1!()()", False),
        ("", False),
    ],
)
def test_both_keep_their_own_rules(text: str, fits: bool) -> None:
    """Rules of one name mean what they mean in their own grammar."""
    one, other = gbnf_grammar(ONE), gbnf_grammar(OTHER)
    assert has(either(one, other), text) is fits
    assert has(either(other, one), text) is fits
    assert fits == (has(one, text) or has(other, text))
    assert has(either(either(one, other), one), text) is fits
