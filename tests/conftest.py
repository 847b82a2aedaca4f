"""What every test may use: a home of its own, a browser where there is one, steady randomness."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from app.worker import child
from tests.bundled import POCKET

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side, and children inherit it
os.environ["SLIPSTREAM_CONFIG"] = os.devnull  # not the config.toml of whoever runs the tests
os.environ["SLIPSTREAM_MODEL"] = "pocket"  # also where the real model is installed
# Nobody outside is asked, and each client that reads the world's certificates takes 30 ms to make.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read when triton is first imported
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # started in a shell's background, which children inherit; but some stories press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
# Folders with tests that take half a minute: of two workers one was left with the last of these, alone.
LONG = ("ui", "laws", "app")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("steady")


def find_browser() -> str | None:
    """The path of a Chromium on this machine."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long ones first; browser stories are skipped where they cannot run, and say why."""
    items.sort(key=_turn)
    if find_browser():
        return
    skip = pytest.mark.skip(reason=f"no browser on this machine: none of {', '.join(BROWSERS)}")
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(skip)


def _turn(item: pytest.Item) -> int:
    folder = item.path.relative_to(TESTS).parts[0]
    return LONG.index(folder) if folder in LONG else len(LONG)


@pytest.fixture(scope="session", autouse=True)
def quick_engines() -> Iterator[None]:
    """Processes of engines that this one starts load quickly."""
    with pytest.MonkeyPatch.context() as patch:
        families = "transformers.models.auto.modeling_auto"  # whose import takes a second
        ours = ("tests.quick_engines", "tests.app.fake_engine")
        patch.setattr(child, "AHEAD", (*child.AHEAD, families, *ours))
        patch.setattr("engine.models.gguf.context.usable_threads", lambda: 1)  # as in these
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test's own for all state; child processes get it too."""
    folder = tmp_path / "home"
    monkeypatch.setenv("SLIPSTREAM_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def pocket_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model as a GGUF file in float32."""
    pytest.importorskip("gguf")
    from tests.engine.models.gguf.files import exported

    return exported(POCKET, tmp_path_factory.mktemp("gguf") / "pocket.gguf")


@pytest.fixture(scope="session")
def browser_path() -> str:
    """The Chromium to start; only for tests marked ``browser``."""
    found = find_browser()
    assert found, "mark the test with pytest.mark.browser"
    return found
