"""Calls written in pairs, as a grammar: keys that exist, texts without quotes, all else as JSON."""

from app.request import Tool
from app.text.formats.characters import up_to
from app.text.formats.json_schema import schema_rules
from app.text.formats.json_text import NOTHING, exactly
from app.text.formats.relax_schema import may_require_others, relaxed
from app.text.tools.call_format import PairForm
from app.text.tools.values import TEXT, Parameter, parameters
from engine.errors import InvalidRequest
from engine.grammar.rules import Choice, Named, Repeat, Row, Rule, Text

_PLAIN, _KEY = "plain text", "plain key"  # rules of all that ends where a pair's text does
_ABOUT_TEXT = ("format", "maxLength", "minLength", "pattern")  # which quotes alone could hold

Rules = list[tuple[str, Rule]]


def shared_rules(pair: PairForm) -> Rules:
    """What the calls of every tool are made of: text up to what stands behind it."""
    return [
        *up_to(pair.after.encode(), NOTHING, _PLAIN),
        *up_to(pair.between.encode(), NOTHING, _KEY),
    ]


def pair_rules(pair: PairForm, tool: Tool) -> tuple[Rule, Rules]:
    """A tool's arguments in their order, those that are not required perhaps left out.

    As far as its schema can be held, unless it is strict: then raises InvalidRequest.
    """
    if tool.strict:
        schema_rules(dict(tool.parameters))
    told = parameters(tool)
    if not told or may_require_others(tool.parameters):
        return any_pairs(pair)
    required = tool.parameters.get("required")
    rules: Rules = []
    for at, known in enumerate(told.values()):
        value, more = _value(pair, tool, known)
        begin = Text(f"{pair.before}{known.name}{pair.between}".encode())
        taken, skipped = Row((begin, value, _place(tool, at + 1))), _place(tool, at + 1)
        wanted = isinstance(required, list) and known.name in required
        rules += [(_place(tool, at).name, taken if wanted else Choice((taken, skipped))), *more]
    rules.append((_place(tool, len(told)).name, NOTHING))
    return _place(tool, 0), rules


def any_pairs(pair: PairForm) -> tuple[Rule, Rules]:
    """Arguments of which nothing is known."""
    each = Row((Text(pair.before.encode()), Named(f"{_KEY} 0"), Named(f"{_PLAIN} 0")))
    return Repeat(each), []


def _place(tool: Tool, at: int) -> Named:
    """What comes from an argument on."""
    return Named(f"{tool.name} pair {at}")


def _value(pair: PairForm, tool: Tool, known: Parameter) -> tuple[Rule, Rules]:
    """A value and what stands behind it."""
    after = Text(pair.after.encode())
    listed = known.listed
    if listed is not None:
        return Row((Choice(tuple(map(_written, listed))), after)), []
    if TEXT in known.kinds:
        if tool.strict and (words := [word for word in _ABOUT_TEXT if word in known.schema]):
            raise InvalidRequest(
                f"{words[0]!r} at #/properties/{known.name} of {tool.name} is not supported in the "
                "form in which this model writes calls; leave it out, or 'strict'"
            )
        return Named(f"{_PLAIN} 0"), []
    of = f"{tool.name} {known.name} "
    for schema in (known.schema, relaxed(known.schema)):
        try:
            rule, rules = schema_rules(schema, of)
        except InvalidRequest:
            continue
        return Row((rule, after)), rules
    return Named(f"{_PLAIN} 0"), []


def _written(value: object) -> Rule:
    return Text(value.encode()) if isinstance(value, str) else exactly(value)
