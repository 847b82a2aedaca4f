"""Reading together: of several engines over the same weights one reads a prompt, the others copy.

Where only decoding is timed: ten lanes that read every prompt took longer than what was measured.
"""

from collections.abc import Sequence
from weakref import WeakSet

from torch import Tensor
from typing_extensions import override

from engine.decoder.weights import DecoderWeights
from engine.models.own.target import TorchTarget


class Readers:
    """The targets of one race, as long as an engine has them."""

    def __init__(self) -> None:
        self._readers: WeakSet[Reader] = WeakSet()

    def join(self, reader: "Reader") -> None:
        """One more."""
        self._readers.add(reader)

    def who_read(self, tokens: Sequence[int]) -> "tuple[Reader, int] | None":
        """One that has committed exactly these first tokens, and its slot."""
        for reader in self._readers:
            for slot in reader.slots:
                if reader.tokens(slot)[: len(tokens)] == tokens:
                    return reader, slot
        return None


class Reader(TorchTarget):
    """A twin that runs no row of a prompt that another one has run."""

    def __init__(self, weights: DecoderWeights, readers: Readers) -> None:
        super().__init__(weights)
        self._readers = readers
        readers.join(self)

    @property
    def slots(self) -> tuple[int, ...]:
        """Those that something was ever committed to."""
        return tuple(self._committed)

    @override
    def feed(self, slot: int, tokens: Sequence[int], trace: int = 0) -> Tensor | None:
        """Rows whose states are wanted are run here; those before them may be copied."""
        before = tokens[: max(0, len(tokens) - trace)]
        if before:
            wanted = [*self.tokens(slot), *before]
            if (found := self._readers.who_read(wanted)) is not None:
                self.take(*found, slot, len(wanted))
                tokens = tokens[len(before) :]
        return super().feed(slot, tokens, trace) if tokens else None
