"""Answers that may call tools, or have to, as a grammar: names that exist, arguments that fit.

Where calls have a recognisable opening, the answer is free until it writes one; from there on the
grammar enforces the form of a call. Where they have none, only an answer that must call is held.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from app.request import Tool, ToolUse
from app.text.formats.characters import up_to
from app.text.formats.json_schema import schema_rules
from app.text.formats.json_text import grammar
from app.text.formats.relax_schema import relaxed
from app.text.tools.call_format import CallForm
from app.text.tools.pair_grammar import any_pairs, pair_rules, shared_rules
from engine.errors import InvalidRequest
from engine.grammar.rules import Choice, Grammar, Named, Repeat, Row, Rule, Text

MOST_CALLS = 16  # of one answer
ANY_OBJECT = {"type": "object"}
_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf")  # a schema may name its type inside these

Rules = list[tuple[str, Rule]]
Arguments = Callable[[Tool], tuple[Rule, Rules]]


Holding = Callable[[CallForm, ToolUse], Grammar | None]


def held(form: CallForm, use: ToolUse) -> Grammar | None:
    """The grammar of an answer; None where any will do. Raises InvalidRequest."""
    if not use.must_call and not form.tag:
        return None
    return as_far_as_can_be(form, use, partial(_grammar, form, use))


def held_when_called(form: CallForm, use: ToolUse) -> Grammar | None:
    """The same for a model whose answers may start with something that no grammar allows."""
    return held(form, use) if use.must_call else None


def as_far_as_can_be(form: CallForm, use: ToolUse, made: Callable[[Arguments], Grammar]) -> Grammar:
    """A grammar with every tool's arguments as its schema says, or else with any."""
    try:
        return _checked(made(partial(_arguments, form)))
    except InvalidRequest:  # all of them together are too much for one grammar
        if any(tool.strict for tool in use.callable):
            raise
        return _checked(made(partial(_anything, form)))


def _checked(found: Grammar) -> Grammar:
    found.check()
    return found


def _grammar(form: CallForm, use: ToolUse, arguments: Arguments) -> Grammar:
    rest = form.before.lstrip().removeprefix(form.tag)
    calls: Rules = shared_rules(form.pair) if form.pair else []
    options = []
    for tool in use.callable:
        rule, more = arguments(tool)
        begin = Text(f"{rest}{tool.name}{form.between}".encode())
        options.append(Row((begin, rule, Text(form.after.encode()))))
        calls += more
    calls += [("a call", Choice(tuple(options))), ("calls", _several(form, use))]
    root: Rule = Named("text 0")
    if use.must_call:
        root = Row((Text(form.before.removesuffix(rest).encode()), Named("calls")))
    else:
        calls += up_to(form.tag.encode(), Named("calls"), "text", may_end=True)
    return grammar(root, calls[::-1])  # parts come after the rules that use them


def _several(form: CallForm, use: ToolUse) -> Rule:
    """One call, and more after it where that is wanted and possible."""
    first = Named("a call")
    if form.separator is None or not use.parallel:
        return first
    opening = form.separator + form.tag
    return Row((first, Repeat(Row((Text(opening.encode()), first)), 0, MOST_CALLS - 1)))


def _anything(form: CallForm, tool: Tool) -> tuple[Rule, Rules]:
    """Arguments without a usable schema."""
    return any_pairs(form.pair) if form.pair else schema_rules(ANY_OBJECT, f"{tool.name} ")


def _of_an_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema, which need not say that arguments are an object."""
    return schema if any(word in schema for word in _ELSEWHERE) else {**schema, **ANY_OBJECT}


def _arguments(form: CallForm, tool: Tool) -> tuple[Rule, Rules]:
    """Arguments by the tool's schema; one that is not strict is enforced as far as possible."""
    if form.pair:
        return pair_rules(form.pair, tool)
    name, wanted = f"{tool.name} ", _of_an_object(tool.parameters)
    if tool.strict:
        return schema_rules(wanted, name)
    for schema in (wanted, _of_an_object(relaxed(wanted))):
        try:
            return schema_rules(schema, name)
        except InvalidRequest:
            continue
    return _anything(form, tool)
