"""Answers that are of one form or of another, as one grammar."""

from engine.grammar.rules import ROOT, Choice, Grammar, Named, Repeat, Row, Rule


def either(one: Grammar, other: Grammar) -> Grammar:
    """A grammar of the answers of both. Raises InvalidRequest where they are too much together."""
    first, second = _apart(one, "one"), _apart(other, "other")
    root = Choice((Named(first.root), Named(second.root)))
    found = Grammar(((ROOT, root), *first.rules, *second.rules))
    found.check()
    return found


def _apart(grammar: Grammar, prefix: str) -> Grammar:
    """The same with names of rules that no other grammar has."""
    rules = tuple((f"{prefix} {name}", _renamed(rule, prefix)) for name, rule in grammar.rules)
    return Grammar(rules, f"{prefix} {grammar.root}")


def _renamed(rule: Rule, prefix: str) -> Rule:
    match rule:
        case Named(name):
            return Named(f"{prefix} {name}")
        case Row(parts):
            return Row(tuple(_renamed(part, prefix) for part in parts))
        case Choice(options):
            return Choice(tuple(_renamed(option, prefix) for option in options))
        case Repeat(inner, least, most):
            return Repeat(_renamed(inner, prefix), least, most)
        case _:
            return rule
