"""build(spec) -> Engine: the only place that reads the registries."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.drafters import DRAFTERS
from engine.engine import Engine
from engine.errors import ModelUnusable, NumericalError
from engine.grammar.token_bytes import Speller
from engine.hardware.candidates import SCORED_ROWS
from engine.hardware.footprint import grown_rows
from engine.hardware.limits import ram
from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import (
    Bounded,
    Capability,
    Growing,
    Layered,
    Limited,
    Resting,
    Streamed,
    Target,
)
from engine.kernels.philox import PhiloxRandom
from engine.kernels.verify import verify_all
from engine.models import STREAMED, TARGETS
from engine.models.damage import damage
from engine.models.offload import SOURCES
from engine.models.own.precision import notes
from engine.models.pairing import vocabulary_mismatch
from engine.platform.huge_pages import in_huge_pages
from engine.request import AUTO, PLAIN, GenerationRequest, ModelFacts, ModelSpec, SamplingParams
from engine.runtime.components import CacheCapacity, EngineComponents, Verify
from engine.runtime.drafter_pool import DrafterPool
from engine.runtime.profiling import profile
from engine.runtime.registry import drafter_class, named
from engine.speculation.rng import RandomSource, SeededRandom
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits, Verdict, judge

WARM = GenerationRequest((0, 1, 2, 0, 1, 2, 0, 1), 6)
# On a CUDA device kernels are compiled at their first call, and kept on the disk; some judge drafts of
# sampled tokens alone, and as few passes as these a drafter that does not pay yet would not draft at all.
SAMPLED = replace(WARM, sampling=SamplingParams(1.0, seed=0), length="fixed", draft_nodes=4)
WARM_SECONDS, COMPILE_SECONDS = 1.0, 20.0
PUT_AWAY = 0.25  # of the free memory
AMPLE = 4  # times the files: stored halves become whole numbers, and parts one map, in a copy


def build(spec: ModelSpec, speller: Speller | None = None) -> Engine:
    """Load the models and wire everything; raises ModelUnusable with the remedy."""
    engine = assemble(spec, *load(spec), speller)
    if spec.device == "cpu":
        engine.warm_up(WARM_SECONDS, WARM)
    else:
        engine.warm_up(COMPILE_SECONDS, WARM, SAMPLED)
    return engine


def load(spec: ModelSpec) -> tuple[DrafterResources, str]:
    """The loaded models with the target's measured cost; why there is no draft model, if so."""
    with in_huge_pages():
        target = _target(spec)
        draft_model, no_draft = _draft_model(spec, target)
    options = {} if spec.exit_layer is None else {"exit_layer": float(spec.exit_layer)}
    head = None if spec.acceptance_head is None else Path(spec.acceptance_head)
    parts = DrafterResources(target, draft_model, options=options, acceptance_head=head)
    try:
        profile(target, parts.cost)
    except NumericalError as error:
        raise ModelUnusable(damage(spec)) from error
    try:
        return _measured(spec, parts, no_draft), no_draft
    except NumericalError:
        no_draft = f"as to the draft, {damage(_draft_spec(spec))}"
        return _measured(spec, replace(parts, draft_model=None), no_draft), no_draft


def _measured(spec: ModelSpec, parts: DrafterResources, no_draft: str) -> DrafterResources:
    """With the costs that the drafters measure; raises NumericalError for a damaged draft model."""
    for name in DRAFTERS:
        if not _obstacle(name, spec, parts, no_draft):
            found = drafter_class(name).measure(parts)
            parts = replace(parts, measured={**parts.measured, **found})
    return parts


def assemble(
    spec: ModelSpec, parts: DrafterResources, no_draft: str, speller: Speller | None = None
) -> Engine:
    """An engine over loaded parts; ``no_draft`` is said of drafters that miss a draft model."""
    refused = {name: why for name in DRAFTERS if (why := _obstacle(name, spec, parts, no_draft))}
    able = tuple(name for name in DRAFTERS if name not in refused)
    facts = ModelFacts(
        name=spec.name,
        context=parts.target.context,
        vocab=parts.target.vocab,
        layers=parts.target.layers,
        parameters=parts.target.parameters,
        drafters=tuple(name for name in able if name != AUTO and drafter_class(name).listed),
        refused=tuple(refused.items()),
        notes=(*notes(spec), *_undrafted(spec, parts, able, refused)),
    )
    room = _room(spec, parts)
    machinery = EngineComponents(
        target=parts.target,
        draft_model=parts.draft_model,
        drafters=DrafterPool(parts, able, refused),
        cost=parts.cost,
        facts=facts,
        slots=spec.slots,
        warm=_warm(spec, parts.target, room),
        room=room,
        verify=_verification(spec.device),
        damage=damage(spec),
        rng=_randomness(spec.device),
        speller=speller,
    )
    return Engine(machinery)


def _warm(spec: ModelSpec, target: Target, room: CacheCapacity) -> int:
    """Slots beside those that run; none where that costs more than memory that nobody uses.

    On a CUDA device memory is for conversations that run, and our own target gives each a whole
    context from its first token on. Where slots share cells every pass looks at all of them: beside 4
    and 13 conversations of 300 tokens a plain pass of a 4-bit file took 2 and 8 % longer than beside
    one. So they are put away, or there are none.
    """
    if isinstance(target, Resting):
        return target.slots - spec.slots if room.apart else 0
    return 0 if spec.device != "cpu" or isinstance(target, Bounded) else spec.warm


def _room(spec: ModelSpec, parts: DrafterResources) -> CacheCapacity:
    """What was planned for ``spec.slots`` conversations at their longest."""
    target = parts.target
    if isinstance(target, Bounded):
        return CacheCapacity(target.room, _as_many, _apart(spec, parts))
    models: tuple[object, ...] = (target, parts.draft_model)
    growing = [model for model in models if isinstance(model, Growing)]

    def taken(slot: int, tokens: int) -> int:
        return max(grown_rows(tokens), *(model.taken(slot) for model in growing), 0)

    return CacheCapacity(spec.slots * grown_rows(target.context + SCORED_ROWS), taken)


def _apart(spec: ModelSpec, parts: DrafterResources) -> int:
    """Tokens that may be put away: a part of the memory that nothing else takes, one context at least."""
    models: tuple[object, ...] = (parts.target, parts.draft_model)
    each = sum(model.token_bytes for model in models if isinstance(model, Resting))
    if not each:
        return 0
    weights = Path(spec.folder).stat().st_size  # mapped: the system calls them free
    tokens = int(PUT_AWAY * max(ram().available - weights, 0)) // each
    return tokens if tokens >= parts.target.context else 0


def _as_many(slot: int, tokens: int) -> int:  # noqa: ARG001 - slots share cells
    return tokens


def _verification(device: str) -> Verify:
    """Kernels where the logits lie on a CUDA device, else the definition itself."""
    return verify_all if _has_kernels(device) else _one_by_one


def _randomness(device: str) -> Callable[[int | None], RandomSource]:
    """Random numbers that the verification of this device can compute where it runs."""
    return PhiloxRandom if _has_kernels(device) else SeededRandom


def _has_kernels(device: str) -> bool:
    """Torch for CUDA brings Triton on Linux, and not on Windows."""
    return device != "cpu" and find_spec("triton") is not None


def _one_by_one(
    trees: Sequence[DraftTree],
    logits: Sequence[Logits],
    samplings: Sequence[SamplingParams],
    chances: Sequence[RandomSource],
) -> list[Verdict | NumericalError]:
    return list(map(judge, trees, logits, samplings, chances))


def _target(spec: ModelSpec) -> Any:
    if spec.backend not in TARGETS:
        raise ModelUnusable(f"unknown backend {spec.backend!r}; known are {', '.join(TARGETS)}")
    if spec.resident is None:
        recorded = spec.backend == "torch" and spec.device != "cpu"
        return named(TARGETS, "cuda" if recorded else spec.backend)(spec)
    if spec.backend not in STREAMED:
        raise ModelUnusable(
            f"the backend {spec.backend!r} cannot stream its weights, so a limit of memory cannot be "
            f"kept; backends that can: {', '.join(STREAMED)}"
        )
    return named(STREAMED, spec.backend)(spec, named(SOURCES, _source(spec, spec.resident)))


def _source(spec: ModelSpec, limit: int) -> str:
    """Where layers come from: memory where there is ample, the disk, or RAM beside a device."""
    if spec.device != "cpu":
        return "ram"
    stored = sum(file.stat().st_size for file in Path(spec.folder).glob("*.safetensors"))
    return "resident" if AMPLE * stored <= limit else "disk"


def _draft_model(spec: ModelSpec, target: Target) -> tuple[Any, str]:
    """The draft model, or None and the reason."""
    if spec.draft_folder is None:
        own = (
            target.early(spec.exit_layer)
            if isinstance(target, Layered) and spec.exit_layer
            else None
        )
        return own, "" if own else f"no draft model is paired with {spec.name}"
    if differs := vocabulary_mismatch(Path(spec.folder), Path(spec.draft_folder)):
        return None, f"the draft model's vocabulary differs from the model's: {differs}"
    draft = _target(_draft_spec(spec))
    if draft.vocab != target.vocab:
        return None, f"the draft model has {draft.vocab} tokens, the model {target.vocab}"
    if isinstance(draft, Limited) and (why := draft.refuses(frozenset({Capability.TREE}))):
        return None, f"the draft model cannot draft: {why}"
    return draft, ""


def _draft_spec(spec: ModelSpec) -> ModelSpec:
    """The draft model of a spec as a target of its own."""
    place = spec.draft_folder or ""
    alone = replace(spec, folder=place, backend=spec.draft_backend, inflate=1)
    return replace(alone, resident=None, weights="full")


def _undrafted(
    spec: ModelSpec, parts: DrafterResources, able: tuple[str, ...], refused: dict[str, str]
) -> tuple[str, ...]:
    """Why a model is not drafted for, or not in trees; empty where nothing stands in the way."""
    if not set(able) - {PLAIN, AUTO}:
        return (f"nothing drafts for {spec.name}: {next(iter(refused.values()), '')}",)
    limits = parts.target if isinstance(parts.target, Limited) else None
    why = limits.refuses(frozenset({Capability.TREE})) if limits else ""
    return (f"drafts for {spec.name} are chains, never trees: {why}",) if why else ()


def _obstacle(name: str, spec: ModelSpec, parts: DrafterResources, no_draft: str) -> str:
    """Why a drafter cannot run with these parts; empty when it can."""
    needs = drafter_class(name).needs
    limits = parts.target if isinstance(parts.target, Limited) else None
    if limits and name not in (PLAIN, AUTO) and (why := limits.refuses(needs)):
        return why
    missing = needs - parts.target.offers - {Capability.DRAFT_MODEL}
    if missing:
        return f"the model's backend lacks: {', '.join(sorted(missing))}"
    if Capability.DRAFT_MODEL in needs and parts.draft_model is None:
        return no_draft
    if Capability.LAYERS in needs and spec.exit_layer is None:
        return f"{spec.name} was not trained with an early-exit loss"
    streamed = parts.target.source if isinstance(parts.target, Streamed) else None
    if Capability.LAYERS in needs and streamed is not None and streamed.whole == 0:
        return f"no whole layer of {spec.name} stays in memory: every draft would be a pass"
    return ""
