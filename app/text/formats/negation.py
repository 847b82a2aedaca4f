"""What a schema does not accept, as a schema: JSON Schema's ``not`` and ``if`` in words that can be held."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from app.text.formats.kinds import kind_of, listed_values
from app.text.formats.pattern import ANY, character
from engine.errors import InvalidRequest

Schema = Mapping[str, Any] | bool
Find = Callable[[str], object]  # the value that a reference points to
KINDS = ("object", "array", "string", "number", "boolean", "null")
LONGEST = 200  # characters of a text that is left out


class WholePattern(str):
    """A pattern in llguidance's notation, of whole texts."""

    __slots__ = ()


_OPPOSITES = {  # word -> (type, the word of what it leaves out, how far the bound moves)
    "minLength": ("string", "maxLength", -1), "maxLength": ("string", "minLength", 1),
    "minItems": ("array", "maxItems", -1), "maxItems": ("array", "minItems", 1),
    "minProperties": ("object", "maxProperties", -1), "maxProperties": ("object", "minProperties", 1),
    "minimum": ("number", "exclusiveMaximum", 0), "maximum": ("number", "exclusiveMinimum", 0),
    "exclusiveMinimum": ("number", "maximum", 0), "exclusiveMaximum": ("number", "minimum", 0),
}  # fmt: skip
_SILENT = (
    "title",
    "description",
    "$comment",
    "default",
    "examples",
    "$schema",
    "$id",
    "$defs",
    "definitions",
)


def negated(schema: object, context: Mapping[str, Any], find: Find, depth: int = 0) -> Schema:
    """What ``schema`` does not accept; ``context`` is what else holds. Raises InvalidRequest."""
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, Mapping) or depth > 8:
        raise InvalidRequest("what it leaves out cannot be said in other words")
    words = [word for word in schema if word not in _SILENT]
    turner = _Turner(context, find, depth)
    found = [turner.turned(word, schema[word]) for word in words]
    if not found:
        return False
    return found[0] if len(found) == 1 else {"anyOf": found}


@dataclass(frozen=True, slots=True)
class _Turner:
    """Turns single words around."""

    context: Mapping[str, Any]
    find: Find
    depth: int

    def turned(self, word: str, value: Any) -> Schema:
        """What the word does not accept; raises InvalidRequest."""
        if word in _OPPOSITES and isinstance(value, int | float) and not isinstance(value, bool):
            kind, opposite, step = _OPPOSITES[word]
            possible = value + step >= 0 or not step
            return {"type": kind, opposite: value + step} if possible else False
        turned = _TURNED.get(word)
        if turned is None or not isinstance(value, turned[0]):
            raise InvalidRequest(f"{word!r} in it cannot be turned around")
        return turned[1](self, value)

    def const(self, value: Any) -> Schema:
        return _other_values([value], self.context)

    def enum(self, values: list[object]) -> Schema:
        return _other_values(values, self.context)

    def type(self, kinds: Any) -> Schema:
        return _other_kinds(kinds if isinstance(kinds, list) else [kinds])

    def required(self, names: list[object]) -> Schema:
        return _any_of({"type": "object", "properties": {f"{name}": False}} for name in names)

    def properties(self, schemas: Mapping[str, Any]) -> Schema:
        declared = _mapping(self.context.get("properties"))
        return _any_of(
            {"type": "object", "required": [name],
             "properties": {name: negated(inner, _mapping(declared.get(name)), self.find, self.depth + 1)}}
            for name, inner in schemas.items()
        )  # fmt: skip

    def any_of(self, options: list[object]) -> Schema:
        return {"allOf": [self._deeper(option) for option in options]}

    def all_of(self, parts: list[object]) -> Schema:
        return _any_of(self._deeper(part) for part in parts)

    def negation(self, schema: Any) -> Schema:
        return cast("Schema", schema)

    def reference(self, target: str) -> Schema:
        return self._deeper(self.find(target))

    def _deeper(self, schema: object) -> Schema:
        return negated(schema, self.context, self.find, self.depth + 1)


_TURNED: dict[str, tuple[type | tuple[type, ...], Callable[[_Turner, Any], Schema]]] = {
    "const": (object, _Turner.const), "enum": (list, _Turner.enum), "type": ((str, list), _Turner.type),
    "required": (list, _Turner.required), "properties": (Mapping, _Turner.properties),
    "anyOf": (list, _Turner.any_of), "allOf": (list, _Turner.all_of), "not": (object, _Turner.negation),
    "$ref": (str, _Turner.reference),
}  # fmt: skip


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _any_of(options: Any) -> Schema:
    found = list(options)
    return {"anyOf": found} if found else False


def _other_kinds(kinds: Sequence[object]) -> Schema:
    if "integer" in kinds and "number" not in kinds:
        raise InvalidRequest("numbers that are not whole cannot be held")
    others = [kind for kind in KINDS if kind not in kinds]
    return {"type": others} if others else False


def _other_values(values: Sequence[object], context: Mapping[str, Any]) -> Schema:
    known = listed_values(context)
    if known is not None:
        left = [one for one in known if not any(_same(one, value) for value in values)]
        return {"enum": left} if left else False
    kinds = {kind_of(value) for value in values}
    if not kinds <= {"string", "boolean", "null"}:
        raise InvalidRequest("only texts, true, false and null can be left out")
    texts = [value for value in values if isinstance(value, str)]
    if any(len(text) > LONGEST for text in texts):
        raise InvalidRequest(f"only texts of up to {LONGEST} characters can be left out")
    options: list[Schema] = [{"type": [kind for kind in KINDS if kind not in kinds]}]
    if texts:
        options.append({"type": "string", "pattern": WholePattern(other_than(texts))})
    flags = [flag for flag in (True, False) if not any(value is flag for value in values)]
    if len(flags) == 1:
        options.append({"const": flags[0]})
    return {"anyOf": options}


def _same(one: object, other: object) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def other_than(texts: Sequence[str]) -> str:
    """An expression of every text but these."""
    firsts = sorted({text[0] for text in texts if text})
    listed = "".join(character(ord(first)) for first in firsts)
    ways = [f"[^{listed}]{ANY}*" if firsts else f"{ANY}+", *([] if "" in texts else [""])]
    for first in firsts:
        rest = other_than([text[1:] for text in texts if text.startswith(first)])
        ways.append(f"{character(ord(first))}(?:{rest})")
    return "|".join(ways)
