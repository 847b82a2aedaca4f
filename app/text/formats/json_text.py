"""JSON's own rules (RFC 8259), in the layouts that models write: compact, spaced or indented.

What a model could repeat for ever is bounded: spaces, digits and, without a schema, the depth.
Surrogate halves are not allowed, so that one character is one character.
"""

import json
from collections.abc import Sequence

from engine.grammar.rules import Bytes, Choice, Grammar, Named, Repeat, Row, Rule, Text

DEEPEST = 24  # nesting depth of values without a schema
MOST_DIGITS, MOST_INDENT = 15, 24

NOTHING = Text(b"")
DIGIT = Bytes(((0x30, 0x39),))
_HEX = Bytes(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))
_INDENT = Bytes(((0x09, 0x09), (0x20, 0x20)))
_TAIL = Bytes(((0x80, 0xBF),))
SPACE = Named("space")
COMMA, COLON = Row((Text(b","), SPACE)), Row((Text(b":"), Repeat(Text(b" "), 0, 1)))
_UNICODE = Row(
    (
        Text(b"u"),
        Choice(
            (
                Row((Bytes(((0x30, 0x39), (0x41, 0x43), (0x45, 0x46), (0x61, 0x63), (0x65, 0x66))), Repeat(_HEX, 3, 3))),
                Row((Bytes(((0x44, 0x44), (0x64, 0x64))), Bytes(((0x30, 0x37),)), Repeat(_HEX, 2, 2))),
            )
        ),
    )
)  # fmt: skip
CHARACTER = Choice(
    (
        Bytes(((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x7F))),
        Row((Bytes(((0xC2, 0xDF),)), _TAIL)),
        Row((Text(b"\xe0"), Bytes(((0xA0, 0xBF),)), _TAIL)),
        Row((Bytes(((0xE1, 0xEC), (0xEE, 0xEF))), _TAIL, _TAIL)),
        Row((Text(b"\xed"), Bytes(((0x80, 0x9F),)), _TAIL)),
        Row((Text(b"\xf0"), Bytes(((0x90, 0xBF),)), _TAIL, _TAIL)),
        Row((Bytes(((0xF1, 0xF3),)), _TAIL, _TAIL, _TAIL)),
        Row((Text(b"\xf4"), Bytes(((0x80, 0x8F),)), _TAIL, _TAIL)),
        Row(
            (
                Text(b"\\"),
                Choice((Bytes(tuple((ord(c), ord(c)) for c in '"\\/bfnrt')), _UNICODE)),
            )
        ),
    )
)
STRING, NUMBER, INTEGER, BOOLEAN, NULL = map(
    Named, ("string", "number", "integer", "boolean", "null")
)

_NATURAL = Choice((Text(b"0"), Row((Bytes(((0x31, 0x39),)), Repeat(DIGIT, 0, MOST_DIGITS)))))
_MINUS = Repeat(Text(b"-"), 0, 1)
_FRACTION = Repeat(Row((Text(b"."), Repeat(DIGIT, 1, MOST_DIGITS))), 0, 1)
_EXPONENT = Repeat(
    Row((Bytes(((0x45, 0x45), (0x65, 0x65))), Repeat(Bytes(((0x2B, 0x2B), (0x2D, 0x2D))), 0, 1), Repeat(DIGIT, 1, 2))),
    0, 1,
)  # fmt: skip
POSITIVE = Row((_NATURAL, _FRACTION, _EXPONENT))  # numbers from 0 on
PARTS: tuple[tuple[str, Rule], ...] = (
    ("string", Row((Text(b'"'), Repeat(CHARACTER), Text(b'"')))),
    ("number", Row((_MINUS, POSITIVE))),
    ("integer", Row((_MINUS, _NATURAL))),
    ("boolean", Choice((Text(b"true"), Text(b"false")))),
    ("null", Text(b"null")),
    ("space", Choice((NOTHING, Text(b" "), Row((Text(b"\n"), Repeat(_INDENT, 0, MOST_INDENT)))))),
)  # fmt: skip


def exactly(value: object) -> Rule:
    """This value, as json.dumps writes it."""
    return Text(json.dumps(value, ensure_ascii=False).encode())


def listed(item: Rule, least: int = 0, most: int | None = None) -> Rule:
    """An array of ``least`` to ``most`` items."""
    others = None if most is None else most - 1
    some: Rule = Row((item, Repeat(Row((COMMA, item)), max(0, least - 1), others)))
    inside = [some] if most != 0 else []
    if least == 0:
        inside.append(NOTHING)
    return wrapped(b"[", Choice(tuple(inside)), b"]")


def wrapped(opening: bytes, inside: Rule, closing: bytes) -> Rule:
    """Brackets around ``inside``, with optional space."""
    return Row((Text(opening), SPACE, inside, SPACE, Text(closing)))


def mapped(value: Rule) -> Rule:
    """An object with any keys."""
    member = Row((STRING, COLON, value))
    return wrapped(b"{", Choice((Row((member, Repeat(Row((COMMA, member))))), NOTHING)), b"}")


def values() -> tuple[tuple[str, Rule], ...]:
    """Rules of any value by the remaining depth: ``value 0`` is a scalar."""
    scalars = (STRING, NUMBER, BOOLEAN, NULL)
    found: list[tuple[str, Rule]] = [("value 0", Choice(scalars))]
    for level in range(1, DEEPEST + 1):
        inner = Named(f"value {level - 1}")
        found.append((f"object {level}", mapped(inner)))
        found.append(
            (f"value {level}", Choice((*scalars, Named(f"object {level}"), listed(inner))))
        )
    return tuple(found)


ANY, OBJECT = Named(f"value {DEEPEST}"), Named(f"object {DEEPEST}")


def grammar(root: Rule, rules: Sequence[tuple[str, Rule]] = ()) -> Grammar:
    """A grammar of one JSON text; one leading space is allowed, as some models' first tokens have one."""
    first = Row((Repeat(Text(b" "), 0, 1), root))
    return Grammar((("root", first), *rules, *values()[::-1], *PARTS))
