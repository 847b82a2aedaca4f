"""Names of models as people write them: in any case, with or without .gguf, as the hub has them."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from heapq import nlargest

ALIKE = 0.6  # how much of a name has to be the same for it to be proposed
_HUB_FILE = re.compile(r"/(?:blob|resolve|raw|tree)/[^/]+(?=/|$)")
_TYPE = re.compile(
    r"[-._ ]((?:ud-)?i?q\d(?:[-_][a-z0-9]+)*|mxfp4|nvfp4|bf16|f16|fp16|f32|fp32|int8|int4)$"
)  # of numbers, at the end of a name
_ENDS = (".gguf", "-gguf", "_gguf", ".git")
_LATEST = "latest"  # the tag that some programs give what has none


def is_named(name: str, asked: str, repo: str = "") -> bool:
    """Whether ``asked`` may mean the model ``name``; the type of numbers may be left out of either.

    ``repo`` is the repository that it came from, whose name it has, too.
    """
    (own, kind), (words, wanted) = _parts(name), _parts(asked)
    known = {own, _parts(repo)[0]} - {""}
    return words in known and (kind == wanted or "" in (kind, wanted))


def meant(asked: str, known: Iterable[str]) -> str | None:
    """The one of these names that ``asked`` means; None where it may be several, or none."""
    alike = [name for name in known if is_named(name, asked)]
    same = [name for name in alike if _parts(name) == _parts(asked)]
    return (same or alike)[0] if 1 in (len(same), len(alike)) else None


def close_names(asked: str, known: Iterable[str]) -> list[str]:
    """The names that are most like ``asked`` or start like it, at most three.

    Of those whose words are as much alike, the one whose whole name is more so comes first.
    """
    wanted = _parts(asked)[0]
    scored = [
        (_likeness(wanted, _parts(name)[0]), _ratio(asked.lower(), name.lower()), name)
        for name in known
    ]
    return [name for score, _, name in nlargest(3, scored) if score >= ALIKE]


def _likeness(wanted: str, words: str) -> float:
    """How much the words of a name, or its first ones, are like those that are wanted; 0 to 1."""
    if len(wanted) > 2 and wanted in words:
        return 1.0
    return max(_ratio(wanted, words), _ratio(wanted, words[: len(wanted) + 1]))


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()


def did_you_mean(asked: str, known: Iterable[str]) -> str:
    """The part of a sentence that proposes close names; empty where there are none."""
    close = close_names(asked, known)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _parts(name: str) -> tuple[str, str]:
    """The words of a name, and its type of numbers; empty where it does not say."""
    path = _HUB_FILE.sub("", name.strip().lower().partition("?")[0].replace("\\", "/"))
    last = path.rstrip("/").rpartition("/")[2]
    last, _, tag = last.partition(":")
    for end in _ENDS:
        last = last.removesuffix(end)
    name = last if tag in ("", _LATEST) else f"{last}-{tag}"
    found = _TYPE.search(name)
    kind = found.group(1) if found else ""
    words = name.removesuffix(found.group() if found else "")
    for end in _ENDS:
        words = words.removesuffix(end)
    return re.sub(r"[-_. ]+", "-", words).strip("-"), re.sub(r"[-_.]+", "-", kind)
