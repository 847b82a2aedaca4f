"""A GGUF file's vocabulary, as llama.cpp uses it; whether two models have the same tokens."""

import ctypes
import json
import os
from collections.abc import Iterable
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

from engine.errors import ModelUnusable
from engine.models.gguf.header import read_header
from engine.models.gguf.library import llama_library

_CONTROL = 1 << 3 | 1 << 0  # llama.cpp's attributes of tokens: control, unknown
_UNUSED = 5  # GGUF's type of tokens that only fill the vocabulary up
_PIECE_BYTES = 256
# Of the harmony format. llama.cpp calls them user-defined text; the file calls them control tokens.
_CHANNEL_MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
_FURTHER_MARKS = ("<|constrain|>",)


class GgufVocabulary:
    """Loads the vocabulary alone, no weights; one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Raises ModelUnusable."""
        self._api = llama_library().api
        parameters = self._api.llama_model_default_params()
        parameters.vocab_only = True
        self._model = self._api.llama_model_load_from_file(os.fsencode(path), parameters)
        if not self._model:
            raise ModelUnusable(f"{path}: llama.cpp cannot read its vocabulary; get the file again")
        self._vocabulary = self._api.llama_model_get_vocab(self._model)
        self.size = int(self._api.llama_vocab_n_tokens(self._vocabulary))
        self._marks = self._channel_marks()

    def close(self) -> None:
        """Free what llama.cpp holds."""
        if self._model:
            self._api.llama_model_free(self._model)
            self._model = None

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self.close()

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids; only with ``special`` do the texts of control tokens become these tokens."""
        ids = self._encoded(text, special=special)
        if special or self._marks.isdisjoint(ids):
            return ids
        letters = (self._encoded(letter, special=False) for letter in text)
        return [token for letter in letters for token in letter]

    def _encoded(self, text: str, *, special: bool) -> list[int]:
        data = text.encode()
        room = len(data) + 8
        for _ in range(2):
            ids = (self._api.llama_token * room)()
            no_prefix = ctypes.c_bool(value=False)  # templates write their own first token
            found = self._api.llama_tokenize(
                self._vocabulary, data, len(data), ids, room, no_prefix, special
            )
            if found >= 0:
                return list(ids[:found])
            room = -found
        raise AssertionError("llama.cpp needs more room than it reported")

    def piece(self, token: int) -> bytes:
        """The bytes of one token, none for a control token."""
        if not 0 <= token < self.size or token in self._marks:
            return b""
        room = _PIECE_BYTES
        for _ in range(2):
            buffer = ctypes.create_string_buffer(room)
            plain = ctypes.c_bool(value=False)
            found = self._api.llama_token_to_piece(self._vocabulary, token, buffer, room, 0, plain)
            if found >= 0:
                return buffer.raw[:found]
            room = -found
        raise AssertionError("llama.cpp needs more room than it reported")

    def text(self, token: int) -> str:
        """A token as the file writes it, control tokens too."""
        found: bytes = self._api.llama_vocab_get_text(self._vocabulary, token)
        return found.decode("utf-8", errors="replace")

    @cached_property
    def begin(self) -> list[int]:
        """The token that a text begins with, where the file asks for one."""
        token = int(self._api.llama_vocab_bos(self._vocabulary))
        wanted = self._api.llama_vocab_get_add_bos(self._vocabulary)
        return [token] if wanted and token >= 0 else []

    @cached_property
    def adds_first_space(self) -> bool:
        """Whether a text's first word is encoded as if a space came before it."""
        ids = self.encode("a", special=False)
        return bool(ids) and self.piece(ids[0]).startswith(b" ")

    @cached_property
    def control(self) -> tuple[int, ...]:
        """Tokens that only a template may write."""
        found = {*self._with(self._api.llama_vocab_get_attr, _CONTROL)}
        return tuple(sorted(found | self._marks))

    @cached_property
    def ends(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return frozenset(self._with(self._api.llama_vocab_is_eog, 1))

    def _channel_marks(self) -> frozenset[int]:
        """The tokens around channels, where the vocabulary has all that it takes."""
        found = {
            text: self._encoded(text, special=True) for text in (*_CHANNEL_MARKS, *_FURTHER_MARKS)
        }
        if any(len(found[text]) != 1 for text in _CHANNEL_MARKS):
            return frozenset()
        return frozenset(ids[0] for ids in found.values() if len(ids) == 1)

    def _with(self, attribute: Any, mask: int) -> Iterable[int]:
        return (token for token in range(self.size) if attribute(self._vocabulary, token) & mask)


def vocabulary_mismatch(model: Path, draft: Path) -> str:
    """The first token that differs, in words; empty when the vocabularies are the same.

    A token that either side leaves unused matches anything: it is never drafted nor emitted.
    Raises ModelUnusable when a vocabulary cannot be read.
    """
    pairs = zip_longest(token_texts(model), token_texts(draft))
    for number, (ours, theirs) in enumerate(pairs):
        if ours is not None and theirs is not None and ours != theirs:
            return f"token {number} is {ours!r} in the model and {theirs!r} in the draft model"
    return ""


def token_texts(path: Path) -> list[str | None]:
    """Text of every token by number, as its vocabulary has it; None where there is none.

    A file is read as GGUF, whatever its name.
    """
    return _of_gguf(path) if path.is_file() else _of_tokenizer(path / "tokenizer.json")


def _of_gguf(path: Path) -> list[str | None]:
    metadata = read_header(path).metadata
    texts, kinds = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(texts, tuple):
        raise ModelUnusable(f"{path} has no vocabulary; get another conversion of the model")
    unused = kinds if isinstance(kinds, tuple) else ()
    pairs = zip_longest(texts, unused[: len(texts)])
    return [None if kind == _UNUSED else str(text) for text, kind in pairs]


def _of_tokenizer(file: Path) -> list[str | None]:
    if not file.exists():
        raise ModelUnusable(f"{file.parent}: tokenizer.json is missing; download the model again")
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8-sig"))
        vocabulary = content["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram: texts with scores, in order
            found = {number: text for number, (text, _) in enumerate(vocabulary)}
        else:
            found = {number: text for text, number in vocabulary.items()}
        found |= {token["id"]: token["content"] for token in content.get("added_tokens") or ()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ModelUnusable(f"{file} is not a tokenizer ({error}); get the model again") from error
    return [found.get(number) for number in range(max(found, default=-1) + 1)]
