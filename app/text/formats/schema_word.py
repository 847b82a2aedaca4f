"""One word of a schema on its way into words that llguidance holds."""

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from engine.errors import InvalidRequest

Found = dict[str, Any]


class Document(Protocol):
    """The document that a word is part of."""

    choices: list[str]  # places of oneOf

    def inner(self, schema: object, place: str, depth: int) -> Found | bool:
        """A schema within another, rewritten."""
        ...

    def name_of(self, target: object, place: str) -> str:
        """The reference, to a definition of its own."""
        ...

    def pointed(self, target: str) -> object:
        """The value that a reference leads to."""
        ...


class Words:
    """The words of one schema, written into ``found`` one by one."""

    def __init__(
        self, document: Document, words: Mapping[str, Any], place: str, depth: int, found: Found
    ) -> None:
        self.document, self.words, self.found = document, words, found
        self.place, self.depth = place, depth

    def refusal(self, word: str, why: str = "is not supported") -> InvalidRequest:
        """The error for a word that cannot be held."""
        return InvalidRequest(
            f"{word!r} at {self.place} {why}; remove it and validate the answer yourself"
        )

    def inner(self, schema: object, *way: str) -> Found | bool:
        """A schema within this one, rewritten."""
        place = "/".join((self.place, *map(step_of, way)))
        return self.document.inner(schema, place, self.depth)

    def count(self, word: str, value: Any) -> None:
        """A natural number."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value % 1:
            raise InvalidRequest(
                f"{word!r} at {self.place} is {value!r}; it must be a whole number, 0 or more"
            )
        self.found[word] = min(int(value), 2**31 - 1)

    def also(self, *schemas: object) -> None:
        """What has to hold as well."""
        if schemas:
            self.found.setdefault("allOf", []).extend(schemas)


def pointed(document: object, pointer: str) -> object:
    """The value at a JSON pointer; raises InvalidRequest."""
    here: Any = document
    for part in pointer.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and key in here:
            here = here[key]
        elif isinstance(here, list) and key.isdecimal() and int(key) < len(here):
            here = here[int(key)]
        else:
            raise InvalidRequest(f"the reference {pointer!r} points to nothing")
    return here


def step_of(name: str) -> str:
    """A name as a step of a pointer."""
    return name.replace("%", "%25").replace("~", "~0").replace("/", "~1")
