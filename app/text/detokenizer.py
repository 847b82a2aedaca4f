"""Token ids to text that can be shown at once: whole characters, and never a stop text."""

import codecs
import json
from collections.abc import Iterable
from typing import Any, Protocol

from tokenizers import Tokenizer

from engine.errors import ModelUnusable

BYTE_NAMES = {f"<0x{byte:02X}>": bytes([byte]) for byte in range(256)}


class ByteTable(Protocol):
    """The bytes of each token."""

    drops_first_space: bool

    def of(self, token: int) -> bytes:
        """The bytes of one token, which may be a part of a character."""
        ...


class TokenBytes:
    """The bytes of each token; special tokens have none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        added = tokenizer.get_added_tokens_decoder()
        self._specials = frozenset(key for key, token in added.items() if token.special)
        steps = _decoder_steps(tokenizer)
        kinds = {step["type"] for step in steps}
        if not kinds & {"ByteLevel", "ByteFallback", "Metaspace"}:
            raise ModelUnusable(f"the tokenizer's decoder ({', '.join(kinds)}) is not known")
        self._alphabet = byte_alphabet() if "ByteLevel" in kinds else None
        self._swaps = tuple(swap for step in steps for swap in _swap(step))
        self.drops_first_space = any(_drops_first_space(step) for step in steps)

    def of(self, token: int) -> bytes:
        """The bytes of one token, which may be a part of a character."""
        text = None if token in self._specials else self._tokenizer.id_to_token(token)
        if text is None:  # special, or padding of the vocabulary
            return b""
        if self._alphabet is None:
            return BYTE_NAMES.get(text) or self._swapped(text).encode()
        if any(character not in self._alphabet for character in text):
            return text.encode()  # an added token is written as it is
        return bytes(self._alphabet[character] for character in text)

    def _swapped(self, text: str) -> str:
        for old, new in self._swaps:
            text = text.replace(old, new)
        return text


def byte_alphabet() -> dict[str, int]:
    """GPT-2's characters for bytes: printable Latin-1 is itself, the rest is moved past 255."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(moved)
    }


class Detokenizer:
    """Pieces of valid text; joined, they are what decoding all tokens at once gives."""

    def __init__(self, table: ByteTable, *, begins: bool = True) -> None:
        """``begins`` is False for the rest of a text, whose first space is text."""
        self._table = table
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at_start = begins and table.drops_first_space

    def feed(self, ids: Iterable[int]) -> str:
        """The text that these tokens complete; an open character waits for its last byte."""
        return self._trimmed(self._decoder.decode(b"".join(map(self._table.of, ids))))

    def end(self) -> str:
        """What is left: a replacement character where the last character is incomplete."""
        return self._trimmed(self._decoder.decode(b"", final=True))

    def _trimmed(self, text: str) -> str:
        if not self._at_start or not text:
            return text
        self._at_start = False
        return text.removeprefix(" ")


class StopFilter:
    """Lets text through up to the first stop text; holds back what may become one."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = ""  # the text that ended the answer

    @property
    def hit(self) -> bool:
        """Whether one was there."""
        return bool(self.found)

    def feed(self, text: str) -> str:
        """The part of all text so far that is now known to be outside of any stop text."""
        if self.hit:
            return ""
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:  # the one completed first counts, whatever the pieces were
            end, at = min(found)
            self.found, self._held = text[at:end], ""
            return text[:at]
        free = len(text) - open_length(text, self._stops)
        self._held = text[free:]
        return text[:free]

    def end(self) -> str:
        """The text held back, when no stop text came of it."""
        rest, self._held = self._held, ""
        return rest


def open_length(text: str, sought: Iterable[str]) -> int:
    """Length of the longest end of ``text`` that starts one of the ``sought`` texts."""
    sought = tuple(sought)
    lengths = range(min(len(text), max(map(len, sought), default=1) - 1), 0, -1)
    starts = (n for n in lengths if any(each.startswith(text[-n:]) for each in sought))
    return next(starts, 0)


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The tokenizer's decoder as its file describes it, a sequence flattened."""
    if tokenizer.decoder is None:
        return [{"type": "none"}]
    described = json.loads(tokenizer.decoder.__getstate__())  # its only description
    return described["decoders"] if described["type"] == "Sequence" else [described]


def _swap(step: dict[str, Any]) -> list[tuple[str, str]]:
    if step["type"] == "Metaspace":
        return [(step["replacement"], " ")]
    if step["type"] == "Replace" and "String" in step["pattern"]:
        return [(step["pattern"]["String"], step["content"])]
    return []


def _drops_first_space(step: dict[str, Any]) -> bool:
    if step["type"] == "Metaspace":
        return bool(step.get("prepend_scheme", "always") != "never")
    return bool(step["type"] == "Strip" and step["content"] == " " and step["start"] > 0)
