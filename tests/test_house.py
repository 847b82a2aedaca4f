"""The project against itself: pyproject and CI against the code; documents are in test_docs.py."""

import ast
import re
import sys
from importlib.metadata import packages_distributions

import pytest

from tests.bundled import ROOT
from tests.house import PACKAGES, PROJECT, modules, private_accesses, project_tree, prose

MOST_FILES = {"app": 15, "engine": 10}  # on the top level of a package
MOST_SMALL_MODULES = 40  # of fewer than 60 lines
MOST_PRIVATE_ACCESSES = 60  # of tests
MOST_DIALECT = 1.5  # per 1,000 words
DIALECT = re.compile(
    r"\b(behind|beside|told|tells|stands|nobody|anew|so many|goes on|go on)\b", re.IGNORECASE
)


def test_ci_runs_the_test_command_of_the_readme():
    assert '-m app test --venv "$work/venv"' in (ROOT / ".ci" / "run").read_text()


def test_every_requirement_has_a_floor_and_a_ceiling():
    extras = PROJECT["project"]["optional-dependencies"]
    free = [*PROJECT["project"]["dependencies"], *extras["gguf"], *extras["test"]]
    assert [line for line in free if not re.search(r">=[\d.]+,<[\d.]+$", line)] == []
    assert [line for line in extras["dev"] if "==" not in line] == []
    assert not any("llama" in line for line in PROJECT["project"]["dependencies"])  # it is optional


def imported(folder: str) -> set[str]:
    """Top-level names of everything that the code in ``folder`` imports."""
    found = set()
    for file in modules(ROOT, folder):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("folder", PACKAGES)
def test_every_imported_package_is_a_requirement(folder):
    foreign = imported(folder) - sys.stdlib_module_names - {*PACKAGES}
    origins = packages_distributions()
    optional = PROJECT["project"]["optional-dependencies"]
    extras = [*optional["gguf"], *optional["keyring"], "triton"]  # torch brings the last
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
    """Python 3.12 warns of ``?1`` with a sequence of values, and 3.14 refuses it."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in modules(ROOT, "app")}
    assert [name for name, text in texts.items() if re.search(r"\?\d", text)] == []


def test_contributing_shows_the_project_tree():
    tree = project_tree(ROOT)
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert tree in text, f"put this tree into CONTRIBUTING.md:\n\n{tree}"


@pytest.mark.parametrize(("package", "most"), MOST_FILES.items())
def test_a_package_has_few_files_on_its_top_level(package, most):
    files = sorted(path.name for path in (ROOT / package).iterdir() if path.is_file())
    assert len(files) <= most, f"move some of them into a folder: {', '.join(files)}"


def test_few_modules_are_small():
    small = sorted(
        str(path.relative_to(ROOT))
        for path in modules(ROOT, *PACKAGES)
        if path.name != "__init__.py" and len(path.read_text(encoding="utf-8").splitlines()) < 60
    )
    assert len(small) <= MOST_SMALL_MODULES, "\n".join([f"merge some of {len(small)}:", *small])


def test_tests_use_few_private_attributes():
    found = [place for path in modules(ROOT, "tests") for place in private_accesses(path)]
    assert len(found) <= MOST_PRIVATE_ACCESSES, "\n".join([f"{len(found)} of them:", *found])


def test_prose_is_plain_english():
    """Words of one team instead of the field's: say after, next to, returns, is, continue, again."""
    texts = {path: prose(path) for path in modules(ROOT, *PACKAGES)}
    texts |= {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.md"))}
    hits = {path: len(DIALECT.findall(text)) for path, text in texts.items()}
    words = sum(len(re.findall(r"[A-Za-z']+", text)) for text in texts.values())
    worst = sorted(hits, key=lambda path: -hits[path])[:10]
    listed = "\n".join(f"{hits[path]} {path.relative_to(ROOT)}" for path in worst)
    share = 1000 * sum(hits.values()) / words
    assert share <= MOST_DIALECT, f"{share:.1f} of 1,000 words; most of them in:\n{listed}"
