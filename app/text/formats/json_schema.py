"""JSON Schema to a grammar whose texts all satisfy the schema.

A schema that cannot be held is refused with the place, or as far as it cannot be held let go: the
smallest part, never its neighbours. What is let go is named. Properties come in the schema's order.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from app.text.formats.check import checker
from app.text.formats.lark import json_text, json_value
from app.text.formats.schema_word import pointed, step_of
from app.text.formats.schema_words import Part, Rewriter, never_ends
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar

LARGEST = 1 << 20  # bytes
KEPT = 64  # schemas; agents send the same ones in every request
MOST_DIGITS = 20  # in a row: a float has 17, a whole number of 64 bits 19
MOST_TRIES = 300  # grammars that are compiled to find what cannot be held
# Words that are let go before others of the same schema.
_FIRST = (
    "pattern", "format", "multipleOf", "uniqueItems", "minProperties", "maxProperties", "minLength",
    "maxLength", "minItems", "maxItems", "patternProperties", "propertyNames", "not", "if", "oneOf",
    "anyOf", "allOf",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """A schema as llguidance takes it, within a grammar; ``freed`` is what is not held of it."""

    value: str  # what ``json_value`` makes of it
    text: str  # the grammar of such a text alone
    freed: tuple[str, ...] = ()


def schema_grammar(schema: object) -> Grammar:
    """The grammar of a schema; raises InvalidRequest."""
    held = held_schema(schema)
    return Grammar(held.text, held.freed, MOST_DIGITS)


def held_schema(schema: object, *, frees: bool = False) -> Held:
    """What can be held of a schema; raises InvalidRequest, where it ``frees`` only if it is no schema."""
    if schema is False:
        raise InvalidRequest("the schema is false, which accepts nothing")
    try:
        written = json.dumps(schema, ensure_ascii=False, allow_nan=False)
        size = len(written.encode())
    except (ValueError, RecursionError) as error:  # infinite, a surrogate half, or too deep
        raise InvalidRequest(f"the schema cannot be written as JSON: {error}") from error
    if size > LARGEST:
        raise InvalidRequest(f"the schema has {size} bytes; at most {LARGEST} are allowed")
    return _held(written, frees=frees)


@lru_cache(KEPT)
def _held(written: str, *, frees: bool) -> Held:
    return _Holder(json.loads(written), frees=frees).held()


class _Holder:
    """Finds what of one document can be held."""

    def __init__(self, document: object, *, frees: bool) -> None:
        self._document, self._frees = document, frees
        self._without: set[Part] = set()
        self._seen: set[str] = set()
        self._tries = 0

    def held(self) -> Held:
        rewriter, schema = self._rewritten("#")
        if never_ends(schema):
            if not self._frees:
                raise InvalidRequest("the schema never ends: its references have no way out")
            self._without.add(("#", ""))
            rewriter, schema = self._rewritten("#")
            rewriter.freed.append(("#", ""))
        trouble = checker().trouble_with(json_text(schema))
        if not trouble:
            return self._as_held(schema, rewriter)
        if not checker().trouble_with(json_text(schema, any_option=True)):
            loose = [(place, "oneOf") for place in rewriter.choices if self._is_loose(place)]
            return self._as_held(schema, rewriter, tuple(loose), any_option=True)
        self._free("#")
        if self._tries > MOST_TRIES:
            self._without = {("#", "")}
        if not self._frees:
            place, word = min(self._without, default=("#", ""))
            named = f"{word!r} at {place}" if word else f"the schema at {place}"
            raise InvalidRequest(
                f"{named} cannot be held ({trouble}); remove it and validate the answer yourself"
            )
        rewriter, schema = self._rewritten("#")
        loose = [(place, "oneOf") for place in rewriter.choices]
        return self._as_held(schema, rewriter, (*sorted(self._without), *loose), any_option=True)

    def _as_held(
        self, schema: Mapping[str, Any], rewriter: Rewriter, more: tuple[Part, ...] = (), *,
        any_option: bool = False,
    ) -> Held:  # fmt: skip
        parts = dict.fromkeys((*rewriter.freed, *more))
        freed = tuple(f"{word} at {place}" if word else place for place, word in parts)
        value = json_value(schema, any_option=any_option)
        return Held(value, json_text(schema, any_option=any_option), freed)

    def _rewritten(self, place: str, *more: Part) -> tuple[Rewriter, dict[str, Any]]:
        without = self._without.union(more)
        rewriter = Rewriter(self._document, frees=self._frees, without=without)
        return rewriter, rewriter.rewritten(place)

    def _is_loose(self, place: str) -> bool:
        """Whether options of a oneOf may hold at once, as far as can be known."""
        self._tries += 1
        return self._tries > MOST_TRIES or bool(
            checker().trouble_with(json_text(self._rewritten(place)[1]))
        )

    def _trouble(self, place: str, *more: Part) -> bool:
        """Whether the part cannot be held even without ``more``."""
        self._tries += 1
        if self._tries > MOST_TRIES:
            return True
        _, schema = self._rewritten(place, *more)
        return bool(checker().trouble_with(json_text(schema, any_option=True)))

    def _free(self, place: str) -> None:
        """Find the smallest parts of what is at a place that have to go for it to be held."""
        if place in self._seen or self._tries > MOST_TRIES or not self._trouble(place):
            return
        self._seen.add(place)
        schema = pointed(self._document, place)
        for inner in _inner(schema, place):
            self._free(inner)
        if not self._trouble(place):
            return
        if self._tries > MOST_TRIES:
            return
        words = [*schema] if isinstance(schema, Mapping) else []
        words.sort(key=lambda word: _FIRST.index(word) if word in _FIRST else len(_FIRST))
        for word in words:
            if not self._trouble(place, (place, word)):
                self._without.add((place, word))
                return
        self._without.add((place, ""))


def _inner(schema: object, place: str) -> Iterator[str]:
    """The places of the schemas within one."""
    if not isinstance(schema, Mapping):
        return
    for word, value in schema.items():
        if word in ("properties", "patternProperties", "dependentSchemas") and isinstance(
            value, Mapping
        ):
            yield from (f"{place}/{word}/{step_of(name)}" for name in value)
        elif word in ("anyOf", "allOf", "oneOf", "prefixItems", "items") and isinstance(
            value, list
        ):
            yield from (f"{place}/{word}/{n}" for n in range(len(value)))
        elif word in ("items", "additionalProperties", "additionalItems") and isinstance(
            value, Mapping
        ):
            yield f"{place}/{word}"
        elif word == "$ref" and isinstance(value, str) and value.startswith("#"):
            yield value
