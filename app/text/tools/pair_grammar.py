"""Calls written in pairs, as a grammar: keys that exist, texts without quotes, all else as JSON."""

import json
from collections.abc import Iterator, Mapping

from app.request import Tool
from app.text.formats.json_schema import held_schema
from app.text.formats.lark import literal, up_to
from app.text.tools.argument_rules import NO_ARGUMENTS, Arguments, closed
from app.text.tools.call_format import PairForm
from app.text.tools.values import TEXT, Parameter, parameters
from engine.errors import InvalidRequest

_ABOUT_TEXT = ("format", "maxLength", "minLength", "pattern")  # which quotes alone could hold
_ELSEWHERE = (
    "$ref", "allOf", "anyOf", "dependencies", "dependentRequired", "dependentSchemas", "else", "if",
    "oneOf", "then",
)  # fmt: skip


def any_pairs(pair: PairForm, _: int, __: Tool) -> Arguments:
    """Arguments without a schema."""
    return Arguments(f"({literal(pair.before)} key plain)*", _shared(pair))


def pair_arguments(pair: PairForm, number: int, tool: Tool) -> Arguments:
    """A tool's arguments in their order, those that are not required perhaps left out.

    As far as its schema can be held, unless it is strict: then raises InvalidRequest.
    """
    if tool.strict:
        held_schema(dict(tool.parameters))
    known_parameters = parameters(tool)
    listed = closed(tool.parameters or NO_ARGUMENTS)
    if listed.get("properties") == {} and listed.get("additionalProperties") is False:
        return Arguments(literal(""))
    if not known_parameters or _may_require_others(tool):
        return any_pairs(pair, number, tool)
    required = tool.parameters.get("required")
    parts, rules, freed = list[str](), list(_shared(pair)), list[str]()
    for at, known in enumerate(known_parameters.values()):
        name = f"pair-{number}-{at}"
        value = _value(pair, tool, known, f"value-{number}-{at}")
        begin = literal(f"{pair.before}{known.name}{pair.between}")
        rules += [f"{name}: {begin} {value.expression}", *value.rules]
        freed += value.freed
        wanted = isinstance(required, list) and known.name in required
        parts.append(name if wanted else f"{name}?")
    return Arguments(" ".join(parts), tuple(rules), tuple(freed))


def _shared(pair: PairForm) -> tuple[str, ...]:
    """Texts up to what follows them: values, and keys."""
    return f"plain[lazy]: {up_to(pair.after)}", f"key[lazy]: {up_to(pair.between)}"


def _value(pair: PairForm, tool: Tool, known: Parameter, name: str) -> Arguments:
    """A value and the text after it."""
    after, where = literal(pair.after), f"{known.name} of {tool.name}"
    if known.listed is not None:
        return Arguments(f"({' | '.join(map(_written, known.listed))}) {after}")
    if TEXT in known.kinds:
        words = [word for word in _ABOUT_TEXT if word in known.schema]
        if tool.strict and words:
            raise InvalidRequest(
                f"{words[0]!r} at #/properties/{known.name} of {tool.name} is not supported in the "
                "form in which this model writes calls; leave it out, or 'strict'"
            )
        return Arguments("plain", freed=tuple(f"{word} at {where}" for word in words))
    held = held_schema(known.schema, frees=not tool.strict)
    freed = tuple(f"{word} of {where}" for word in held.freed)
    return Arguments(f"{name} {after}", (f"{name}: {held.value}",), freed)


def _written(value: object) -> str:
    return literal(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _may_require_others(tool: Tool) -> bool:
    """Whether the schema may ask for arguments that it does not list."""
    schema = tool.parameters
    least, listed = schema.get("minProperties"), schema.get("required")
    known = {*schema.get("properties", {}), *(listed if isinstance(listed, list) else [])}
    if schema.get("patternProperties") or (isinstance(least, int) and least > len(known)):
        return True
    names = _names([schema[word] for word in _ELSEWHERE if word in schema])
    return "$ref" in schema or not known.issuperset(names)


def _names(value: object) -> Iterator[str]:
    """All names that a part of a schema speaks of; a reference may speak of any."""
    match value:
        case Mapping():
            for word, inner in value.items():
                if word == "properties" and isinstance(inner, Mapping):
                    yield from inner
                elif word in ("$ref", "patternProperties"):
                    yield word
                elif isinstance(inner, list) and all(isinstance(name, str) for name in inner):
                    yield from () if word in ("enum", "type") else inner
                else:
                    yield from _names(inner)
        case list():
            for inner in value:
                yield from _names(inner)
        case _:
            return
