"""Spelling: the bytes of a vocabulary, and which tokens a grammar state allows."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import InvalidRequest
from engine.grammar.rules import Bytes, Grammar, Rule, Text
from engine.grammar.states import DEAD, States


class Speller(Protocol):
    """A model's tokenizer; the engine uses it for grammars only, at the first one."""

    def tokens(self, many: int) -> Sequence[bytes]:
        """The bytes of tokens 0 to ``many`` - 1; empty for control tokens."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        ...


Encode = Callable[[str], Sequence[int]]
LONGEST = 64  # bytes; longer tokens, mostly runs of spaces, are never allowed


class Spelling:
    """The bytes of every token."""

    def __init__(self, tokens: Sequence[bytes], encode: Encode | None = None) -> None:
        """``tokens`` are empty for control tokens, which no text contains."""
        self._encode = encode
        self.tokens = tuple(token if len(token) <= LONGEST else b"" for token in tokens)
        longest = max(map(len, self.tokens), default=0)
        padded = b"".join(token.ljust(longest, b"\0") for token in self.tokens)
        self._bytes = np.frombuffer(padded, np.uint8).reshape(len(self.tokens), longest)
        self._lengths = np.array([len(token) for token in self.tokens], np.int16)
        self._spelled = np.flatnonzero(self._lengths)
        self._singles = frozenset(token[0] for token in self.tokens if len(token) == 1)

    def spell(self, before: bytes, text: bytes) -> tuple[int, ...]:
        """The tokens of ``text`` after ``before``; none if they cannot be determined.

        Encodes both together, because ``before`` may change the first token, and else ``text``
        alone, for a model that stopped in the middle of a word.
        """
        return self._end_of(before + text, text) or self._end_of(text, text)

    def _end_of(self, whole: bytes, text: bytes) -> tuple[int, ...]:
        """The last tokens of ``whole``, if they are exactly ``text``."""
        found: list[int] = []
        encode = self._encode or _nothing
        for token in reversed(encode(whole.decode(errors="ignore"))):
            word = self.tokens[token]
            if not text or not word or not text.endswith(word):
                break
            found.append(token)
            text = text.removesuffix(word)
        return () if text else tuple(reversed(found))

    def check(self, grammar: Grammar) -> None:
        """Raise InvalidRequest if the grammar needs a byte without a token.

        Only ASCII bytes are checked: a vocabulary with a token that ends within a longer character
        has a token for every byte.
        """
        for part in grammar.parts():
            lacking = _lacking(part, self._singles)
            if lacking is not None:
                raise InvalidRequest(
                    f"the grammar needs the byte 0x{lacking:02X}, for which this model's vocabulary "
                    "has no token; ask for the format in the prompt and check the answer"
                )

    def allowed(self, states: States, state: int) -> NDArray[np.bool_]:
        """Mask [V] of the tokens after which the text can still end."""
        found = np.zeros(len(self.tokens), np.bool_)
        tokens, here = self._spelled, np.full(len(self._spelled), state, np.int32)
        place = 0
        while len(tokens):
            table = states.steps(np.flatnonzero(np.bincount(here)).tolist())
            here = table[here, self._bytes[tokens, place]]
            alive = here != DEAD
            tokens, here = tokens[alive], here[alive]
            place += 1
            over = self._lengths[tokens] == place
            found[tokens[over]] = True
            tokens, here = tokens[~over], here[~over]
        return found


def _nothing(_: str) -> Sequence[int]:
    return ()


def _lacking(part: Rule, singles: frozenset[int]) -> int | None:
    """A byte that the part needs and that is no token."""
    match part:
        case Text(value):
            return next((byte for byte in value if byte not in singles), None)
        case Bytes(ranges):
            choices = [b for low, high in ranges for b in range(low, min(high, 127) + 1)]
            return None if not choices or singles & set(choices) else choices[0]
        case _:
            return None
