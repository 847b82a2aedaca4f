"""A conversation of a model with running states: its tokens, how far its state is, and checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.models.gguf.recurrent_cache import Checkpoint
from engine.models.gguf.state_shape import CHECKPOINTS


@dataclass
class Conversation:
    """One slot's. The state may be behind the committed tokens, or ahead of them by refused rows."""

    committed: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)  # rows that were run and not committed
    run: int = 0  # tokens, committed or not, whose state the sequence has
    reach: int = 0  # of them, how many of the last ones llama.cpp can take back
    sequence: int | None = None  # of llama.cpp's; None: it has none, being swapped out or empty
    swapped: Checkpoint | None = None  # cells and state of one that has none
    checkpoints: list[Checkpoint] = field(default_factory=list)  # the shortest first
    before: Checkpoint | None = None  # the latest pass, where that cannot be taken back
    read: bool = False  # a prompt was read since the last pass that scored

    @property
    def unread(self) -> Sequence[int]:
        """Committed tokens that the state does not have yet."""
        return self.committed[self.run :]

    @property
    def surplus(self) -> int:
        """Rows of the state that are not wanted."""
        return max(self.run - len(self.committed), 0)

    def nearest(self) -> Checkpoint | None:
        """The longest checkpoint of the committed tokens, or of fewer."""
        known = [*self.checkpoints, *filter(None, [self.before])]
        fitting = [one for one in known if one.length <= len(self.committed)]
        return max(fitting, key=lambda one: one.length, default=None)

    def cut(self, length: int) -> None:
        """Forget tokens after the first ``length``, and the checkpoints behind them."""
        del self.committed[length:]
        self.checkpoints = [one for one in self.checkpoints if one.length <= length]
        if self.before and self.before.length > length:
            self.before = None

    def keep(self, made: Checkpoint) -> None:
        """Add a checkpoint; of too many one goes that is near another, and not one of the newest two."""
        self.checkpoints = [one for one in self.checkpoints if one.length != made.length]
        self.checkpoints = sorted([*self.checkpoints, made], key=lambda one: one.length)
        if len(self.checkpoints) > CHECKPOINTS:
            starts = [0, *(one.length for one in self.checkpoints)]
            gaps = {at: starts[at + 1] - starts[at] for at in range(len(self.checkpoints) - 2)}
            del self.checkpoints[min(gaps, key=gaps.__getitem__)]

    def checkpoint_at(self, length: int) -> bool:
        """Whether there is one of just so many tokens."""
        return any(one.length == length for one in self.checkpoints)
