"""Answers that may call tools, or have to, as a grammar: names that exist, arguments that fit.

Where calls have a recognisable opening, the answer is free until it writes one; from there on the
grammar enforces the form of a call. Where they have none, only an answer that must call is held.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from app.request import Tool, ToolUse
from app.text.formats.check import checker
from app.text.formats.json_schema import MOST_DIGITS
from app.text.formats.lark import literal, up_to, without
from app.text.tools.argument_rules import Arguments, any_object, object_arguments
from app.text.tools.call_format import CallForm
from app.text.tools.pair_grammar import any_pairs, pair_arguments
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar

MOST_CALLS = 16  # of one answer

Holding = Callable[[CallForm, ToolUse], Grammar | None]
Each = Callable[[int, Tool], Arguments]


def held(form: CallForm, use: ToolUse) -> Grammar | None:
    """The grammar of an answer; None where any will do. Raises InvalidRequest."""
    if not use.must_call and not form.tag:
        return None
    found = as_far_as_can_be(use, *arguments_in(form), partial(_grammar, form, use))
    is_json = use.must_call and form.pair is None  # else there may be texts without quotes
    return replace(found, most_digits=MOST_DIGITS) if is_json else found


def held_when_called(form: CallForm, use: ToolUse) -> Grammar | None:
    """The same for a model whose answers may start with something that no grammar allows."""
    return held(form, use) if use.must_call else None


def arguments_in(form: CallForm) -> tuple[Each, Each]:
    """What writes arguments as schemas say, and what writes any."""
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
