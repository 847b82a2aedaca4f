"""The project against itself: pyproject and CI against the code; documents are in test_docs.py."""

import ast
import importlib
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_ci_runs_the_readmes_own_test_command():
    assert '-m app test --venv "$work/venv"' in (ROOT / ".ci" / "run").read_text()


def test_every_requirement_has_a_floor_and_a_ceiling():
    extras = PROJECT["project"]["optional-dependencies"]
    free = [*PROJECT["project"]["dependencies"], *extras["gguf"], *extras["test"]]
    assert [line for line in free if not re.search(r">=[\d.]+,<[\d.]+$", line)] == []
    assert [line for line in extras["dev"] if "==" not in line] == []


def test_gguf_is_not_among_what_must_install():
    assert not any("llama" in line for line in PROJECT["project"]["dependencies"])


def test_the_console_script_exists():
    module, name = PROJECT["project"]["scripts"]["slipstream"].split(":")
    assert callable(getattr(importlib.import_module(module), name))


def imported(folder: str) -> set[str]:
    """Top-level names of everything that the code in ``folder`` imports."""
    found = set()
    for file in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("folder", ["engine", "app", "ui"])
def test_everything_imported_is_required_and_not_only_there_by_chance(folder):
    foreign = imported(folder) - sys.stdlib_module_names - {"engine", "app", "ui"}
    origins = packages_distributions()
    extras = PROJECT["project"]["optional-dependencies"]["gguf"] + ["triton"]  # torch brings it
    lines = [*PROJECT["project"]["dependencies"], *extras]
    required = {re.match(r"[\w-]+", line).group() for line in lines}
    required.add("pydantic-core")  # pydantic brings exactly the one it needs
    required.add("markdown-it-py")  # gradio brings it, through typer and rich
    lacking = {
        name
        for name in foreign
        if not {origin.lower().replace("_", "-") for origin in origins.get(name, [name])} & required
    }
    assert lacking == set()


def test_no_statement_numbers_its_question_marks():
    """Python 3.12 warns of ``?1`` beside a sequence, and 3.14 refuses it."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "app").rglob("*.py")}
    assert [name for name, text in texts.items() if re.search(r"\?\d", text)] == []
