"""What an answer may look like: a grammar in llguidance's Lark notation, and what is freed of it."""

from dataclasses import dataclass

CONTROL_BYTE = b"\xff"  # before the text of a control token that grammars name: no text has it


@dataclass(frozen=True, slots=True)
class Grammar:
    """A frozen value, safe to pickle; rules begin at ``start``.

    ``freed`` names what was asked for and is not held, in words for the client. ``most_digits`` is how
    many may follow each other outside of strings where anything else may: a number has no other end.
    """

    source: str
    freed: tuple[str, ...] = ()
    most_digits: int | None = None
