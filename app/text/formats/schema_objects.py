"""Words of JSON Schema about objects: see ``schema_words.py``."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

from app.text.formats.pattern import character, whole_patterns
from app.text.formats.schema_word import Found, Words
from engine.errors import InvalidRequest

MOST_DEPENDENT = 6  # names on whose presence something depends: each doubles the grammar
UNORDERED = (2, 3)  # names in any order: each more multiplies the grammar
_COMPOSED = ("$ref", "allOf", "anyOf", "oneOf", "if", "not", "dependentSchemas", "dependencies")
_NAMING = ("type", "pattern", "enum", "const", "minLength", "maxLength")
_SILENT = ("title", "description", "$comment", "examples", "default")


class ObjectWords(Words):
    """One method for each word, or for several that are alike."""

    def properties(self, word: str, value: Any) -> None:
        """Schemas by name, or by a pattern of names."""
        if not isinstance(value, Mapping):
            raise InvalidRequest(f"{word!r} at {self.place} must be an object")
        inner = {name: self.inner(schema, word, name) for name, schema in value.items()}
        if word == "properties":
            self.found[word] = inner
            return
        named = {f"^(?:{self._name_pattern(word, n)})$": one for n, one in inner.items()}
        if len(named) < len(inner):
            raise self.refusal(word, "has the same pattern twice")
        self.found[word] = named

    def _name_pattern(self, word: str, pattern: str) -> str:
        """The pattern of names as an expression of whole names."""
        try:
            wholes = whole_patterns(f"{pattern}")
        except InvalidRequest as error:
            raise self.refusal(word, f"has the name {pattern!r}: {error}") from error
        if len(wholes) > 1:
            raise self.refusal(word, f"has the name {pattern!r}, which looks ahead")
        return wholes[0]

    def others(self, word: str, value: Any) -> None:
        """Properties or items that are not listed."""
        if word.startswith("unevaluated"):
            plain = "additionalProperties" if word.endswith("Properties") else "items"
            if value is True or plain in self.words:
                return
            if any(one in self.words for one in _COMPOSED):
                raise self.refusal(word, "together with other schemas is not supported")
            self.found[plain] = self.inner(value, word)
        elif word not in self.found:  # else propertyNames has said it
            self.found[word] = self.inner(value, word)

    def required(self, word: str, value: Any) -> None:
        """Names that must be there."""
        if not isinstance(value, list) or any(not isinstance(name, str) for name in value):
            raise InvalidRequest(f"'required' at {self.place} must be a list of names")
        self.found[word] = value
        names, required = self._declared()
        if not names and len(required) in UNORDERED:  # then the schema has no order
            orders = (dict.fromkeys(order, True) for order in permutations(required))
            self.also({"anyOf": [{"properties": order} for order in orders]})

    def least(self, word: str, value: Any) -> None:
        """At least this many properties, next to the listed ones."""
        self.count(word, value)
        least = self.found.pop(word)
        names, required = self._declared()
        if least <= len(required):
            return
        optional = [name for name in names if name not in required]
        if least == len(required) + 1 and optional and not self._closed():
            others = {"properties": dict.fromkeys(optional, False), word: least}
            self.also({"anyOf": [*({"required": [name]} for name in optional), others]})
            return
        self.found[word] = least

    def most(self, word: str, value: Any) -> None:
        """At most this many properties."""
        self.count(word, value)
        names, required = self._declared()
        if self.found[word] == 0 and not required:
            del self.found[word]
            self._no_properties()
        elif self._closed() and len(names) <= self.found[word]:
            del self.found[word]

    def _no_properties(self) -> None:
        names, _ = self._declared()
        self.also({"properties": dict.fromkeys(names, False), "additionalProperties": False})

    def _declared(self) -> tuple[list[str], list[str]]:
        """The names of its properties, and those that are required."""
        properties, required = self.words.get("properties"), self.words.get("required")
        names = [*properties] if isinstance(properties, Mapping) else []
        listed = required if isinstance(required, list) else []
        needed = [*dict.fromkeys(name for name in listed if isinstance(name, str))]
        return names, needed

    def _closed(self) -> bool:
        return self.words.get("additionalProperties") is False and not self.words.get(
            "patternProperties"
        )

    def names(self, word: str, value: Any) -> None:
        """propertyNames, as patternProperties."""
        said = set(value) - set(_SILENT) if isinstance(value, Mapping) else set()
        if value is False:
            self._no_properties()
            return
        kinds = value.get("type", "string") if isinstance(value, Mapping) else "string"
        said.discard("type")
        if "string" not in (kinds if isinstance(kinds, list) else [kinds]):
            self._no_properties()
        elif said:
            self.found |= self._of_names(word, value, said)

    def _of_names(self, word: str, value: Mapping[str, Any], said: set[str]) -> Found:
        declared, _ = self._declared()
        if "patternProperties" in self.words or not said <= set(_NAMING):
            raise self.refusal(word)
        if said in ({"enum"}, {"const"}):
            listed = value.get("enum", [value.get("const")])
            texts = [name for name in listed if isinstance(name, str)]
            if not set(declared) <= set(texts):
                raise self.refusal(word, "does not fit the names of properties")
            left = [text for text in texts if text not in declared]
            whole = "|".join("".join(character(ord(c)) for c in text) for text in left)
            if not left:
                return {"additionalProperties": False}
        elif declared or (len(said) > 1 and said != {"minLength", "maxLength"}):
            raise self.refusal(word, "with these words is not supported")
        elif said == {"pattern"}:
            whole = self._name_pattern(word, value["pattern"])
        else:
            least, most = value.get("minLength", 0), value.get("maxLength", "")
            whole = f"(?s:.){{{least},{most}}}"
            if not isinstance(least, int) or not isinstance(most, int | str):
                raise self.refusal(word, "has a length that is no whole number")
        others = self.inner(self.words.get("additionalProperties", True), "additionalProperties")
        return {"patternProperties": {f"^(?:{whole})$": others}, "additionalProperties": False}

    def dependent(self, word: str, value: Any) -> None:
        """What has to hold where a property is there."""
        if not isinstance(value, Mapping):
            raise InvalidRequest(f"{word!r} at {self.place} must be an object")
        if len(value) > MOST_DEPENDENT:
            raise self.refusal(word, f"with more than {MOST_DEPENDENT} names is not supported")
        for name, needed in value.items():
            then = {"required": needed} if isinstance(needed, list) else needed
            without = {"properties": {name: False}}
            self.also({"anyOf": [without, self.inner(then, word, name)]})
