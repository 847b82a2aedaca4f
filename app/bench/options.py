"""What a benchmark is asked to do, and what is held fixed for all its lanes."""

from dataclasses import dataclass, field
from pathlib import Path

from app.bench.lanes import Lane
from app.bench.prompt_files import Turns
from app.errors import OutputFileError
from app.settings import Settings
from engine.request import SamplingParams


@dataclass(frozen=True, slots=True)
class Conditions:
    """The same for every lane of a measurement."""

    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = 256
    repeats: int = 3  # timed runs of every prompt in every lane
    concurrent: int = 1  # requests in the engine at once
    queued: int = 0  # prompts submitted together, the others waiting; 0: as many as run at once
    warm_up: bool = True  # first run every lane once, untimed

    @property
    def together(self) -> int:
        """Prompts that one timing covers."""
        return max(self.queued, self.concurrent)

    @property
    def comparable(self) -> bool:
        """Whether every lane must give plain's tokens: not when they are drawn afresh."""
        return self.sampling.greedy or self.sampling.seed is not None


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Which lanes to measure on which prompts, and at what cost of the model."""

    settings: Settings
    model: str
    prompts: tuple[Turns, ...]
    lanes: tuple[Lane, ...]  # the first is plain decoding
    conditions: Conditions
    dtype: str | None  # number format of the weights; None: float32, of a GGUF file its own
    inflate: int
    json: Path | None


CLAIMS = (  # files of ``app/bench/papers``, in this order: each inflated model is loaded once
    "sequoia", "specexec", "lossless", "early_exit", "goodput", "auto", "history",
    "acceptance_head",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FixedBench:
    """A benchmark with lanes of its own: seeds or offload."""

    what: str
    settings: Settings
    model: str
    prompts: Path | None  # None: the package's
    json: Path | None
    folder: Path | None = None  # where large models are kept; None: written and removed
    limit: int | None = None  # lines of ``prompts`` that are read, for offload
    only: tuple[str, ...] = ()  # some of the claims; none: all


@dataclass(frozen=True, slots=True)
class PeersBench:
    """A race against other programs on the same file and prompts."""

    settings: Settings
    model: str
    dtype: str | None  # number format of the weights; None: as the app would load it
    prompts: Path | None  # None: the package's
    each: int  # prompts of every kind
    max_tokens: int
    repeats: int
    ggufs: tuple[Path, ...]  # for programs that read only those; none: the model's own file
    llama_server: Path | None  # None: not part of the race
    only: tuple[str, ...]  # patterns of lanes; none: all
    json: Path | None
    picture: Path | None


def check_output(file: Path) -> None:
    """Raise OutputFileError before hours of measuring rather than after."""
    if file.is_dir():
        raise OutputFileError(f"{file} is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise OutputFileError(f"{file} cannot be written: there is no folder {file.parent}")
