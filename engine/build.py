"""build(spec) -> Engine: the only place that reads the registries."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from engine.decode.tree import chain
from engine.drafters import DRAFTERS
from engine.engine import Engine, Machinery
from engine.errors import InvalidRequest, ModelUnusable
from engine.lengths import LENGTHS
from engine.models import TARGETS
from engine.protocols import Capability, Drafter, LengthPolicy, Parts, Target
from engine.request import ModelFacts, ModelSpec

AUTO = "auto"
WARM_UP_ROWS = (1, 2, 4, 8, 16, 32)


def build(spec: ModelSpec) -> Engine:
    """Load the models and wire everything; raises ModelUnusable with the remedy."""
    load = _named(TARGETS, "torch")
    target = load(Path(spec.folder), spec.dtype, spec.device)
    _warm_up(target)
    draft_model, no_draft = _draft_model(spec, target)
    options = {} if spec.exit_layer is None else {"exit_layer": float(spec.exit_layer)}
    parts = Parts(target, draft_model, options)
    return assemble(spec, parts, no_draft)


def assemble(spec: ModelSpec, parts: Parts, no_draft: str) -> Engine:
    """An engine over loaded parts; ``no_draft`` is said of drafters that miss a draft model."""
    refused = {name: why for name in DRAFTERS if (why := _obstacle(name, spec, parts, no_draft))}
    drafters: dict[str, Drafter] = {
        name: _named(DRAFTERS, name)(parts) for name in DRAFTERS if name not in refused
    }
    facts = ModelFacts(
        name=spec.name,
        context=parts.target.context,
        vocab=parts.target.vocab,
        layers=parts.target.layers,
        parameters=parts.target.parameters,
        drafters=tuple(drafters),
        refused=tuple(refused.items()),
    )
    machinery = Machinery(
        target=parts.target,
        drafters=drafters,
        choose=_chooser(drafters, refused),
        length=_new_length,
        facts=facts,
        slots=spec.slots,
    )
    return Engine(machinery)


def _warm_up(target: Target) -> None:
    """Run passes of several widths: first calls build kernels, and no answer should pay for that."""
    for rows in (*WARM_UP_ROWS, *WARM_UP_ROWS):
        target.score([0], [chain([0] * min(rows, target.context))])
        target.crop(0, 0)


def _draft_model(spec: ModelSpec, target: Target) -> tuple[Any, str]:
    """The draft model, or None and the reason."""
    if spec.draft_folder is None:
        return None, f"no draft model is paired with {spec.name}"
    if _vocabulary(spec.folder) != _vocabulary(spec.draft_folder):
        return None, "the draft model's vocabulary differs from the model's"
    draft = _named(TARGETS, "torch")(Path(spec.draft_folder), spec.dtype, spec.device)
    if draft.vocab != target.vocab:
        return None, f"the draft model has {draft.vocab} tokens, the model {target.vocab}"
    return draft, ""


def _vocabulary(folder: str) -> Any:
    file = Path(folder) / "tokenizer.json"
    if not file.exists():
        raise ModelUnusable(f"{folder}: tokenizer.json is missing; download the model again")
    return json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]


def _obstacle(name: str, spec: ModelSpec, parts: Parts, no_draft: str) -> str:
    """Why a drafter cannot run with these parts; empty when it can."""
    needs = _named(DRAFTERS, name).needs
    missing = needs - parts.target.offers - {Capability.DRAFT_MODEL}
    if missing:
        return f"the model's backend lacks: {', '.join(sorted(missing))}"
    if Capability.DRAFT_MODEL in needs and parts.draft_model is None:
        return no_draft
    if Capability.LAYERS in needs and spec.exit_layer is None:
        return f"{spec.name} was not trained with an early-exit loss"
    return ""


def _chooser(
    drafters: dict[str, Drafter], refused: dict[str, str]
) -> Callable[[str], tuple[str, str]]:
    def choose(asked: str) -> tuple[str, str]:
        if asked == AUTO:
            return "lookup", (
                "auto takes prompt lookup: it needs no second model, and its drafts are as long "
                "as the measured speed makes worth while"
            )
        if asked in drafters:
            return asked, "asked for"
        if asked in refused:
            raise InvalidRequest(f"drafter {asked!r} cannot run here: {refused[asked]}")
        raise InvalidRequest(f"unknown drafter {asked!r}; known are auto, {', '.join(DRAFTERS)}")

    return choose


def _new_length(name: str) -> LengthPolicy:
    if name not in LENGTHS:
        raise InvalidRequest(f"unknown length policy {name!r}; known are {', '.join(LENGTHS)}")
    policy: LengthPolicy = _named(LENGTHS, name)()
    return policy


def _named(registry: dict[str, str], name: str) -> Any:
    """The object that a registry line names; its module is imported now and not before."""
    module, attribute = registry[name].split(":")
    return getattr(import_module(module), attribute)
