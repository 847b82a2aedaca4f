"""A model's tokens as llguidance reads them: whole for masks, byte by byte for drafts."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol, cast

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from engine.errors import InvalidRequest
from engine.grammar.grammar import CONTROL_BYTE, Grammar

LONGEST = 64  # bytes; longer tokens, mostly runs of spaces, are never allowed
BYTES = 256
MOST_TOKENS = 1 << 20  # of a model
# A thousand optional properties are two thousand items in a row; a mask takes 25 ms at most.
LIMITS = LLParserLimits(max_items_in_row=20_000, step_max_items=500_000, verbose_errors=False)
_PLACE = re.compile(r"^(?:at )?[0-9]+\([0-9]+\): (?:failed to compile JSON schema: )?")
_NUMBERED = re.compile(r"<\[\^?([0-9]+)\]>")
# The model spells a text as it likes, so that a mask is what the grammar allows and nothing less.
_HEAD = '%llguidance {"no_forcing": true}\n'


class Speller(Protocol):
    """A model's tokenizer; the engine uses it for grammars only, at the first one."""

    def tokens(self, many: int) -> Sequence[bytes]:
        """The bytes of tokens 0 to ``many`` - 1; empty for control tokens."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        ...


Encode = Callable[[str], Sequence[int]]


class _Words:
    """What llguidance reads of a tokenizer; the end of the answer is a token after all others."""

    is_tokenizer_wrapper = True
    eos_token_id = None
    bos_token_id = None
    special_token_ids = ()

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = list(tokens)

    def __call__(self, text: object) -> list[int]:
        raise AssertionError("no text is forced, so none is encoded")


def _tokenizer(tokens: Sequence[bytes], slices: list[str] | None = None) -> LLTokenizer:
    return LLTokenizer(cast("TokenizerWrapper", _Words(tokens)), slices=slices)


class Vocabulary:
    """The bytes of every token; control tokens that grammars name begin with ``CONTROL_BYTE``."""

    def __init__(self, tokens: Sequence[bytes], encode: Encode | None = None) -> None:
        """``tokens`` are empty for control tokens that no answer contains."""
        self._encode = encode
        self.tokens = tuple(token if len(token) <= LONGEST else b"" for token in tokens)
        marks = {token: None for token in self.tokens if token.startswith(CONTROL_BYTE)}
        self.marks = tuple(mark for mark in marks if len(mark) > 1)
        self._numbers = {mark: BYTES + at for at, mark in enumerate(self.marks)}

    @cached_property
    def digits(self) -> NDArray[np.bool_]:
        """Which tokens begin with a digit [V]."""
        return np.array([token[:1].isdigit() for token in self.tokens], np.bool_)

    @cached_property
    def _whole(self) -> LLTokenizer:
        return _tokenizer(self.tokens)

    @cached_property
    def _bytes(self) -> LLTokenizer:
        single = [bytes([byte]) for byte in range(BYTES - 1)]
        return _tokenizer([*single, b"", *self.marks], slices=[])

    def matcher(self, grammar: Grammar) -> LLMatcher:
        """Over the tokens; raises InvalidRequest."""
        return _matcher(self._whole, grammar)

    def byte_matcher(self, grammar: Grammar) -> LLMatcher:
        """Over bytes, and after them ``marks``; in an error where the grammar names other tokens."""
        return LLMatcher(self._bytes, _HEAD + grammar.source, log_level=0, limits=LIMITS)

    def in_bytes(self, tokens: Sequence[int]) -> list[int]:
        """What ``byte_matcher`` reads for these tokens."""
        found: list[int] = []
        for token in tokens:
            word = self.tokens[token]
            found += [self._numbers[word]] if word in self._numbers else word
        return found

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


def trouble_with(grammar: Grammar, marks: Sequence[str] = ()) -> str:
    """Why no answer can be held to the grammar, whatever the model; empty if one can.

    ``marks`` are the control tokens that it names; those that it numbers are taken for tokens of the model.
    """
    words = [bytes([byte]) for byte in range(BYTES - 1)]
    words += [CONTROL_BYTE + mark.encode() for mark in marks]
    numbers = map(int, _NUMBERED.findall(grammar.source))
    words += [b""] * (min(max(numbers, default=-1) + 1, MOST_TOKENS) - len(words))
    start = LLMatcher(
        _tokenizer(words, slices=[]), _HEAD + grammar.source, log_level=0, limits=LIMITS
    )
    start.compute_bitmask()
    return first_line(start.get_error())


def first_line(error: str) -> str:
    """The sentence of an error of llguidance, without its place in the grammar that was made."""
    return _PLACE.sub("", error.partition("\n")[0].strip())


def _matcher(tokenizer: LLTokenizer, grammar: Grammar) -> LLMatcher:
    found = LLMatcher(tokenizer, _HEAD + grammar.source, log_level=0, limits=LIMITS)
    if found.is_error():
        raise InvalidRequest(f"the grammar cannot be used: {first_line(found.get_error())}")
    return found


def _nothing(_: str) -> Sequence[int]:
    return ()
