"""Names of models as people paste them: owner/repo:Q4_K_M, addresses of a hub, a program's commands."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from app.models.hub.repository import is_repository

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
_USUAL = "latest"


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
    hosts = {*_HOSTS, *(f"www.{host}" for host in _HOSTS), urlsplit(endpoint).netloc.lower()} - {""}
    split = urlsplit(plain if "://" in plain else f"//{plain}")
    if split.netloc.lower() not in hosts:
        return None
    return unquote(split.path.strip("/")).removeprefix("models/")


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
