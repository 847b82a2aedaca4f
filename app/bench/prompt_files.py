"""Files of prompts: JSON lines with ``turns`` (Spec-Bench) or ``question`` (GSM8K)."""

import json
from pathlib import Path

from app.errors import PromptFileError
from app.request import check_text
from engine.errors import InvalidRequest

Turns = tuple[str, ...]


def read_prompts(path: Path, limit: int | None = None) -> list[Turns]:
    """What a person says, turn by turn, in each line; raises PromptFileError."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # JSON may hold other line ends
    except OSError as error:
        raise PromptFileError(f"the file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PromptFileError(f"the file {path} is not text in UTF-8: {error.reason}") from error
    numbered = [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not numbered:
        raise PromptFileError(f"the file {path} holds no prompts")
    return [_turns(path, number, line) for number, line in numbered[:limit]]


def _turns(path: Path, number: int, line: str) -> Turns:
    place = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except ValueError as error:
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
    return tuple(turns)
