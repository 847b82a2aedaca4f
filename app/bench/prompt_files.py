"""Files of prompts: JSON lines with ``turns`` (Spec-Bench) or ``question`` (GSM8K), some with ``category``."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import PromptFileError
from app.request import check_text
from app.text.decoding import decoded
from engine.errors import InvalidRequest

Turns = tuple[str, ...]
Category = tuple[str, tuple[Turns, ...]]
SHIPPED = Path(__file__).resolve().parent / "prompts.jsonl"
WORD_PROBLEM, EDIT = "word problem", "edit"
NO_CATEGORY = "all"


@dataclass(frozen=True, slots=True)
class Tagged:
    """What a person says, turn by turn, and the kind of task."""

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


def read_prompts(path: Path, limit: int | None = None) -> list[Turns]:
    """What a person says, turn by turn, in each line; raises PromptFileError."""
    return [tagged.turns for tagged in _read(path, limit)]


def load_prompts(file: Path | None, each: int) -> PromptSet:
    """First turns, at most ``each`` open questions of every category; raises PromptFileError."""
    shipped = _read(SHIPPED)
    asked = [t for t in shipped if t.category not in (WORD_PROBLEM, EDIT)] if file is None else []
    groups: dict[str, list[Turns]] = {}
    for tagged in asked or _read(file or SHIPPED):
        groups.setdefault(tagged.category, []).append(tagged.turns[:1])
    return PromptSet(
        problems=tuple(t.turns[:1] for t in shipped if t.category == WORD_PROBLEM),
        edits=tuple(t.turns[:1] for t in shipped if t.category == EDIT),
        open=tuple((name, tuple(group[:each])) for name, group in groups.items()),
    )


def shipped_questions(each: int) -> tuple[Tagged, ...]:
    """At most ``each`` first turns of every kind that the package has."""
    shipped = load_prompts(None, each)
    groups = (
        *shipped.open,
        (WORD_PROBLEM, shipped.problems[:each]),
        (EDIT, shipped.edits[:each]),
    )
    return tuple(Tagged(name, turns) for name, group in groups for turns in group)


def questions_of(file: Path, each: int) -> tuple[Tagged, ...]:
    """At most ``each`` first turns of every kind in a file; raises PromptFileError."""
    groups: dict[str, list[Tagged]] = {}
    for tagged in _read(file):
        groups.setdefault(tagged.category, []).append(Tagged(tagged.category, tagged.turns[:1]))
    return tuple(tagged for group in groups.values() for tagged in group[:each])


def _read(path: Path, limit: int | None = None) -> list[Tagged]:
    try:
        text = decoded(path.read_bytes())
    except OSError as error:
        raise PromptFileError(f"the file {path} cannot be read: {error.strerror}") from error
    if text is None:
        raise PromptFileError(f"the file {path} is no text; save it as UTF-8")
    lines = text.split("\n")  # JSON may hold other line ends
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not numbered:
        raise PromptFileError(f"the file {path} holds no prompts")
    return [_tagged(f"{path}, line {number}", line) for number, line in numbered[:limit]]


def _tagged(place: str, line: str) -> Tagged:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptFileError(f"{place}: not JSON ({error})") from error
    found = row if isinstance(row, dict) else {}
    turns = found.get("turns", [found["question"]] if "question" in found else None)
    if not isinstance(turns, list) or not turns:
        raise PromptFileError(f"{place}: expected an object with 'turns', a list of texts")
    if not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise PromptFileError(f"{place}: every turn must be a text that is not empty")
    try:
        for turn in turns:
            check_text(turn, "a turn")
    except InvalidRequest as error:
        raise PromptFileError(f"{place}: {error}") from error
    return Tagged(str(found.get("category", NO_CATEGORY)), tuple(turns))
