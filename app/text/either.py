"""Answers that are of one form or of another, as one grammar."""

from app.text.formats.check import checker
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar


def either(one: Grammar, other: Grammar) -> Grammar:
    """A grammar of the answers of both. Raises InvalidRequest where they are too much together."""
    source = f"start: one | other\none: %lark {{\n{one.source}\n}}\nother: %lark {{\n{other.source}\n}}\n"
    if trouble := checker().trouble_with(source):
        raise InvalidRequest(f"the tools and the format cannot be held together: {trouble}")
    return Grammar(source, one.freed + other.freed)
