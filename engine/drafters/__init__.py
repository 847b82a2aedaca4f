"""Registry of drafters: name -> ``module:class``. A new drafter is one file and one line here."""

import ast
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DRAFTERS: dict[str, str] = {
    "none": "engine.drafters.none:Plain",
    "lookup": "engine.drafters.lookup:Lookup",
    "suffix": "engine.drafters.suffix:Suffix",
    "recycling": "engine.drafters.recycling:Recycling",
    "early_exit": "engine.drafters.early_exit:EarlyExit",
    "chain": "engine.drafters.chain:Chain",
    "sequoia": "engine.drafters.sequoia:Sequoia",
    "specexec": "engine.drafters.specexec:SpecExec",
    "format": "engine.drafters.format:Format",
    "auto": "engine.drafters.auto:Auto",
}


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """What a drafter's class says of it for people; its meaning: ``engine.interfaces.drafter.Drafter``."""

    name: str
    title: str
    summary: str = ""
    accepted: str = "were guessed correctly"
    listed: bool = True
    plan_when: tuple[str, ...] | None = None
    plan_reason: str = ""
    elsewhere: str = ""


def describe(name: str) -> DrafterInfo:
    """For people, also of a drafter that does not exist any more.

    A plan uses the drafter whose ``plan_when`` holds with the most conditions. There are: "draft
    model" (one fits), "streamed" (passes read weights), "dense" (no experts), "early exit" (the model
    was trained for it and our decoder runs it).
    """
    if name not in DRAFTERS:
        return DrafterInfo(name, name.replace("_", " ").capitalize())
    return DrafterInfo(name, **_literals(DRAFTERS[name]))


@cache
def _literals(line: str) -> dict[str, Any]:
    """The class attributes for ``DrafterInfo``, read from the source: an import would load torch."""
    module, _, wanted = line.partition(":")
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    body = next(n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == wanted)
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in DrafterInfo.__dataclass_fields__
    }
