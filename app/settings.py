"""Where state lives and what the server listens on: read once from the environment, then frozen."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from app.errors import SettingsError
from engine.platform.threads import sleep_soon

HOME_VARIABLE = "SLIPSTREAM_HOME"
HUB = "https://huggingface.co"

# Each of these libraries would otherwise look up a host of its own when it starts.
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True, slots=True)
class OtherFolders:
    """Where other programs keep models that need not be downloaded again; None is nowhere."""

    hub: Path | None = None  # huggingface_hub's cache
    lm_studio: Path | None = None
    ollama: Path | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """One folder per user holds all state; the page and the endpoint share one address."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 7860
    model: str = "pocket"
    dtype: str | None = None  # of the first model's weights; None: the catalogue's, or the plan's
    read_ahead: bool = True  # what a person is about to ask about, while nobody asks anything
    hub: str = HUB  # asked only when a person searches or downloads
    hub_token: str | None = field(default=None, repr=False)  # of the environment
    others: OtherFolders = OtherFolders()

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
        """The person's own token for gated models, readable by nobody else."""
        return self.home / "hub-token"

    @property
    def logs(self) -> Path:
        """Where log files go."""
        return self.home / "logs"


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Defaults, overridden by the environment; creates nothing on disk."""
    chosen = environ.get(HOME_VARIABLE, "").strip()
    home = Path(chosen) if chosen else platformdirs.user_data_path("slipstream", appauthor=False)
    return Settings(
        home=expanded(home).absolute(),
        hub=environ.get("HF_ENDPOINT", "").strip().rstrip("/") or HUB,
        hub_token=environ.get("HF_TOKEN", "").strip() or None,
        others=_other_folders(environ),
    )


def expanded(path: Path) -> Path:
    """``path`` with the home folder in place of its ``~``; raises SettingsError."""
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise SettingsError(
            f"{path} begins with a home folder that this machine does not know; write the whole path"
        ) from error


def _other_folders(environ: Mapping[str, str]) -> OtherFolders:
    """Each program's own variable, or else its usual place."""

    def place(variable: str, usual: str) -> Path:
        return expanded(Path(environ.get(variable, "").strip() or usual)).absolute()

    hub_home = place("HF_HOME", "~/.cache/huggingface")
    return OtherFolders(
        hub=place("HF_HUB_CACHE", str(hub_home / "hub")),
        lm_studio=place("LMSTUDIO_MODELS", "~/.lmstudio/models"),
        ollama=place("OLLAMA_MODELS", "~/.ollama/models"),
    )


def prepare_home(settings: Settings) -> None:
    """Create the folders of ``settings``, or say in one sentence why that cannot be done."""
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)  # conversations are private
        settings.models_folder.mkdir(exist_ok=True)
        settings.logs.mkdir(exist_ok=True)
    except OSError as error:
        raise SettingsError(
            f"the folder {settings.home} cannot be used ({error.strerror}); "
            f"set {HOME_VARIABLE} to a folder that can be written"
        ) from error


def tame_libraries() -> None:
    """Keep libraries off the network, and their waiting threads off the cores that others need.

    Call it before they are imported; child processes inherit it.
    """
    os.environ.update(QUIET)
    sleep_soon(os.environ)
