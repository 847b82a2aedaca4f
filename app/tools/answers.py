"""Answers that may call tools, or have to, as a grammar: names that exist, arguments that fit.

Where a call can be told by its opening, an answer is free until it writes that opening, and from
there on held to the call's form. Where it cannot, only an answer that has to call is held.
"""

from collections import defaultdict
from collections.abc import Callable

from app.formats.heard import heard
from app.formats.json_schema import schema_rules
from app.formats.json_text import NOTHING, grammar
from app.tools.form import CallForm
from app.turn import Tool, ToolUse
from engine.errors import InvalidRequest
from engine.grammar.rules import Bytes, Choice, Grammar, Named, Repeat, Row, Rule, Text

MOST_CALLS = 16  # of one answer
KEPT = 8  # sets of tools
ANY_OBJECT = {"type": "object"}
_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf")  # where a schema says it instead

Rules = list[tuple[str, Rule]]
Arguments = Callable[[Tool], tuple[Rule, Rules]]


class Answers:
    """The grammars of one model; agents send the same tools again and again."""

    def __init__(self, form: CallForm) -> None:
        self._form = form
        self._kept: tuple[tuple[ToolUse, Grammar | None], ...] = ()

    def held(self, use: ToolUse) -> Grammar | None:
        """``held`` of these tools; raises InvalidRequest."""
        for known, found in self._kept:
            if known == use:
                return found
        found = held(self._form, use)
        self._kept = ((use, found), *self._kept[: KEPT - 1])
        return found


def held(form: CallForm, use: ToolUse) -> Grammar | None:
    """The grammar of an answer; None where any will do. Raises InvalidRequest."""
    if not use.must_call and not form.tag:
        return None
    try:
        return _checked(form, use, _arguments)
    except InvalidRequest:  # all of them together are too much for one grammar
        if any(tool.strict for tool in use.callable):
            raise
        return _checked(form, use, _any_object)


def _checked(form: CallForm, use: ToolUse, arguments: Arguments) -> Grammar:
    rest = form.before.lstrip().removeprefix(form.tag)
    calls: Rules = []
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
        calls += _free(form.tag.encode(), Named("calls"))
    found = grammar(root, calls[::-1])  # parts stand behind what is made of them
    found.check()
    return found


def _several(form: CallForm, use: ToolUse) -> Rule:
    """One call and, where that is wanted and possible, others behind it."""
    first = Named("a call")
    if form.separator is None or not use.parallel:
        return first
    opening = form.separator + form.tag
    return Row((first, Repeat(Row((Text(opening.encode()), first)), 0, MOST_CALLS - 1)))


def _any_object(tool: Tool) -> tuple[Rule, Rules]:
    return schema_rules(ANY_OBJECT, f"{tool.name} ")


def _arguments(tool: Tool) -> tuple[Rule, Rules]:
    """Arguments as the tool's schema says; a schema that is not strict is held as far as it can be."""
    name, wanted = f"{tool.name} ", dict(tool.parameters)
    if not any(word in wanted for word in _ELSEWHERE):
        wanted = {**ANY_OBJECT, **wanted}
    if tool.strict:
        return schema_rules(wanted, name)
    for schema in (wanted, heard(wanted)):
        try:
            return schema_rules(schema, name)
        except InvalidRequest:
            continue
    return _any_object(tool)


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
