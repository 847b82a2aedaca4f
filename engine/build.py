"""build(spec) -> Engine: the only place that reads the registries."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from engine.cost import PassCost
from engine.decode.tree import DraftTree, chain
from engine.drafters import ARMS, AUTO, DRAFTERS
from engine.engine import Engine, Machinery, Options
from engine.errors import InvalidRequest, ModelUnusable
from engine.lengths import LENGTHS
from engine.models import TARGETS
from engine.protocols import (
    Arm,
    Capability,
    Drafter,
    DraftModel,
    LengthPolicy,
    Parts,
    Rows,
    Target,
)
from engine.request import ModelFacts, ModelSpec

DEFAULT = "default"
DEFAULT_LENGTH = {  # goodput for all others
    "none": "fixed",
    "auto": "fixed",
    "early_exit": "dynamic_exit",
    "chain": "confidence",
}
PROFILE_ROWS = (1, 8, 64, 16, 2, 32, 4)  # a large model gets the first few: the ends matter most
PROFILE_REPEATS = 3
PROFILE_SECONDS = 2.0  # of waiting for a first answer are enough
PROFILE_CONTEXT = 512


def build(spec: ModelSpec) -> Engine:
    """Load the models and wire everything; raises ModelUnusable with the remedy."""
    return assemble(spec, *load(spec))


def load(spec: ModelSpec) -> tuple[Parts, str]:
    """The loaded models with the target's measured cost; why there is no draft model, if so."""
    target = _target(spec)
    draft_model, no_draft = _draft_model(spec, target)
    options = {} if spec.exit_layer is None else {"exit_layer": float(spec.exit_layer)}
    head = None if spec.acceptance_head is None else Path(spec.acceptance_head)
    parts = Parts(target, draft_model, options=options, acceptance_head=head)
    profile(target, parts.cost)
    if draft_model is not None:
        parts = replace(parts, draft_step=profile_draft(draft_model))
    return parts, no_draft


def assemble(spec: ModelSpec, parts: Parts, no_draft: str) -> Engine:
    """An engine over loaded parts; ``no_draft`` is said of drafters that miss a draft model."""
    refused = {name: why for name in DRAFTERS if (why := _obstacle(name, spec, parts, no_draft))}
    able = tuple(name for name in DRAFTERS if name not in refused)
    facts = ModelFacts(
        name=spec.name,
        context=parts.target.context,
        vocab=parts.target.vocab,
        layers=parts.target.layers,
        parameters=parts.target.parameters,
        drafters=tuple(name for name in able if name != AUTO),
        refused=tuple(refused.items()),
    )
    machinery = Machinery(
        target=parts.target,
        choose=_chooser(able, refused),
        drafter=partial(_new_drafter, parts, able),
        length=partial(_new_length, parts),
        cost=parts.cost,
        facts=facts,
        slots=spec.slots,
    )
    return Engine(machinery)


def profile(target: Target, cost: PassCost) -> None:
    """Measure the pass over several widths; doing so also builds kernels, which no answer should pay for.

    SmartSpec profiles once, offline; here it is done at every load, because the machine may differ.
    """
    started = time.perf_counter()
    for at, rows in enumerate(PROFILE_ROWS):
        if at > 1 and time.perf_counter() - started > PROFILE_SECONDS:
            break
        width = min(rows, target.context)
        calls = [_timed(target, [chain([0] * width)]) for _ in range(PROFILE_REPEATS)]
        cost.profile(width, min(calls[1:]))  # the first call of a width builds its kernels
    if time.perf_counter() - started < PROFILE_SECONDS and target.context > PROFILE_CONTEXT:
        target.feed(0, [0] * PROFILE_CONTEXT)
        seconds = min(_timed(target, [chain([0])]) for _ in range(PROFILE_REPEATS))
        cost.profile_context(PROFILE_CONTEXT, seconds)
        target.crop(0, 0)


def profile_draft(draft: DraftModel) -> float:
    """Seconds of one draft step: a single row."""
    times = []
    for _ in range(2 * PROFILE_REPEATS):
        started = time.perf_counter()
        draft.grow([Rows(0, [0], [-1])])
        times.append(time.perf_counter() - started)
        draft.crop(0, 0)
    return median(times)


def _timed(target: Target, trees: list[DraftTree]) -> float:
    started = time.perf_counter()
    target.score([0], trees)
    target.commit(0, [])
    return time.perf_counter() - started


def _target(spec: ModelSpec) -> Any:
    if spec.backend not in TARGETS:
        raise ModelUnusable(f"unknown backend {spec.backend!r}; known are {', '.join(TARGETS)}")
    return _named(TARGETS, spec.backend)(spec)


def _draft_model(spec: ModelSpec, target: Target) -> tuple[Any, str]:
    """The draft model, or None and the reason."""
    if spec.draft_folder is None:
        return None, f"no draft model is paired with {spec.name}"
    if _vocabulary(spec.folder) != _vocabulary(spec.draft_folder):
        return None, "the draft model's vocabulary differs from the model's"
    alone = replace(spec, folder=spec.draft_folder, backend=spec.draft_backend, inflate=1)
    draft = _target(replace(alone, resident=None, weights="full"))
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


def _chooser(able: tuple[str, ...], refused: dict[str, str]) -> Callable[[str], tuple[str, str]]:
    known = (AUTO, *(name for name in DRAFTERS if name != AUTO))

    def choose(asked: str) -> tuple[str, str]:
        if asked in able:
            return asked, "asked for"
        if asked in refused:
            raise InvalidRequest(f"drafter {asked!r} cannot run here: {refused[asked]}")
        raise InvalidRequest(f"unknown drafter {asked!r}; known are {', '.join(known)}")

    return choose


def _new_drafter(parts: Parts, able: tuple[str, ...], name: str, options: Options) -> Drafter:
    kind = _named(DRAFTERS, name)
    chosen = replace(parts, options={**parts.options, **dict(options)})
    if name == AUTO:
        arms = {arm: _arm(chosen, able, arm) for arm in able if arm in ARMS}
        chosen = replace(chosen, arms=arms)
    drafter: Drafter = kind(chosen)
    return drafter


def _arm(parts: Parts, able: tuple[str, ...], name: str) -> Arm:
    return Arm(_new_drafter(parts, able, name, ()), _new_length(parts, DEFAULT, name, ()))


def _new_length(parts: Parts, name: str, drafter: str, options: Options) -> LengthPolicy:
    if name == DEFAULT:
        name = DEFAULT_LENGTH.get(drafter, "goodput")
    if name not in LENGTHS:
        raise InvalidRequest(
            f"unknown length policy {name!r}; known are {DEFAULT}, {', '.join(LENGTHS)}"
        )
    kind: type[Drafter] = _named(DRAFTERS, drafter)
    chains = Capability.DRAFT_MODEL in kind.needs and kind.length.nodes <= kind.length.depth
    # the model's own exit layer is the drafter's business; a policy sees what was asked for
    seen = replace(parts, options=dict(options), draft_step=parts.draft_step if chains else 0.0)
    policy: LengthPolicy = _named(LENGTHS, name)(seen, drafter)
    return policy


def _named(registry: dict[str, str], name: str) -> Any:
    """The object that a registry line names; its module is imported now and not before."""
    module, attribute = registry[name].split(":")
    return getattr(import_module(module), attribute)
