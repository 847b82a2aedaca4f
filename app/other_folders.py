"""Where other programs keep models: by their variables, their settings files and their usual places."""

import configparser
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# As systemd writes it: Environment="OLLAMA_MODELS=/my models" or Environment=OLLAMA_MODELS=/models
_OLLAMA_MODELS = re.compile(
    r'^\s*Environment=(?:.*\s)?(?:"OLLAMA_MODELS=([^"\n]+)"|OLLAMA_MODELS=(\S+))', re.M
)


@dataclass(frozen=True, slots=True)
class OtherFolders:
    """Folders of each program, which need not exist; nothing of them was read but settings files."""

    hub: tuple[Path, ...] = ()  # caches of huggingface_hub
    lm_studio: tuple[Path, ...] = ()
    ollama: tuple[Path, ...] = ()
    llama_cpp: tuple[Path, ...] = ()
    jan: tuple[Path, ...] = ()
    gpt4all: tuple[Path, ...] = ()


def other_folders(environ: Mapping[str, str]) -> OtherFolders:
    """Every place that a program may use; reads two or three small files at most."""
    return OtherFolders(
        hub=_distinct(_hub(environ)),
        lm_studio=_distinct(_lm_studio(environ)),
        ollama=_distinct(_ollama(environ)),
        llama_cpp=_distinct(_llama_cpp(environ)),
        jan=_distinct(_jan(environ)),
        gpt4all=_distinct(_gpt4all(environ)),
    )


def hub_home(environ: Mapping[str, str]) -> Path:
    """The folder of huggingface_hub: its login and, usually, its cache."""
    return _named(environ, "HF_HOME") or _cache(environ) / "huggingface"


def hub_login(environ: Mapping[str, str]) -> Path:
    """The file in which ``hf auth login`` keeps the token."""
    return _named(environ, "HF_TOKEN_PATH") or hub_home(environ) / "token"


def _hub(environ: Mapping[str, str]) -> Iterator[Path | None]:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE"):
        yield _named(environ, name)
    yield hub_home(environ) / "hub"
    yield _user("~/.cache/huggingface/hub")


def _lm_studio(environ: Mapping[str, str]) -> Iterator[Path | None]:
    """A settings file of either home may name another folder; a pointer may name another home."""
    yield _named(environ, "LMSTUDIO_MODELS")
    homes = [_user("~/.lmstudio"), _user("~/.cache/lm-studio")]
    pointed = _text(_user("~/.lmstudio-home-pointer")).strip()
    for home in (_path(pointed), *homes):
        if home is not None:
            yield _path(_field(home / "settings.json", "downloadsFolder"))
            yield home / "models"


def _ollama(environ: Mapping[str, str]) -> Iterator[Path | None]:
    yield _named(environ, "OLLAMA_MODELS")
    for file in (Path("/etc/systemd/system/ollama.service"), *_overrides()):
        for quoted, plain in _OLLAMA_MODELS.findall(_text(file)):
            yield _path(quoted or plain)
    yield _user("~/.ollama/models")
    yield _user("~/snap/ollama/common/models")
    for home in ("/usr/share/ollama/.ollama", "/var/lib/ollama/.ollama", "/var/lib/ollama"):
        yield Path(home) / "models"  # of the service, by distribution


def _overrides() -> Iterator[Path]:
    """What ``systemctl edit ollama`` writes: the usual way to move the models of the service."""
    yield from sorted(Path("/etc/systemd/system/ollama.service.d").glob("*.conf"))


def _llama_cpp(environ: Mapping[str, str]) -> Iterator[Path | None]:
    yield _named(environ, "LLAMA_CACHE")
    yield _cache(environ) / "llama.cpp"
    yield _user("~/Library/Caches/llama.cpp")


def _jan(environ: Mapping[str, str]) -> Iterator[Path | None]:
    for config in (_config(environ), _user("~/Library/Application Support"), _data(environ)):
        if config is not None:
            chosen = _path(_field(config / "Jan" / "settings.json", "data_folder"))
            for data in (chosen, config / "Jan" / "data"):
                yield _below(data, "llamacpp/models")
                yield _below(data, "models")
    yield _user("~/jan/models")


def _gpt4all(environ: Mapping[str, str]) -> Iterator[Path | None]:
    config = _config(environ)
    if config is not None:
        for name in ("GPT4All.ini", "GPT4All.conf"):
            yield _path(_ini(config / "nomic.ai" / name, "modelPath"))
    yield _below(_data(environ), "nomic.ai/GPT4All")
    yield _user("~/Library/Application Support/nomic.ai/GPT4All")
    yield _cache(environ) / "gpt4all"


def _cache(environ: Mapping[str, str]) -> Path:
    return _named(environ, "XDG_CACHE_HOME") or _user("~/.cache") or Path("/nonexistent")


def _config(environ: Mapping[str, str]) -> Path | None:
    return _named(environ, "XDG_CONFIG_HOME") or _user("~/.config")


def _data(environ: Mapping[str, str]) -> Path | None:
    return _named(environ, "XDG_DATA_HOME") or _user("~/.local/share")


def _named(environ: Mapping[str, str], variable: str) -> Path | None:
    return _path(environ.get(variable, "").strip())


def _path(text: str) -> Path | None:
    return _user(text) if text else None


def _user(text: str) -> Path | None:
    """An absolute path; None where it begins with an unknown home folder."""
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - Path's own raises where it fails
    return None if str(path).startswith("~") else path.absolute()


def _below(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / name


def _text(file: Path | None) -> str:
    """A settings file of another program; one that cannot be read says nothing."""
    try:
        return "" if file is None else file.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""


def _field(file: Path, name: str) -> str:
    try:
        content = json.loads(_text(file) or "{}")
    except (ValueError, RecursionError):
        return ""
    value = content.get(name) if isinstance(content, dict) else None
    return value if isinstance(value, str) else ""


def _ini(file: Path, name: str) -> str:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(_text(file))
    except configparser.Error:
        return ""
    return parser.get("General", name, fallback="").strip().strip('"')


def _distinct(places: Iterator[Path | None]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(place for place in places if place is not None))
