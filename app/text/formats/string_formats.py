"""Forms that a schema may ask of a string, each as a rule: narrower than their standards, never wider."""

from app.text.formats.json_text import DIGIT
from app.text.formats.numbers import between
from engine.grammar.rules import Bytes, Choice, Repeat, Row, Rule, Text

_LETTERS = ((0x61, 0x7A),)
_WORD = Bytes((*_LETTERS, (0x30, 0x39), (0x41, 0x5A)))
_HEX = Bytes(((0x30, 0x39), (0x61, 0x66)))
_DASH, _COLON, _DOT = Text(b"-"), Text(b":"), Text(b".")


def _two(low: int, high: int) -> Rule:
    """Two digits, a leading zero among them."""
    return Choice(tuple(Text(f"{number:02}".encode()) for number in range(low, high + 1)))


def _label() -> Rule:
    """A word of a host's name, which has a letter or digit on either side of a dash."""
    return Row((_WORD, Repeat(Row((Repeat(_DASH, 0, 1), _WORD)), 0, 30)))


def _days() -> Rule:
    """Days of the year, and every fourth year's 29th of February but a century's."""
    year = Row((Bytes(((0x31, 0x32),)), Repeat(DIGIT, 3, 3), _DASH))
    fourth = Choice(tuple(Text(f"{number:02}".encode()) for number in range(4, 100, 4)))
    leap = Row((Bytes(((0x31, 0x32),)), DIGIT, fourth, Text(b"-02-29")))
    lengths = ((28, (2,)), (30, (4, 6, 9, 11)), (31, (1, 3, 5, 7, 8, 10, 12)))
    months = tuple(
        Row((Choice(tuple(_two(month, month) for month in same)), _DASH, _two(1, days)))
        for days, same in lengths
    )
    return Choice((Row((year, Choice(months))), leap))


_DATE = _days()
_CLOCK = Row((_two(0, 23), _COLON, _two(0, 59), _COLON, _two(0, 59), Repeat(Row((_DOT, Repeat(DIGIT, 1, 6))), 0, 1)))  # fmt: skip
_ZONE = Choice((Text(b"Z"), Row((Choice((Text(b"+"), _DASH)), _two(0, 23), _COLON, _two(0, 59)))))
_HOST = Row((_label(), Repeat(Row((_DOT, _label())), 0, 3)))
_DOMAIN = Row((_label(), _DOT, Repeat(Row((_label(), _DOT)), 0, 2), Repeat(Bytes(_LETTERS), 2, 12)))
_NAME = Row((_WORD, Repeat(Row((Repeat(Choice((_DOT, _DASH, Text(b"_"), Text(b"+"))), 0, 1), _WORD)), 0, 30)))  # fmt: skip
_BYTE = between(0, 255)

FORMS: dict[str, Rule] = {
    "date": _DATE,
    "time": Row((_CLOCK, _ZONE)),
    "date-time": Row((_DATE, Text(b"T"), _CLOCK, _ZONE)),
    "email": Row((_NAME, Text(b"@"), _DOMAIN)),
    "hostname": _HOST,
    "ipv4": Row((_BYTE, _DOT, _BYTE, _DOT, _BYTE, _DOT, _BYTE)),
    "uuid": Row(
        tuple(
            part
            for at, many in enumerate((8, 4, 4, 4, 12))
            for part in ([_DASH] if at else []) + [Repeat(_HEX, many, many)]
        )
    ),
}
