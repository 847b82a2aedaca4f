"""Which type of a model's GGUF file this machine runs fastest at equal quality, in one sentence."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import PurePosixPath

from app.models.catalog import CatalogEntry
from app.models.gguf_check import gguf_file
from app.placement.plans import llama_for_cuda
from app.placement.row_table import known_table
from app.settings import Settings
from engine.errors import ModelUnusable
from engine.models.gguf.file_types import RowTable, type_in_header, type_in_name
from engine.models.gguf.header import read_header

UNMEASURED = (
    "GGUF files come in several types; which is fastest on this machine is not measured. In a terminal, "
    "slipstream doctor --types does that in a minute."
)


@dataclass(frozen=True, slots=True)
class TypeAdvice:
    """The table of this machine; None: nothing is said, because nothing was measured."""

    table: RowTable | None
    measurable: bool = (
        True  # llama.cpp is here, and no GPU runs the files: of it the table says nothing
    )

    @classmethod
    def read(cls, settings: Settings) -> "TypeAdvice":
        """In milliseconds."""
        if llama_for_cuda():
            return cls(None, measurable=False)
        return cls(known_table(settings), measurable=find_spec("llama_cpp") is not None)

    @property
    def missing(self) -> str:
        """How to measure; empty where that is done, or would say nothing."""
        return UNMEASURED if self.measurable and self.table is None else ""

    def of_file(self, name: str, others: Sequence[str]) -> str:
        """Of a file by its name, compared with others of the same model; empty: none of them is faster."""
        kinds = {kind: other for other in others if (kind := type_in_name(other))}
        return self._sentence(type_in_name(name), kinds)

    def of_entry(self, entry: CatalogEntry) -> str:
        """Of a GGUF model, on this machine or before it is downloaded; empty: no type is faster."""
        if self.table is None:
            return ""
        kinds = {kind: name for name in entry.other_files if (kind := type_in_name(name))}
        return self._sentence(_type_of(entry), kinds)

    def _sentence(self, kind: str | None, kinds: dict[str, str]) -> str:
        """``kinds``: type -> file; without any, the type alone is named."""
        if self.table is None:
            return ""
        said = self.table.advice(kind, kinds or None)
        better = self.table.faster(kind, kinds or None)
        if not said or better not in kinds:
            return f"{said}." if said else ""
        return f"{said}. The same repository has it as {PurePosixPath(kinds[better]).name}."


def _type_of(entry: CatalogEntry) -> str | None:
    """By the names of the files, or else by what the file on this machine says."""
    named = next((kind for name in entry.files if (kind := type_in_name(name))), None)
    if entry.folder is None:
        return named
    try:
        file = gguf_file(entry.folder)
        return (
            None if file is None else type_in_name(file.name) or type_in_header(read_header(file))
        )
    except (ModelUnusable, OSError):  # loading it says why
        return None
