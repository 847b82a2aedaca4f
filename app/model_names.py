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


def is_named(name: str, asked: str) -> bool:
    """Whether ``asked`` may mean the model ``name``; the type of numbers may be left out of either."""
    (one, kind), (other, wanted) = _parts(name), _parts(asked)
    return bool(one) and one == other and (kind == wanted or "" in (kind, wanted))


def close_names(asked: str, known: Iterable[str]) -> list[str]:
    """The names that are most like ``asked`` or start like it, at most three."""
    wanted = "-".join(filter(None, _parts(asked)))
    scored = [(*_likeness(wanted, "-".join(filter(None, _parts(name)))), name) for name in known]
    return [name for part, _, name in nlargest(3, scored) if part >= ALIKE]


def _likeness(wanted: str, words: str) -> tuple[float, float]:
    """How much a part of the name is like it, and how much all of it is; each from 0 to 1."""
    whole, start = (
        SequenceMatcher(None, wanted, other).ratio() for other in (words, words[: len(wanted) + 1])
    )
    return (1.0 if len(wanted) > 2 and wanted in words else max(whole, start)), whole


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
