"""Which files of a repository make a model, and whether that model can run, before a download."""

import json
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from app.errors import AccessDenied, UnknownRepository
from app.models.gguf_check import beside_a_model
from app.models.hub.client import Hub
from app.models.hub.repository import MODEL_NAME, RemoteFile, Repository, read_small
from app.models.model_check import NEEDED_FILES, other_kind
from engine.decoder.config import check_config
from engine.errors import ModelUnusable
from engine.models.gguf.kinds import other_end

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
TAG = ":"  # begins a quantisation, in place of a pattern
USUAL_QUANTISATION = "Q4_K_M"
SHARD = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")


def choose_files(repository: Repository, wanted: Sequence[str] = ()) -> tuple[RemoteFile, ...]:
    """The files to fetch: those that match ``wanted``, or what the repository's kind needs.

    Raises UnknownRepository when nothing there can be run, naming what is there.
    """
    if wanted:
        return _wanted(repository, wanted)
    safetensors = _matching(repository.files, WEIGHTS)
    if not safetensors and (kind := other_kind({file.name for file in repository.files}, {})):
        raise UnknownRepository(f"{repository.repo} {kind}")
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
        tagged = pattern.startswith(TAG)
        found = _tagged(repository, pattern[1:]) if tagged else _matching(repository.files, pattern)
        if not found:
            raise UnknownRepository(
                f"{repository.repo} has no file {pattern.removeprefix(TAG)}; it has {_some(repository)}"
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
    ggufs = [file for file in repository.files if file.name.lower().endswith(".gguf")]
    models = {SHARD.sub("", file.name) for file in ggufs if not beside_a_model(file.name)}
    if len(models) > 1:
        models = {name for name in models if USUAL_QUANTISATION.lower() in name.lower()}
    if len(models) == 1:
        return tuple(file for file in ggufs if SHARD.sub("", file.name) in models)
    whole = [file.name for file in ggufs if not beside_a_model(file.name)]
    if whole:
        raise UnknownRepository(
            f"{repository.repo} has {len(whole)} GGUF files; name one with --file, such as {whole[0]}"
        )
    if ggufs:
        raise UnknownRepository(
            f"{repository.repo} has {ggufs[0].name}, which belongs beside a model, and no model; choose "
            "a repository with the model itself"
        )
    raise UnknownRepository(
        f"{repository.repo} has no model that can be run, which takes *.safetensors or *.gguf; "
        f"it has {_some(repository)}"
    )


def _tagged(repository: Repository, tag: str) -> tuple[RemoteFile, ...]:
    """The GGUF model of a quantisation, in any case of letters: the name that ends so, or has it."""
    ggufs = [file for file in repository.files if file.name.lower().endswith(".gguf")]
    stems = {SHARD.sub("", file.name)[: -len(".gguf")] for file in ggufs}
    whole = re.compile(rf"(^|[-_./]){re.escape(tag)}$", re.IGNORECASE)
    part = re.compile(rf"(^|[-_./]){re.escape(tag)}([-_./]|$)", re.IGNORECASE)
    for sought in (whole, part):
        fitting = sorted((stem for stem in stems if sought.search(stem)), key=len)
        if fitting:
            return tuple(f for f in ggufs if SHARD.sub("", f.name)[: -len(".gguf")] == fitting[0])
    return ()


def _matching(files: Sequence[RemoteFile], pattern: str) -> tuple[RemoteFile, ...]:
    return tuple(file for file in files if fnmatchcase(file.name, pattern))


def _some(repository: Repository) -> str:
    names = [file.name for file in repository.files]
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return (", ".join(names[:5]) or "no files") + more


CONFIG = "config.json"
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
LARGEST_INDEX = 1 << 24  # bytes; one line for each tensor, megabytes where there are many experts
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def check_runs(hub: Hub, repository: Repository, files: Sequence[RemoteFile]) -> None:
    """Raises ModelUnusable for ``files`` that no engine here can load, HubError and its kinds.

    Files of a gated repository are not checked: the download reports the refusal and waits for a
    token.
    """
    check_parts(repository, files)
    _check_weights(repository, files)
    if not any(file.name.endswith(".safetensors") for file in files):
        return
    names = {file.name for file in repository.files}
    if kind := other_kind(names, {}):
        raise ModelUnusable(f"{repository.repo} {kind}")
    _check_names(repository)
    try:
        _check_index(hub, repository, {file.name for file in files})
        _check_config(hub, repository)
    except AccessDenied:
        return


def _check_weights(repository: Repository, files: Sequence[RemoteFile]) -> None:
    """By their sizes, and by the family of GGUF files."""
    weights = [file for file in files if file.name.lower().endswith((".gguf", ".safetensors"))]
    if empty := [file.name for file in weights if not file.size]:
        raise ModelUnusable(f"{repository.repo}: {empty[0]} is empty; choose another file")
    ggufs = any(file.name.lower().endswith(".gguf") for file in weights)
    if ggufs and (kind := other_end(repository.family)):
        raise ModelUnusable(f"{repository.repo} is {kind}")


def check_parts(repository: Repository, files: Sequence[RemoteFile]) -> None:
    """Raises ModelUnusable unless a GGUF model in parts has all of them."""
    found = [part for file in files if (part := PART.fullmatch(file.name))]
    if not found:
        return
    count = max(int(part[3]) for part in found)
    here, name = len({int(part[2]) for part in found}), found[0][1]
    if here < count:
        raise ModelUnusable(
            f"{repository.repo}: {here} of the {count} parts of {name} are not enough to run it; "
            f"choose another file, or all parts with --file '{name}-*.gguf' where they are there"
        )


def _check_names(repository: Repository) -> None:
    """By what is there, not by what is fetched: a person may name files that he lacks."""
    names = {file.name for file in repository.files}
    missing = [name for name in NEEDED_FILES if name not in names]
    if not {INDEX, SINGLE} & names:
        missing.append(SINGLE)
    if missing:
        raise ModelUnusable(
            f"{repository.repo} cannot run: it has no {' and no '.join(missing)}; choose "
            "another repository of the model"
        )


def _check_index(hub: Hub, repository: Repository, names: set[str]) -> None:
    if INDEX not in names:
        return
    written = read_small(hub, repository, INDEX, LARGEST_INDEX)
    if written is None:
        return  # larger than any that is known: the loader reads it
    index = _parsed(repository, INDEX, written)
    placed = index.get("weight_map")
    named = {str(file) for file in placed.values()} if isinstance(placed, dict) else set[str]()
    if not named:
        raise ModelUnusable(
            f"{repository.repo} cannot run: its {INDEX} names no files; choose another repository "
            "of the model"
        )
    if lost := sorted(named - names):
        raise ModelUnusable(
            f"{repository.repo} cannot run: {len(lost)} of the {len(named)} files of weights that "
            f"its index names are missing, {lost[0]} first; try again when they are there"
        )


def _check_config(hub: Hub, repository: Repository) -> None:
    written = read_small(hub, repository, CONFIG)
    if written is not None:
        config = _parsed(repository, CONFIG, written)
        if kind := other_kind((), config):
            raise ModelUnusable(f"{repository.repo} {kind}")
        check_config(repository.repo, config)


def _parsed(repository: Repository, name: str, written: bytes) -> dict[str, object]:
    try:
        content = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise ModelUnusable(f"{repository.repo}: {name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelUnusable(f"{repository.repo}: {name} holds no fields")
    return content
