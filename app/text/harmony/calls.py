"""Answers in channels that may call tools, or have to, as a grammar; see ``format.py``.

Such an answer is free within its parts. Its headers are held: to the channels that there are, and
where one opens a call, to a name that exists and to arguments that fit.
"""

from app.request import ToolUse
from app.text.formats.json_text import NOTHING, PARTS, values
from app.text.harmony.format import (
    ANALYSIS,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    CONTROL_BYTE,
    END,
    FINAL,
    FUNCTIONS,
    MESSAGE,
    START,
)
from app.text.tools.answer_grammar import Arguments, Rules, as_far_as_can_be
from app.text.tools.call_format import CallForm
from engine.grammar.rules import Bytes, Choice, Grammar, Named, Repeat, Row, Rule, Text

_ANY = Repeat(Bytes(((0, CONTROL_BYTE[0] - 1),)))  # text up to the next control token
_TO = f" to={FUNCTIONS}"


def held_in_channels(form: CallForm, use: ToolUse) -> Grammar | None:
    """The grammar of an answer after its prompt. Raises InvalidRequest."""

    def made(arguments: Arguments) -> Grammar:
        return _grammar(use, arguments)

    return as_far_as_can_be(form, use, made)


def _grammar(use: ToolUse, arguments: Arguments) -> Grammar:
    calls: Rules = []
    for tool in use.callable:
        rule, more = arguments(tool)
        calls += [*more, (f"arguments of {tool.name}", rule)]
    first, last = _text(f"{COMMENTARY}{_TO}", Named("called")), _text(_TO, Named("named"))
    calls += [
        ("kind", _kind()),
        ("called", _names(use, Named("kind"))),
        ("named", _names(use, Row((_mark(CHANNEL), _text(COMMENTARY), Named("kind"))))),
    ]
    spoken = Choice(tuple(_text(name) for name in (ANALYSIS, COMMENTARY, FINAL)))
    calls += [
        ("more", Choice((NOTHING, Row((_mark(END), _mark(START), _text("assistant"), Named("part")))))),
        ("part", Choice((last, Row((_mark(CHANNEL), Choice((first, Row((spoken, _mark(MESSAGE), _ANY, Named("more")))))))))),
    ]  # fmt: skip
    root = Choice((last, Row((_mark(CHANNEL), first)))) if use.must_call else Named("part")
    return Grammar((("root", root), *calls[::-1], *values()[::-1], *PARTS))


def _names(use: ToolUse, kind: Rule) -> Rule:
    """A tool, what comes after its name, and its arguments."""
    return Choice(
        tuple(
            Row((_text(tool.name), kind, _mark(MESSAGE), Named(f"arguments of {tool.name}")))
            for tool in use.callable
        )
    )


def _kind() -> Rule:
    """That of the arguments, as models and templates write it."""
    space = Choice((Text(b" "), NOTHING))
    return Choice((NOTHING, _text(" json"), Row((space, _mark(CONSTRAIN), _text("json")))))


def _mark(text: str) -> Rule:
    """A control token. Its first byte is one that no other token has, so it is no ``Text``."""
    return Row((Bytes(((CONTROL_BYTE[0], CONTROL_BYTE[0]),)), _text(text)))


def _text(text: str, then: Rule = NOTHING) -> Rule:
    return Row((Text(text.encode()), then))
