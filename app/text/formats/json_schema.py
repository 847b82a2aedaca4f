"""JSON Schema to a grammar whose texts all satisfy the schema.

The grammar may be narrower than the schema (properties come in the schema's order, a schema with
properties allows no others), never wider. Unsupported schemas are refused with the place.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from app.text.formats.json_text import (
    ANY,
    BOOLEAN,
    COLON,
    COMMA,
    NOTHING,
    NULL,
    OBJECT,
    exactly,
    grammar,
    listed,
    mapped,
    wrapped,
)
from app.text.formats.scalars import integer_rule, number_rule, string_rule
from app.text.formats.schema_disjoint import kind_of, kinds_of, mutually_exclusive
from app.text.formats.schema_keywords import (
    DEEPEST,
    counts,
    declared_types,
    refuse_beside,
    refuse_rebased,
    refuse_unsupported,
    unwrapped,
)
from engine.errors import InvalidRequest
from engine.grammar.rules import Choice, Grammar, Named, Row, Rule

LARGEST = 1 << 16  # bytes
MOST_OPTIONS = 128  # of oneOf, which are compared in pairs

_SCALARS = {"string": string_rule, "integer": integer_rule, "number": number_rule}


def schema_grammar(schema: object) -> Grammar:
    """The grammar of a schema; raises InvalidRequest."""
    found = grammar(*schema_rules(schema))
    found.check()
    return found


def schema_rules(schema: object, of: str = "") -> tuple[Rule, list[tuple[str, Rule]]]:
    """The rule of a schema, and the rules that it needs in addition to JSON's own.

    Their names begin with ``of``, so that one grammar can hold several schemas. Raises InvalidRequest.
    """
    try:
        size = len(json.dumps(schema, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, RecursionError) as error:  # infinite, a surrogate half, or too deep
        raise InvalidRequest(f"the schema cannot be written as JSON: {error}") from error
    if size > LARGEST:
        raise InvalidRequest(f"the schema has {size} bytes; at most {LARGEST} are allowed")
    return _Compiler(schema, of).compiled()


class _Compiler:
    """Collects the named rules of one schema."""

    def __init__(self, schema: object, of: str) -> None:
        self._schema, self._of = schema, of
        self._rules: dict[str, Rule] = {}
        self._pending: list[str] = []  # references whose rules are not made yet

    def compiled(self) -> tuple[Rule, list[tuple[str, Rule]]]:
        root = self._rule(self._schema, "#", 0)
        while self._pending:
            place = self._pending.pop()
            self._rules[self._of + place] = self._rule(self._found(place), place, 0)
        return root, list(self._rules.items())

    def _rule(self, schema: object, place: str, depth: int) -> Rule:
        if depth > DEEPEST:
            raise InvalidRequest(f"the schema is more than {DEEPEST} levels deep at {place}")
        if schema is True:
            return ANY
        if not isinstance(schema, Mapping):
            raise InvalidRequest(f"the schema at {place} must be an object")
        schema = unwrapped(schema)
        refuse_unsupported(schema, place)
        refuse_rebased(schema, place)
        if "$ref" in schema:
            return self._reference(schema, place)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self._options(schema, word, place, depth)
        return self._plain(schema, place, depth)

    def _reference(self, schema: Mapping[str, Any], place: str) -> Rule:
        target = schema["$ref"]
        if not isinstance(target, str) or (target != "#" and not target.startswith("#/")):
            raise InvalidRequest(
                f"the reference {target!r} at {place} must be # or begin with #/, as '#/$defs/NAME'"
            )
        refuse_beside(schema, "$ref", place=place)
        name = self._of + target
        if name not in self._rules:
            self._found(target)
            self._rules[name] = NOTHING  # placeholder
            self._pending.append(target)
        return Named(name)

    def _found(self, pointer: str) -> object:
        """The value at a JSON pointer."""
        here: Any = self._schema
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(here, Mapping) and key in here:
                here = here[key]
            elif isinstance(here, list) and key.isdecimal() and int(key) < len(here):
                here = here[int(key)]
            else:
                raise InvalidRequest(f"the reference {pointer!r} points to nothing")
        return here

    def _options(self, schema: Mapping[str, Any], word: str, place: str, depth: int) -> Rule:
        options = schema[word]
        if not isinstance(options, list) or not options:
            raise InvalidRequest(f"{word!r} at {place} must be a list with at least one schema")
        refuse_beside(schema, word, place=place)
        if word == "oneOf" and len(options) > MOST_OPTIONS:
            raise InvalidRequest(
                f"'oneOf' at {place} has {len(options)} options; at most {MOST_OPTIONS} are allowed, "
                "use 'anyOf' or 'enum'"
            )
        if word == "oneOf" and not mutually_exclusive(options, self._found):
            raise InvalidRequest(
                f"'oneOf' options at {place} are not mutually exclusive; use 'anyOf', or give them "
                "different types or different 'const' values of a required property"
            )
        return Choice(
            tuple(
                self._rule(option, f"{place}/{word}/{at}", depth + 1)
                for at, option in enumerate(options)
            )
        )

    def _plain(self, schema: Mapping[str, Any], place: str, depth: int) -> Rule:
        """A schema without references and options."""
        if "const" in schema or "enum" in schema:
            return _one_of(schema, place)
        kinds = declared_types(schema, place)
        if not kinds:
            return ANY
        return Choice(tuple(self._of_kind(kind, schema, place, depth) for kind in kinds))

    def _of_kind(self, kind: str, schema: Mapping[str, Any], place: str, depth: int) -> Rule:
        if kind == "object":
            return self._object(schema, place, depth)
        if kind == "array":
            return self._array(schema, place, depth)
        if kind in _SCALARS:
            return _SCALARS[kind](schema, place)
        return BOOLEAN if kind == "boolean" else NULL

    def _array(self, schema: Mapping[str, Any], place: str, depth: int) -> Rule:
        least, most = counts(schema, "minItems", "maxItems", place)
        first = schema.get("prefixItems", [])
        if not isinstance(first, list):
            raise InvalidRequest(f"'prefixItems' at {place} must be a list of schemas")
        if first:
            return self._tuple(first, schema, place, depth)
        items = schema.get("items", True)
        if items is False and least > 0:
            raise InvalidRequest(
                f"'minItems' at {place} is {least}, but 'items' is false: no item is allowed"
            )
        if items is False:
            return listed(ANY, 0, 0)
        item = Named(f"{self._of}{place}/items")  # used twice in a list
        self._rules[item.name] = self._rule(items, f"{place}/items", depth + 1)
        return listed(item, least, most)

    def _tuple(
        self, first: Sequence[object], schema: Mapping[str, Any], place: str, depth: int
    ) -> Rule:
        """Exactly the items of ``prefixItems``."""
        least, most = counts(schema, "minItems", "maxItems", place)
        if least > len(first) or (most is not None and most < len(first)):
            raise InvalidRequest(
                f"the {len(first)} items of 'prefixItems' at {place} do not fit its bounds"
            )
        rules = [self._rule(s, f"{place}/prefixItems/{n}", depth + 1) for n, s in enumerate(first)]
        parts = [rules[0], *(part for rule in rules[1:] for part in (COMMA, rule))]
        return wrapped(b"[", Row(tuple(parts)), b"]")

    def _object(self, schema: Mapping[str, Any], place: str, depth: int) -> Rule:
        unevaluated = schema.get("unevaluatedProperties", True)
        properties, others = (
            schema.get("properties", {}),
            schema.get("additionalProperties", unevaluated),
        )
        if not isinstance(properties, Mapping):
            raise InvalidRequest(f"'properties' at {place} must be an object")
        required = schema.get("required", [])
        if not isinstance(required, list) or any(not isinstance(name, str) for name in required):
            raise InvalidRequest(f"'required' at {place} must be a list of names")
        members = dict(properties) | {n: others for n in required if n not in properties}
        if members:
            return self._members(members, frozenset(required), place, depth)
        if others is False:
            return wrapped(b"{", NOTHING, b"}")
        if others is True:
            return OBJECT
        return mapped(self._rule(others, f"{place}/additionalProperties", depth + 1))

    def _members(
        self, members: Mapping[str, object], required: frozenset[str], place: str, depth: int
    ) -> Rule:
        """Properties in their order; those that are not required may be left out.

        Each property has two rules for the rest from it on: with a leading comma and without. Their
        names begin with a number, unlike the names of places.
        """
        names, here = list(members), f"of {self._of}{place}"
        for at, name in enumerate(names):
            rule = self._rule(members[name], f"{place}/properties/{_escaped(name)}", depth + 1)
            member = Named(f"{at}: {here}")
            self._rules[member.name] = Row((exactly(name), COLON, rule))
            for comma, lead in (("", NOTHING), (",", COMMA)):
                taken = Row((lead, member, Named(f"{at + 1}, {here}")))
                skipped = Named(f"{at + 1}{comma} {here}")
                self._rules[f"{at}{comma} {here}"] = (
                    taken if name in required else Choice((taken, skipped))
                )
        for comma in ("", ","):
            self._rules[f"{len(names)}{comma} {here}"] = NOTHING
        return wrapped(b"{", Named(f"0 {here}"), b"}")


def _one_of(schema: Mapping[str, Any], place: str) -> Rule:
    """The listed values that have the declared type."""
    values = [schema["const"]] if "const" in schema else schema["enum"]
    if not isinstance(values, list):
        raise InvalidRequest(f"'enum' at {place} must be a list")
    word = "const" if "const" in schema else "enum"
    refuse_beside(schema, word, "type", place=place)
    kinds = kinds_of({"type": schema["type"]} if "type" in schema else {})
    fitting = [value for value in values if kind_of(value) in kinds]
    if not fitting:
        raise InvalidRequest(f"{word!r} at {place} has no value of its type")
    return Choice(tuple(map(exactly, fitting)))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
