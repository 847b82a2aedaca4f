"""The tokenizer in the engine's process, read when the first answer needs a grammar."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.text.vocabulary import Vocabulary


class FileSpeller:
    """Of a model's folder or GGUF file; an unreadable one raises ModelUnusable at the first use."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def tokens(self, count: int) -> Sequence[bytes]:
        """The bytes of the first ``count`` tokens; of control tokens only marks of channels have some."""
        from app.text.harmony.format import grammar_bytes

        return grammar_bytes(self._vocabulary, count)

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        return self._vocabulary.encode(text)

    @cached_property
    def _vocabulary(self) -> "Vocabulary":
        from app.text.vocabulary import vocabulary_of

        return vocabulary_of(self._place)
