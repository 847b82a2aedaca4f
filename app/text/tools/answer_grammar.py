"""Answers that may call tools, or have to, as a grammar: names that exist, arguments that fit.

Where calls have a recognisable opening, the answer is free until it writes one; from there on the
grammar enforces the form of a call. Where they have none, only an answer that must call is held.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.request import Tool, ToolUse
from app.text.formats.check import checker
from app.text.formats.json_schema import held_schema
from app.text.formats.lark import json_value, literal, up_to, without
from app.text.tools.call_format import CallForm
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar

MOST_CALLS = 16  # of one answer
ANY_OBJECT = {"type": "object"}
_OPEN = (  # with one of these a schema may speak of properties that it does not list
    "$ref", "additionalProperties", "allOf", "anyOf", "dependencies", "dependentRequired",
    "dependentSchemas", "if", "minProperties", "oneOf", "patternProperties", "propertyNames",
    "unevaluatedProperties",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arguments:
    """How the arguments of one tool are written: an expression, and the rules that it needs."""

    expression: str
    rules: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()  # what its schema asks for and is not held


Holding = Callable[[CallForm, ToolUse], Grammar | None]
Each = Callable[[int, Tool], Arguments]


def held(form: CallForm, use: ToolUse) -> Grammar | None:
    """The grammar of an answer; None where any will do. Raises InvalidRequest."""
    if not use.must_call and not form.tag:
        return None
    return as_far_as_can_be(use, *arguments_in(form), partial(_grammar, form, use))


def held_when_called(form: CallForm, use: ToolUse) -> Grammar | None:
    """The same for a model whose answers may start with something that no grammar allows."""
    return held(form, use) if use.must_call else None


def arguments_in(form: CallForm) -> tuple[Each, Each]:
    """What writes arguments as schemas say, and what writes any."""
    from app.text.tools.pair_grammar import any_pairs, pair_arguments

    if form.pair:
        return partial(pair_arguments, form.pair), partial(any_pairs, form.pair)
    return object_arguments, any_object


def as_far_as_can_be(
    use: ToolUse,
    by_schema: Each,
    anything: Each,
    made: Callable[[Sequence[Arguments]], str],
    marks: Sequence[str] = (),
) -> Grammar:
    """A grammar with every tool's arguments as its schema says, or else with any."""
    tools = [*enumerate(use.callable)]
    found = [by_schema(n, tool) for n, tool in tools]
    source = made(found)
    freed = tuple(word for arguments in found for word in arguments.freed)
    trouble = checker().trouble_with(source, marks)
    if trouble:  # all of them together are too much for one grammar
        if any(tool.strict for tool in use.callable):
            raise InvalidRequest(
                f"the tools cannot be held together ({trouble}); send fewer of them"
            )
        source = made([anything(n, tool) for n, tool in tools])
        freed = tuple(f"all arguments of {tool.name}" for _, tool in tools)
    return Grammar(source, freed)


def _grammar(form: CallForm, use: ToolUse, arguments: Sequence[Arguments]) -> str:
    rest = form.before.lstrip().removeprefix(form.tag)
    calls = (
        f"{literal(f'{rest}{tool.name}{form.between}')} {written.expression} {literal(form.after)}"
        for tool, written in zip(use.callable, arguments, strict=True)
    )
    rules = [f"a-call: {' | '.join(calls)}", f"calls: {_several(form, use)}"]
    if use.must_call:
        rules.append(f'start: " "? {literal(form.before.removesuffix(rest))} calls')
    else:
        rules += ["start: TEXT | opened calls", f"opened[lazy]: {up_to(form.tag)}"]
        rules.append(f"TEXT: {without(form.tag)}")
    shared = dict.fromkeys(rule for written in arguments for rule in written.rules)
    return "\n".join((*rules, *shared, ""))


def _several(form: CallForm, use: ToolUse) -> str:
    """One call, and more after it where that is wanted and possible."""
    if form.separator is None or not use.parallel:
        return "a-call"
    return f"a-call ({literal(form.separator + form.tag)} a-call){{0,{MOST_CALLS - 1}}}"


def any_object(number: int, _: Tool) -> Arguments:
    """Arguments without a usable schema."""
    name = f"arguments-{number}"
    return Arguments(name, (f"{name}: {json_value(ANY_OBJECT)}",))


def object_arguments(number: int, tool: Tool) -> Arguments:
    """Arguments by the tool's schema; one that is not strict is enforced as far as possible."""
    found = held_schema(closed({**tool.parameters, **ANY_OBJECT}), frees=not tool.strict)
    name = f"arguments-{number}"
    freed = tuple(f"{word} of {tool.name}" for word in found.freed)
    return Arguments(name, (f"{name}: {found.value}",), freed)


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without arguments that it does not list, unless it speaks of others."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, Mapping) or any(word in schema for word in _OPEN):
        return dict(schema)
    needed = required if isinstance(required, list) else []
    others = {name: True for name in needed if isinstance(name, str) and name not in properties}
    if not properties and not others:
        return dict(schema)
    return {**schema, "properties": {**properties, **others}, "additionalProperties": False}
