"""Names of models as people write and paste them: in any case, with or without .gguf, as the hub has them.

An address, owner/repo:Q4_K_M and the command of another program are read in one way, whether a model
is downloaded, looked for here, or named in a request.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import nlargest
from urllib.parse import unquote, urlsplit

_HOSTS = ("huggingface.co", "hf.co", "hf-mirror.com")
_PROGRAMS = frozenset({
    "ollama", "llama-server", "llama-cli", "llama-run", "lms", "hf", "huggingface-cli", "vllm",
    "slipstream", "git", "docker", "sglang", "mlx_lm.generate", "python", "python3", "-hf",
})  # fmt: skip
_QUOTED = re.compile(r"""["']([^"'\s]+/[^"'\s]+)["']""")  # in a line of code
_NO_MODELS = frozenset(
    {"datasets", "spaces", "papers", "collections", "docs", "blog", "api", "models"}
)
_FILE_VIEWS = frozenset({"blob", "resolve", "raw"})
_PART = re.compile(r"-\d{5}(-of-\d{5}\.gguf)$")
_AROUND = "'\"<>`\u200b\ufeff"  # marks of quotation, invisible ones among them
_AFTER = ").,;]}"  # of a sentence or a link in Markdown
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?", re.ASCII)
_USUAL = "latest"  # the tag that some programs give what has none
ALIKE = 0.6  # how much of a name has to be the same for it to be proposed
_TYPE = re.compile(
    r"[-._ ]((?:ud-)?i?q\d(?:[-_][a-z0-9]+)*|mxfp4|nvfp4|bf16|f16|fp16|f32|fp32|int8|int4)$"
)  # of numbers, at the end of a name
_ENDS = (".gguf", "-gguf", "_gguf", ".git")


def is_repository(text: str) -> bool:
    """Whether this can be a repository's name, such as ``Qwen/Qwen3-0.6B``."""
    return bool(_REPOSITORY.fullmatch(text)) and ".." not in text and "--" not in text


@dataclass(frozen=True, slots=True)
class Pasted:
    """A repository, and what of it was named: a file, a quantisation (``tag``), a revision."""

    repo: str
    file: str = ""
    tag: str = ""
    revision: str = ""

    @property
    def wanted(self) -> tuple[str, ...]:
        """The names or patterns of files that it asks for; none for the usual choice."""
        if self.file:
            return (_PART.sub(r"-?????\1", self.file),)  # a part alone does not run
        return (f":{self.tag}",) if self.tag else ()


def pasted(text: str, endpoint: str = "") -> Pasted | None:
    """What ``text`` names; None for what is no repository, such as words of a search.

    ``endpoint`` is the address of the hub that is used, perhaps a mirror.
    """
    words = text.strip().strip(_AROUND).removeprefix("$ ").split()
    found = next(filter(None, (_addressed(word, endpoint) for word in words)), None)
    if found is None:
        named = filter(None, map(_named, _candidates(words, text)))
        found = next(named, None)
    file = next((word for word in words[1:] if _is_file(word)), "")
    if found is None or found.file or not file:
        return found
    return Pasted(found.repo, file, revision=found.revision)


def _candidates(words: list[str], text: str) -> Iterable[str]:
    """The words that may be a repository: the only one, arguments of a command, quoted ones in code."""
    if len(words) == 1:
        yield words[0].strip(_AROUND)
    elif words and words[0].lower().rpartition("/")[2] in _PROGRAMS:
        yield from (word.strip(_AROUND) for word in words[1:] if "/" in word)
    yield from _QUOTED.findall(text)


def _is_file(word: str) -> bool:
    """Whether an argument of a command names a file of the repository."""
    return word.lower().endswith(".gguf") and "://" not in word and word.count("/") < 2


def _addressed(word: str, endpoint: str) -> Pasted | None:
    inside = re.search(r"\((\S+)", word)  # of a link in Markdown, or of a call
    plain = (inside[1] if inside and "://" in word else word).strip(_AROUND).rstrip(_AFTER)
    address = _address(plain.strip(_AROUND), endpoint)
    return None if address is None else _of_path(address)


def _named(word: str) -> Pasted | None:
    """owner/repo, with a tag or a revision, or owner/repo/file.gguf."""
    owner, _, rest = word.partition("/")
    name, _, file = rest.partition("/")
    if file and word.lower().endswith(".gguf"):
        return Pasted(f"{owner}/{name}", file) if is_repository(f"{owner}/{name}") else None
    repo, _, tag = word.partition(":")
    repo, _, revision = repo.partition("@")
    if "/" not in repo or not is_repository(repo):
        return None
    return Pasted(repo, tag="" if tag.lower() == _USUAL else tag, revision=revision)


def _address(plain: str, endpoint: str) -> str | None:
    """The path of an address of the hub; None for anything else."""
    if plain.lower().startswith("hf://"):
        return plain[5:].removeprefix("models/")
    hosts = {*_HOSTS, *(f"www.{host}" for host in _HOSTS), _split(endpoint)[0]} - {""}
    host, path = _split(plain if "://" in plain else f"//{plain}")
    return unquote(path.strip("/")).removeprefix("models/") if host in hosts else None


def _split(address: str) -> tuple[str, str]:
    """The host of an address, and the path on it; empty where it is none."""
    try:
        found = urlsplit(address)
    except ValueError:  # a bracket that begins no IPv6 address
        return "", ""
    return found.netloc.lower(), found.path


def _of_path(path: str) -> Pasted | None:
    """owner/repo, owner/repo:tag, owner/repo/blob/revision/folder/file, owner/repo/tree/revision."""
    owner, _, rest = path.removeprefix("api/models/").partition("/")
    name, _, inside = rest.partition("/")
    name, _, tag = name.partition(":")
    repo = f"{owner}/{name.removesuffix('.git')}"
    if not name or owner in _NO_MODELS or not is_repository(repo):
        return None
    view, _, place = inside.partition("/")
    revision, _, file = place.partition("/")
    if view not in (*_FILE_VIEWS, "tree") or revision == "main":
        revision = ""
    return Pasted(
        repo,
        file=file if view in _FILE_VIEWS else "",
        tag="" if tag.lower() == _USUAL else tag,
        revision=revision,
    )


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
    last, tag = _last(name.strip().lower().replace("\\", "/"))
    for end in _ENDS:
        last = last.removesuffix(end)
    name = last if tag in ("", _USUAL) else f"{last}-{tag}"
    found = _TYPE.search(name)
    kind = found.group(1) if found else ""
    words = name.removesuffix(found.group() if found else "")
    for end in _ENDS:
        words = words.removesuffix(end)
    return re.sub(r"[-_. ]+", "-", words).strip("-"), re.sub(r"[-_.]+", "-", kind)


def _last(plain: str) -> tuple[str, str]:
    """The last part of a path, of a repository or of its file, and its tag; any host may be a mirror."""
    found = pasted(plain, endpoint=plain)
    if found is not None:
        return (found.file or found.repo).rpartition("/")[2], found.tag
    last, _, tag = plain.rstrip("/").rpartition("/")[2].partition(":")
    return last, tag
