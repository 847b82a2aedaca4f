"""A model's tokenizer in the engine's process, read there when the first answer has to follow a format."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.text.vocabulary import Vocabulary


class FileSpeller:
    """Of a model's folder or GGUF file; what cannot be read raises ModelUnusable when it is asked."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def tokens(self, many: int) -> Sequence[bytes]:
        """The bytes of each of so many tokens; none of control tokens, but for marks of channels."""
        from app.text.harmony.format import grammar_bytes

        return grammar_bytes(self._vocabulary, many)

    def encode(self, text: str) -> Sequence[int]:
        """The tokens of a text."""
        return self._vocabulary.encode(text)

    @cached_property
    def _vocabulary(self) -> "Vocabulary":
        from app.text.vocabulary import vocabulary_of

        return vocabulary_of(self._place)
