"""JSON Schema in the words that llguidance holds: what it lacks is said in others, or refused.

llguidance fixes the order of properties to that of the schema, and so does what is made here.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from app.text.formats.kinds import TYPES
from app.text.formats.schema_objects import ObjectWords
from app.text.formats.schema_values import ValueWords
from app.text.formats.schema_word import Found, pointed
from engine.errors import InvalidRequest

DEEPEST = 40  # levels of a schema
Part = tuple[str, str]  # a place and a word; the empty word is all of what is there


class Rewriter:
    """Rewrites one part of a document; ``freed`` are the words that were left out."""

    def __init__(
        self, document: object, *, frees: bool = False, without: Collection[Part] = ()
    ) -> None:
        """What cannot be held is left out where it ``frees``, and refused else.

        ``without`` is left out in any case.
        """
        self._document, self._frees, self._without = document, frees, frozenset(without)
        self._old = old_draft(document)
        self._names: dict[str, str] = {}  # of references
        self._pending: list[str] = []
        self.freed: list[Part] = []
        self.choices: list[str] = []  # places of oneOf

    def rewritten(self, at: str = "#") -> Found:
        """The part at a pointer, complete by itself; raises InvalidRequest."""
        root = self._schema(pointed(self._document, at), at, 0)
        found: Found = dict(root) if isinstance(root, Mapping) else {"allOf": [root]}
        definitions = {}
        while self._pending:
            place = self._pending.pop()
            inner = self._schema(pointed(self._document, place), place, 0)
            definitions[self._names[place].rpartition("/")[2]] = inner
        return found | ({"$defs": definitions} if definitions else {})

    def _schema(self, schema: object, place: str, depth: int) -> Found | bool:
        if isinstance(schema, bool):
            return schema
        if (place, "") in self._without:
            return _kind_alone(schema)
        problem = self._problem(schema, place, depth)
        if problem:
            if not self._frees:
                raise InvalidRequest(problem)
            self.freed.append((place, ""))
            return True
        assert isinstance(schema, Mapping)
        # programs write null for a word that they do not set
        if self._old and "$ref" in schema:  # before 2019 words next to a reference say nothing
            schema = {"$ref": schema["$ref"]}
        given = {w: v for w, v in schema.items() if v is not None or w == "const"}
        words = {w: v for w, v in given.items() if (place, w) not in self._without}
        found: Found = {}
        writer = _Word(self, words, place, depth, found)
        for word in words:
            self._take(writer, word)
        match found:  # a reference with a title is often written so, and may lead back here
            case {"allOf": [bool() | dict() as only], **rest} if not rest:
                return only
            case _:
                return found

    def _take(self, writer: "_Word", word: str) -> None:
        """Write one word, or free it."""
        try:
            if word in _TAKEN:
                _TAKEN[word](writer, word, writer.words[word])
        except InvalidRequest:
            if not self._frees:
                raise
            self.freed.append((writer.place, word))

    def _problem(self, schema: object, place: str, depth: int) -> str:
        if not isinstance(schema, Mapping):
            return f"the schema at {place} must be an object, true or false"
        if depth > DEEPEST:
            return f"the schema is more than {DEEPEST} levels deep at {place}"
        if place != "#" and isinstance(schema.get("$id"), str) and _has_references(schema):
            return f"'$id' at {place} is not supported above references; remove it"
        return ""

    def inner(self, schema: object, place: str, depth: int) -> Found | bool:
        """A schema within another."""
        return self._schema(schema, place, depth + 1)

    def name_of(self, target: object, place: str) -> str:
        """The reference, to a definition of its own."""
        if not isinstance(target, str) or (target != "#" and not target.startswith("#/")):
            raise InvalidRequest(
                f"the reference {target!r} at {place} must be # or begin with #/, as '#/$defs/NAME'"
            )
        if target not in self._names:
            pointed(self._document, target)
            self._names[target] = f"#/$defs/{len(self._names)}"
            self._pending.append(target)
        return self._names[target]

    def pointed(self, target: str) -> object:
        """The value that a reference leads to."""
        return pointed(self._document, target)


class _Word(ValueWords, ObjectWords):
    """All words."""


_Taken = Callable[[_Word, str, Any], None]
_TAKEN: dict[str, _Taken] = {
    "type": _Word.type, "enum": _Word.values, "const": _Word.values, "$ref": _Word.reference,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _Word.several),
    "not": _Word.negation, "if": _Word.condition,
    **dict.fromkeys(("$dynamicRef", "$recursiveRef"), _Word.refused),
    "pattern": _Word.pattern, "format": _Word.format,
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _Word.count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _Word.bound),
    "multipleOf": _Word.multiple, "items": _Word.items, "prefixItems": _Word.items,
    "uniqueItems": _Word.unique, "contains": _Word.contains,
    "properties": _Word.properties, "patternProperties": _Word.properties,
    **dict.fromkeys(("additionalProperties", "unevaluatedProperties", "unevaluatedItems"), _Word.others),
    "required": _Word.required, "minProperties": _Word.least, "maxProperties": _Word.most,
    "propertyNames": _Word.names,
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), _Word.dependent),
}  # fmt: skip


def never_ends(schema: Mapping[str, Any]) -> bool:
    """Whether references of a rewritten schema lead on for ever, so that no value is one of it."""
    definitions = schema.get("$defs", {})
    ending: set[str] = set()
    while more := {
        name for name, inner in definitions.items() if name not in ending and _ends(inner, ending)
    }:
        ending |= more
    return not _ends(schema, ending)


def _ends(schema: object, ending: set[str]) -> bool:
    """Whether the schema has a value, with the definitions that have one.

    What has none for another reason is found by llguidance.
    """
    if not isinstance(schema, Mapping):
        return True
    known = "$ref" not in schema or schema["$ref"].rpartition("/")[2] in ending
    whole = all(_ends(part, ending) for part in schema.get("allOf", ()))
    chosen = all(
        any(_ends(way, ending) for way in schema[word])
        for word in ("anyOf", "oneOf")
        if word in schema
    )
    return known and whole and chosen and all(_ends(part, ending) for part in _needed(schema))


def _needed(schema: Mapping[str, Any]) -> list[object]:
    """Schemas of what every value must contain."""
    kind = schema.get("type")
    if kind in ("object", ["object"]):
        properties = schema.get("properties", {})
        return [properties.get(name, True) for name in schema.get("required", ())]
    if kind in ("array", ["array"]):
        least, first = schema.get("minItems", 0), schema.get("prefixItems", [])
        return [*first[:least], *([schema.get("items", True)] if least > len(first) else [])]
    return []


def old_draft(document: object) -> bool:
    """Whether the document says that it is of a draft before 2019."""
    named = document.get("$schema", "") if isinstance(document, Mapping) else ""
    return any(f"draft-0{number}" in str(named) for number in (3, 4, 6, 7))


def _kind_alone(schema: object) -> Found | bool:
    """The declared type of what cannot be held, which stays."""
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    kinds = kind if isinstance(kind, list) else [kind]
    return {"type": kind} if kinds and all(one in TYPES for one in kinds) else True


def _has_references(schema: Mapping[str, Any]) -> bool:
    return any("$ref" in inner for inner in _within(schema))


def _within(value: object) -> Iterator[Mapping[str, Any]]:
    """All objects in a value."""
    ahead = [value]
    while ahead:
        match ahead.pop():
            case Mapping() as inner:
                yield inner
                ahead += inner.values()
            case list() as several:
                ahead += several
            case _:
                pass
