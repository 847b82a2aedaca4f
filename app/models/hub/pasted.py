"""Names of models as people paste them: owner/repo:Q4_K_M, addresses of a hub, a program's commands."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from app.models.hub.repository import is_repository

_HOSTS = ("huggingface.co", "hf.co", "hf-mirror.com")
_PROGRAMS = re.compile(
    r"^(?:(?:ollama|llama-server|llama-cli|lms|hf|huggingface-cli|vllm|slipstream)\s+)?"
    r"(?:(?:models\s+)?(?:run|pull|get|download|serve)\s+|-hf\s+)?",
    re.IGNORECASE,
)
_FILE_VIEWS = frozenset({"blob", "resolve", "raw"})
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
            return (self.file,)
        return (f":{self.tag}",) if self.tag else ()


def pasted(text: str, endpoint: str = "") -> Pasted | None:
    """What ``text`` names; None for what is no repository, such as words of a search.

    ``endpoint`` is the address of the hub that is used, perhaps a mirror.
    """
    plain = _PROGRAMS.sub("", text.strip().strip("'\"<>"), count=1).strip()
    address = _address(plain, endpoint)
    if address is not None:
        return _of_path(address)
    repo, _, tag = plain.partition(":")
    repo, _, revision = repo.partition("@")
    if "/" not in repo or not is_repository(repo) or " " in tag:
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
    owner, _, rest = path.partition("/")
    name, _, inside = rest.partition("/")
    name, _, tag = name.partition(":")
    repo = f"{owner}/{name}"
    if not (name and is_repository(repo)):
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
