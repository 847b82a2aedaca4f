"""Vocabularies: text to token ids, with a model folder's tokenizer or a GGUF file's own."""

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from threading import Lock

from tokenizers import Tokenizer

from app.text.detokenizer import ByteTable, TokenBytes
from app.text.template import read_json, token_text
from engine.errors import ModelUnusable
from engine.models.gguf.vocabulary import GgufVocabulary

KEPT = 8192  # tokens whose bytes are kept


class FolderVocabulary:
    """The tokenizer of a model's folder, as transformers uses it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ModelUnusable."""
        self._tokenizer = tokenizer
        self.bytes: ByteTable = TokenBytes(tokenizer)

    @classmethod
    def load(cls, folder: Path) -> "FolderVocabulary":
        """From tokenizer.json; raises ModelUnusable."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelUnusable(f"{folder} has no tokenizer.json")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more precise
            raise ModelUnusable(f"{path} is not a tokenizer: {error}") from error
        return cls(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Token ids; control texts become control tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def encode_typed(self, text: str) -> list[int]:
        """One character at a time, since the library always finds control texts."""
        return [token for character in text for token in self.encode(character)]

    def begin(self) -> list[int]:
        """What the tokenizer puts before any text."""
        found = self._tokenizer.encode("a", add_special_tokens=True)
        own = found.special_tokens_mask
        return list(found.ids[: own.index(0)]) if 0 in own else []

    def control_texts(self) -> Iterable[str]:
        """Every special token's text."""
        added = self._tokenizer.get_added_tokens_decoder().values()
        return [token.content for token in added if token.special]

    def stop_tokens(self, folder: Path) -> set[int]:
        """Ends of a message, from the three files that may name them; raises ModelUnusable.

        Some say -1, or null, for none.
        """
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            ids = read_json(folder / name).get("eos_token_id")
            listed = ids if isinstance(ids, list) else [ids]
            if any(isinstance(token, list | dict) for token in listed):
                raise ModelUnusable(
                    f"{folder / name} says eos_token_id is {ids!r}, which is neither a token nor a "
                    "list of tokens; download the model again"
                )
            found |= {token for token in listed if type(token) is int and token >= 0}
        text = token_text(read_json(folder / "tokenizer_config.json").get("eos_token"))
        token = self._tokenizer.token_to_id(text) if text is not None else None
        return found | ({token} if token is not None else set())


class FileVocabulary:
    """A GGUF file's vocabulary, through llama.cpp; may be used by several threads."""

    def __init__(self, file: Path) -> None:
        """Raises ModelUnusable."""
        self._vocabulary = GgufVocabulary(file)
        self._lock = Lock()
        self.ends = self._vocabulary.ends
        self.bytes: ByteTable = _Pieces(self._vocabulary)

    def encode(self, text: str) -> list[int]:
        """Token ids; control texts become control tokens."""
        with self._lock:
            return self._vocabulary.encode(text, special=True)

    def encode_typed(self, text: str) -> list[int]:
        """Token ids of text that a person typed: no control token among them."""
        with self._lock:
            return self._vocabulary.encode(text, special=False)

    def control_texts(self) -> Iterable[str]:
        """Every control token's text."""
        return [text for token in self._vocabulary.control if (text := self.text(token))]

    def begin(self) -> list[int]:
        """What the file says that a text begins with."""
        return self._vocabulary.begin

    def text(self, token: int) -> str:
        """A token as the file writes it; empty for a number that is no token."""
        return self._vocabulary.text(token) if 0 <= token < self._vocabulary.size else ""


Vocabulary = FolderVocabulary | FileVocabulary
"""What a conversation needs of a tokenizer."""


def vocabulary_of(place: Path) -> Vocabulary:
    """Of a model's folder or GGUF file; raises ModelUnusable."""
    return FileVocabulary(place) if place.is_file() else FolderVocabulary.load(place)


class _Pieces:
    """Bytes of a GGUF file's tokens."""

    def __init__(self, vocabulary: GgufVocabulary) -> None:
        self.drops_first_space = vocabulary.adds_first_space
        self._piece = lru_cache(KEPT)(vocabulary.piece)  # llama.cpp takes 8 times as long

    def of(self, token: int) -> bytes:
        """The bytes of one token, which may be a part of a character."""
        return self._piece(token)
