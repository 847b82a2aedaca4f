"""What the tests of the project's own shape read: its tree, its prose, accesses to private attributes."""

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.bundled import ROOT

PACKAGES = ("engine", "app", "ui")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules(root: Path, *folders: str) -> list[Path]:
    """Every Python file of the folders."""
    return sorted(path for folder in folders for path in (root / folder).rglob("*.py"))


def project_tree(root: Path) -> str:
    """Every package and its folders, each with the first line of its docstring."""
    lines = []
    for package in PACKAGES:
        lines.append(f"{package + '/':<18}{_summary(root / package)}")
        inner = sorted(path.parent for path in (root / package).glob("*/__init__.py"))
        lines += [f"  {folder.name + '/':<16}{_summary(folder)}" for folder in inner]
    return "\n".join(lines)


def _summary(folder: Path) -> str:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert docstring, f"{folder}/__init__.py needs a docstring"
    return docstring.splitlines()[0]


def prose(path: Path) -> str:
    """Comments, docstrings and messages: every string of more than a few words."""
    source = io.StringIO(path.read_text(encoding="utf-8"))
    return "\n".join(
        token.string
        for token in tokenize.generate_tokens(source.readline)
        if token.type == tokenize.COMMENT or (token.type in TEXTS and len(token.string) > 25)
    )


TEXTS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


def private_accesses(path: Path) -> Iterator[str]:
    """Attributes of other objects that begin with one underscore."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Attribute) or node.attr.startswith("__"):
            continue
        own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        if node.attr.startswith("_") and not own:
            yield f"{path.name}:{node.lineno} {node.attr}"
