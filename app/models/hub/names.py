"""Which of a repository's file names may be written below a folder of ours."""

import re
import unicodedata
from collections.abc import Iterable
from pathlib import PurePosixPath

from app.errors import HubError

LONGEST_PART = 200  # bytes; file systems take 255, and we add endings of our own
LONGEST = 1000
DEVICES = frozenset(
    ["con", "prn", "aux", "nul"]
    + [f"{kind}{digit}" for kind in ("com", "lpt") for digit in range(10)]
)
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)


def is_repository(text: str) -> bool:
    """Whether this can be a repository's name, such as ``Qwen/Qwen3-0.6B``."""
    return bool(REPOSITORY.fullmatch(text)) and ".." not in text and "--" not in text


def check_names(repo: str, names: Iterable[str]) -> None:
    """Refuse names that leave the folder, or that two file systems would read differently.

    Raises HubError for the first bad name; two names that differ in case or in Unicode form only
    are bad, and so is a file that is another one's folder.
    """
    seen: dict[str, str] = {}
    for name in names:
        if fault := _fault(name):
            raise HubError(
                f"the repository {repo} lists the file {_shown(name)}, {fault}; nothing was downloaded"
            )
        key = _folded(name)
        if key in seen:
            raise HubError(
                f"the repository {repo} lists {_shown(seen[key])} and {_shown(name)}, which are one "
                "file on some disks; nothing was downloaded"
            )
        seen[key] = name
    for key, name in seen.items():
        if any(str(folder) in seen for folder in PurePosixPath(key).parents):
            raise HubError(
                f"the repository {repo} lists {_shown(name)} below a file; nothing was downloaded"
            )


def _fault(name: str) -> str | None:
    if not name or len(name.encode(errors="replace")) > LONGEST:
        return "a name of impossible length"
    if not name.isprintable() or "\\" in name or ":" in name:
        return "a name that is not plain text"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return "which could be written outside its folder"
        if len(part.encode(errors="replace")) > LONGEST_PART:
            return "a name of impossible length"
        if part[-1] in ". " or part.split(".")[0].lower() in DEVICES:
            return "a name that not every system can store"
    return None


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else f"{name[:80]}...")
