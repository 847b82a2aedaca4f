"""Which files of a repository make a model that can be run."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from app.errors import UnknownRepository
from app.models.hub.names import MODEL_NAME
from app.models.hub.repository import RemoteFile, Repository

# Everything that loading reads; never code, never pickles.
BESIDE_WEIGHTS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "model.safetensors.index.json",
)
WEIGHTS = "model*.safetensors"  # not consolidated.safetensors, which repeats them
USUAL_QUANTISATION = "Q4_K_M"
SHARD = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")


def choose_files(repository: Repository, wanted: Sequence[str] = ()) -> tuple[RemoteFile, ...]:
    """The files to fetch: those that match ``wanted``, or what the repository's kind needs.

    Raises UnknownRepository when nothing there can be run, naming what is there.
    """
    if wanted:
        return _wanted(repository, wanted)
    safetensors = _matching(repository.files, WEIGHTS)
    if safetensors:
        return *safetensors, *(file for file in repository.files if file.name in BESIDE_WEIGHTS)
    return _quantised(repository)


def model_name(repository: Repository, files: Sequence[RemoteFile]) -> str:
    """What the model is called here: the GGUF file's own name, or the repository's last part."""
    first = next((file.name for file in files if file.name.endswith(".gguf")), None)
    if first is None:
        return repository.repo.rpartition("/")[2]
    name = PurePosixPath(SHARD.sub("", first)).stem
    return name if MODEL_NAME.fullmatch(name) else repository.repo.replace("/", "--")


def _wanted(repository: Repository, wanted: Sequence[str]) -> tuple[RemoteFile, ...]:
    chosen: dict[str, RemoteFile] = {}
    for pattern in wanted:
        found = _matching(repository.files, pattern)
        if not found:
            raise UnknownRepository(
                f"{repository.repo} has no file {pattern}; it has {_some(repository)}"
            )
        chosen |= {file.name: file for file in found}
    files = tuple(chosen.values())
    ggufs = {SHARD.sub("", file.name) for file in files if file.name.endswith(".gguf")}
    if len(ggufs) > 1:
        raise UnknownRepository(
            f"{len(ggufs)} GGUF models of {repository.repo} match, such as {sorted(ggufs)[0]}; "
            "name one with --file"
        )
    return files


def _quantised(repository: Repository) -> tuple[RemoteFile, ...]:
    """The one GGUF model, or the one in the usual quantisation, with all its shards."""
    ggufs = [file for file in repository.files if file.name.endswith(".gguf")]
    models = {SHARD.sub("", file.name) for file in ggufs}
    if len(models) > 1:
        models = {name for name in models if USUAL_QUANTISATION.lower() in name.lower()}
    if len(models) == 1:
        return tuple(file for file in ggufs if SHARD.sub("", file.name) in models)
    if ggufs:
        raise UnknownRepository(
            f"{repository.repo} has {len(ggufs)} GGUF files; name one with --file, such as "
            f"{ggufs[0].name}"
        )
    raise UnknownRepository(
        f"{repository.repo} has no model that can be run, which takes *.safetensors or *.gguf; "
        f"it has {_some(repository)}"
    )


def _matching(files: Sequence[RemoteFile], pattern: str) -> tuple[RemoteFile, ...]:
    return tuple(file for file in files if fnmatchcase(file.name, pattern))


def _some(repository: Repository) -> str:
    names = [file.name for file in repository.files]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) or "no files") + more
