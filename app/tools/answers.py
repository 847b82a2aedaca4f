"""Answers that may call tools, or have to, as a grammar: names that exist, arguments that fit.

Where a call can be told by its opening, an answer is free until it writes that opening, and from
there on held to the call's form. Where it cannot, only an answer that has to call is held.
"""

from collections import defaultdict

from app.formats.json_schema import schema_rules
from app.formats.json_text import NOTHING, grammar
from app.formats.schema_words import heard
from app.tools.form import CallForm
from app.turn import REQUIRED, Tool, ToolUse
from engine.errors import InvalidRequest
from engine.grammar.rules import Bytes, Choice, Grammar, Named, Repeat, Row, Rule, Text

MOST_CALLS = 16  # of one answer
ANY_OBJECT = {"type": "object"}
_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf")  # where a schema says it instead

Rules = list[tuple[str, Rule]]


def held(form: CallForm, use: ToolUse) -> Grammar | None:
    """The grammar of an answer; None where any will do. Raises InvalidRequest."""
    tag = form.tag
    if not use.must_call and not tag:
        return None
    named = [tool for tool in use.tools if use.choice in (tool.name, REQUIRED) or not use.must_call]
    calls: Rules = []
    rest = form.before.lstrip().removeprefix(tag)
    options = tuple(_call(form, rest, tool, calls) for tool in named)
    calls.append(("a call", Choice(options)))
    calls.append(("calls", _several(form, use)))
    if use.must_call:
        root: Rule = Row((Text(form.before.removesuffix(rest).encode()), Named("calls")))
    else:
        root, spoken = Named("text 0"), _free(tag.encode(), Named("calls"))
        calls = [*spoken, *calls]
    found = grammar(root, calls[::-1])
    found.check()
    return found


def _several(form: CallForm, use: ToolUse) -> Rule:
    """One call and, where that is wanted and possible, others behind it."""
    first = Named("a call")
    if form.separator is None or not use.parallel or use.choice not in ("auto", REQUIRED):
        return first
    opening = form.separator + form.tag
    return Row((first, Repeat(Row((Text(opening.encode()), first)), 0, MOST_CALLS - 1)))


def _call(form: CallForm, rest: str, tool: Tool, rules: Rules) -> Rule:
    """A call behind its tag; the rules of the arguments go to ``rules``."""
    arguments, more = _arguments(tool)
    rules += more
    begin, end = f"{rest}{tool.name}{form.between}", form.after
    return Row((Text(begin.encode()), arguments, Text(end.encode())))


def _arguments(tool: Tool) -> tuple[Rule, Rules]:
    """Arguments as the tool's schema says; a schema that is not strict is held as far as it can be."""
    name, wanted = f"{tool.name} ", dict(tool.parameters)
    if not any(word in wanted for word in _ELSEWHERE):
        wanted = {**ANY_OBJECT, **wanted}
    if tool.strict:
        return schema_rules(wanted, name)
    for schema in (wanted, heard(wanted), ANY_OBJECT):
        try:
            return schema_rules(schema, name)
        except InvalidRequest:
            continue
    raise AssertionError("any object can be held")


def _free(tag: bytes, calls: Rule) -> Rules:
    """Text that may end anywhere and, once the tag stands in it, goes on with ``calls``.

    Rule ``text i`` is behind the first i bytes of the tag (Knuth, Morris and Pratt's automaton).
    """
    rules: Rules = []
    for known in range(len(tag)):
        behind: defaultdict[int, list[int]] = defaultdict(list)
        for byte in range(256):
            behind[_overlap(tag, tag[:known] + bytes([byte]))].append(byte)
        ways = (
            Row((Bytes(tuple((b, b) for b in some)), calls if many == len(tag) else Named(f"text {many}")))
            for many, some in behind.items()
        )  # fmt: skip
        rules.append((f"text {known}", Choice((NOTHING, *ways))))
    return rules


def _overlap(tag: bytes, text: bytes) -> int:
    """How many bytes at the end of ``text`` are the beginning of the tag."""
    return next(many for many in range(len(text), -1, -1) if text.endswith(tag[:many]))
