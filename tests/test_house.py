"""What the papers of the house say about it: README, pyproject, changelog against the code."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from engine.draft_length import LENGTHS
from engine.drafters import AUTO, DRAFTERS

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PAPERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
ENTRY = "import sys; from ui.launch import main; sys.exit(main(sys.argv[1:]))"


def blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
    return [text for name, text in fenced if name == language]


def commands() -> list[str]:
    """Every line of the README that calls slipstream, without its comment."""
    lines = "\n".join(blocks("console")).splitlines()
    return [line.split("  #")[0].strip() for line in lines if line.startswith("slipstream")]


def tree() -> str:
    return next(block for block in blocks("") if "pyproject.toml" in block)


def test_both_commands_stand_in_the_readme():
    lines = [block.strip() for block in blocks("console")]
    assert "python3 -m app" in lines
    assert "python3 -m app test" in lines


def test_ci_runs_the_readmes_own_test_command():
    assert '-m app test --venv "$work/venv"' in (ROOT / ".ci" / "run").read_text()


def test_the_tree_has_every_folder_and_nothing_else():
    shown = {line.split()[0].rstrip("/") for line in tree().splitlines() if line.strip()}
    packages = [ROOT / name for name in ("engine", "app", "ui")]
    inner = [folder for package in packages for folder in package.iterdir() if folder.is_dir()]
    folders = {*packages, ROOT / "tests", *inner}
    there = {folder.name for folder in folders if folder.name != "__pycache__"}
    assert shown == there | {"pyproject.toml", "models.yaml"}


def test_the_path_of_a_request_leads_through_real_files():
    path = next(block for block in blocks("") if "process boundary" in block)
    named = re.findall(r"\b(?:app|engine|ui)/[\w/.]+", path)
    assert len(named) >= 8
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("head", "registry"), [("drafter", DRAFTERS), ("policy", LENGTHS)])
def test_the_tables_of_drafters_and_policies_are_the_registries(head, registry):
    table = re.search(rf"^\| {head} \|.*?\n\n", README, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| `(\w+)` \| [a-z]", table.group(), flags=re.MULTILINE)
    assert sorted(rows) == sorted(name for name in registry if name != AUTO)


@pytest.mark.parametrize("command", commands())
def test_every_command_and_option_of_the_readme_exists(command, home):
    words = command.split('"')[0].split()[1:]
    levels = 2 if words[:1] == ["models"] else 1  # a command of commands
    sub = [word for word in words[:levels] if not word.startswith("-")]
    call = [sys.executable, "-c", ENTRY, *sub, "--help"]
    run = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for option in re.findall(r"--[a-z-]+", command):
        assert option in run.stdout
    assert not home.exists(), "--help leaves no trace"


def test_the_readme_shows_ask_and_verify():
    assert {"ask", "verify"} <= {command.split()[1] for command in commands() if " " in command}


@pytest.mark.parametrize("paper", PAPERS)
def test_links_lead_somewhere(paper):
    links = re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / paper).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


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


def test_the_version_stands_in_the_changelog():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{PROJECT['project']['version']}]" in changelog


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
