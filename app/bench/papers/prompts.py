"""Prompts by category: the shipped selection, or a file of the reader's own."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.bench.prompt_files import Turns, read_prompts

SHIPPED = Path(__file__).resolve().parent / "prompts.jsonl"
WORD_PROBLEM, EDIT = "word problem", "edit"
NO_CATEGORY = "all"
Category = tuple[str, tuple[Turns, ...]]


@dataclass(frozen=True, slots=True)
class Tagged:
    """A first turn, and what kind of task it is."""

    category: str
    turns: Turns


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Held-out word problems and edit chores from the package, and open questions by category."""

    problems: tuple[Turns, ...]
    edits: tuple[Turns, ...]
    open: tuple[Category, ...]

    def questions(self, categories: Sequence[str], each: int = 2) -> tuple[Turns, ...]:
        """The first open questions of these categories; of all where the file names none of them."""
        found = tuple(t for name, group in self.open for t in group[:each] if name in categories)
        return found or tuple(t for _, group in self.open for t in group[:each])


def load_prompts(file: Path | None, each: int) -> PromptSet:
    """At most ``each`` open questions of every category; raises PromptFileError."""
    shipped = _read(SHIPPED)
    asked = [t for t in shipped if t.category not in (WORD_PROBLEM, EDIT)] if file is None else []
    groups: dict[str, list[Turns]] = {}
    for tagged in asked or _read(file or SHIPPED):
        groups.setdefault(tagged.category, []).append(tagged.turns)
    return PromptSet(
        problems=tuple(t.turns for t in shipped if t.category == WORD_PROBLEM),
        edits=tuple(t.turns for t in shipped if t.category == EDIT),
        open=tuple((name, tuple(group[:each])) for name, group in groups.items()),
    )


def _read(file: Path) -> list[Tagged]:
    """First turns with their category; the file's form was checked by ``read_prompts``."""
    turns = read_prompts(file)
    lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
    names = [json.loads(line).get("category", NO_CATEGORY) for line in lines]
    return [Tagged(str(name), said[:1]) for name, said in zip(names, turns, strict=True)]
