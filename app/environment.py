"""The environment that libraries are imported in: no network, no shared folders, no variables of others."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from app.settings import Settings
from engine.platform.cores import few_threads
from engine.platform.threads import sleep_soon

# Each of these libraries would otherwise look up a host of its own when it starts.
QUIET = {
    "GRADIO_ANALYTICS_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_OFFLINE": "ON",  # of libraries alone: a person who wants that for all writes 1
}
PAGE_FILES = "GRADIO_TEMP_DIR"
# Variables that libraries break on when they are imported. Of the network: downloads need them later.
_NETWORK = re.compile(r".*_PROXY|SSL.*", re.IGNORECASE)
# The others are another program's, or were read by ``load_settings``.
_OTHERS = re.compile(
    r"(GRADIO|HF|HUGGINGFACE|HUGGING_FACE|TRANSFORMERS|TQDM|SPACE|PYTORCH_JIT)_.*|(MPL|TORCH).*|SYSTEM"
    r"|PYTORCH_JIT|USE_(TORCH|TF|JAX|FLAX)|WEB_CONCURRENCY"
)


def tame_libraries(settings: Settings) -> None:
    """Keep libraries off the network and out of shared folders, and let their idle threads sleep.

    Call it before they are imported; child processes inherit it. What was set for them by others goes.
    """
    _take_out(_OTHERS)
    os.environ.update(QUIET)
    try:
        tempfile.gettempdir()
    except FileNotFoundError:  # libraries want a place for temporary files
        os.environ["TMPDIR"] = str(settings.home)
    os.environ[PAGE_FILES] = str(settings.home / "page")  # the usual one is shared by all users
    sleep_soon(os.environ)
    few_threads(os.environ)


def variable(name: str) -> str | None:
    """A variable that a setting names."""
    return os.environ.get(name)


def hide_network() -> dict[str, str]:
    """Take proxies and certificates, on which imports break, out of the environment, and return them."""
    return _take_out(_NETWORK)


def _take_out(pattern: re.Pattern[str]) -> dict[str, str]:
    names = [name for name in os.environ if pattern.fullmatch(name)]
    return {name: os.environ.pop(name) for name in names}


@contextmanager
def without_network() -> Iterator[None]:
    """The same while something is imported: downloads and the browser that is opened may need them."""
    hidden = hide_network()
    try:
        yield
    finally:
        os.environ.update(hidden)
