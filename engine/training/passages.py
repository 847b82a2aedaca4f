"""Raw text that chores and samples are made of: sentences, source lines, running text."""

import ast
import json
import re
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_ANNOTATION = re.compile(r"<<[^>]*>>")
_BOUNDARY = re.compile(r"(?<=[a-z)\"'][.?!])\s+")
HELD_OUT_PROBLEMS = 400


@dataclass(frozen=True, slots=True)
class Problem:
    """One grade-school word problem with its worked answer."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Passages:
    """Everything that samples are drawn from."""

    sentences: tuple[str, ...]
    snippets: tuple[str, ...]  # short Python functions
    words: tuple[str, ...]  # common lower-case words
    sources: tuple[str, ...]  # whole files, for long samples


def read_problems(path: Path) -> list[Problem]:
    """GSM8K lines; calculator annotations removed, the final answer as a sentence."""
    rows = (json.loads(line) for line in path.read_text().splitlines() if line.strip())
    return [Problem(row["question"].strip(), plain_answer(row["answer"])) for row in rows]


def plain_answer(answer: str) -> str:
    """``... <<48/2=24>>24 clips. #### 72`` -> ``... 24 clips. The answer is 72.``"""
    text = _ANNOTATION.sub("", answer)
    return text.replace("\n#### ", "\nThe answer is ").strip() + "."


def sentences_of(texts: Iterable[str]) -> list[str]:
    """Sentences of 30 to 160 characters, without duplicates, in order of first appearance."""
    found = (s.strip().replace("\n", " ") for t in texts for s in _BOUNDARY.split(t))
    return list(dict.fromkeys(s for s in found if 30 <= len(s) <= 160 and s[-1] in ".?!"))


def library_sources() -> list[str]:
    """Source files of the Python standard library (PSF licence), tests left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    folders = (root, root / "json", root / "email", root / "logging", root / "collections")
    files = sorted(f for folder in folders for f in folder.glob("*.py"))
    return [f.read_text(encoding="utf-8", errors="replace") for f in files]


def snippets_of(sources: Iterable[str]) -> list[str]:
    """Functions of 3 to 14 lines without docstrings, dedented; unparsable files are left out."""
    found: list[str] = []
    for source in sources:
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        found.extend(_short_functions(tree))
    return list(dict.fromkeys(found))


def _short_functions(tree: ast.AST) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            text = ast.unparse(node)
            if 3 <= text.count("\n") + 1 <= 14 and len(text) < 500 and '"""' not in text:
                yield text


def gather_passages(problems: Iterable[Problem]) -> Passages:
    """Passages of the training problems and of this Python's own library."""
    questions = [p.question for p in problems]
    sources = library_sources()
    counts: dict[str, int] = {}
    for word in re.findall(r"\b[a-z]{3,9}\b", " ".join(questions)):
        counts[word] = counts.get(word, 0) + 1
    words = sorted(counts, key=lambda w: -counts[w])[:2500]
    return Passages(
        sentences=tuple(sentences_of(questions)),
        snippets=tuple(snippets_of(sources)),
        words=tuple(words),
        sources=tuple(s for s in sources if len(s) > 4000),
    )
