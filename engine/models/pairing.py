"""Whether two models speak the same tokens, whatever kind of file each of them is."""

import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

from engine.errors import ModelUnusable
from engine.models.gguf.header import read_header

_UNUSED = 5  # GGUF's type of tokens that only fill the vocabulary up


def vocabulary_mismatch(model: Path, draft: Path) -> str:
    """The first token that differs, in words; empty when the vocabularies are the same.

    Numbers that either side leaves unused are equal to anything: nobody can draft or emit them.
    Raises ModelUnusable when a vocabulary cannot be read.
    """
    pairs = zip_longest(token_texts(model), token_texts(draft))
    for number, (ours, theirs) in enumerate(pairs):
        if ours is not None and theirs is not None and ours != theirs:
            return f"token {number} is {ours!r} in the model and {theirs!r} in the draft model"
    return ""


def token_texts(path: Path) -> list[str | None]:
    """Text of every token by number, as its vocabulary spells it; None where there is none.

    A file is GGUF, whatever it is called.
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
    content: Any = json.loads(file.read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):  # Unigram: texts with scores, in order
        found = {number: text for number, (text, _) in enumerate(vocabulary)}
    else:
        found = {number: text for text, number in vocabulary.items()}
    found |= {token["id"]: token["content"] for token in content.get("added_tokens") or ()}
    return [found.get(number) for number in range(max(found, default=-1) + 1)]
