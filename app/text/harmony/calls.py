"""Answers in channels that may call tools, or have to, as a grammar; see ``format.py``.

Such an answer is free within its parts. Its headers are held: to the channels that there are, and
where one opens a call, to a name that exists and to arguments that fit.
"""

from collections.abc import Sequence
from functools import partial

from app.request import ToolUse
from app.text.formats.lark import ANY_TEXT, literal
from app.text.harmony.format import (
    ANALYSIS,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    END,
    FINAL,
    FUNCTIONS,
    MARKS,
    MESSAGE,
    START,
)
from app.text.tools.answer_grammar import as_far_as_can_be
from app.text.tools.argument_rules import Arguments, any_object, object_arguments
from app.text.tools.call_format import CallForm
from engine.grammar.grammar import Grammar

_TO = f" to={FUNCTIONS}"


def held_in_channels(_: CallForm, use: ToolUse, *, constrains: bool = True) -> Grammar | None:
    """The grammar of an answer after its prompt; ``constrains``: the vocabulary has CONSTRAIN.

    Raises InvalidRequest.
    """
    kinds = f'" json" | " "? {CONSTRAIN} "json"' if constrains else '" json"'
    marks = (*MARKS, CONSTRAIN) if constrains else MARKS
    return as_far_as_can_be(use, object_arguments, any_object, partial(_grammar, use, kinds), marks)


def _grammar(use: ToolUse, kinds: str, arguments: Sequence[Arguments]) -> str:
    tools = [*zip(use.callable, arguments, strict=True)]
    called = (f"{literal(tool.name)} kind {MESSAGE} {a.expression}" for tool, a in tools)
    named = (
        f"{literal(tool.name)} {CHANNEL} {literal(COMMENTARY)} kind {MESSAGE} {a.expression}"
        for tool, a in tools
    )
    names = " | ".join(map(literal, (ANALYSIS, COMMENTARY, FINAL)))
    rules = (
        f"start: last | {CHANNEL} first" if use.must_call else "start: part",
        f"part: last | {CHANNEL} (first | spoken)",
        f"first: {literal(COMMENTARY + _TO)} ({' | '.join(called)})",
        f"last: {literal(_TO)} ({' | '.join(named)})",
        f"spoken: ({names}) {MESSAGE} TEXT? ({END} {START} {literal('assistant')} part)?",
        f"kind: ({kinds})?",
        f"TEXT: {ANY_TEXT} & /(?s:.+)/",
    )
    return "\n".join((*rules, *(rule for _, a in tools for rule in a.rules), ""))
