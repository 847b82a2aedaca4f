"""What an answer may look like: a grammar in llguidance's Lark notation, and what is freed of it."""

from dataclasses import dataclass

CONTROL_BYTE = b"\xff"  # before the text of a control token that grammars name: no text has it


@dataclass(frozen=True, slots=True)
class Grammar:
    """A frozen value, safe to pickle; rules begin at ``start``.

    ``freed`` names what was asked for and is not held, in words for the client.
    """

    source: str
    freed: tuple[str, ...] = ()
