"""build(spec) -> Engine: the only place that reads the registries."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from engine.decoder.config import weight_files
from engine.drafters import DRAFTERS
from engine.engine import Engine
from engine.errors import ModelUnusable, NumericalError
from engine.grammar.vocabulary import Speller
from engine.hardware.candidates import SCORED_ROWS
from engine.hardware.footprint import grown_rows
from engine.hardware.limits import ram
from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import UNLIMITED, Capability, Target
from engine.kernels.philox import PhiloxRandom
from engine.kernels.verify import verify_all
from engine.models import STREAMED, TARGETS
from engine.models.gguf.vocabulary import vocabulary_mismatch
from engine.models.offload import SOURCES
from engine.models.own.precision import notes
from engine.platform.huge_pages import in_huge_pages
from engine.request import (
    AUTO,
    PLAIN,
    Calibration,
    GenerationRequest,
    ModelFacts,
    ModelSpec,
    SamplingParams,
)
from engine.runtime.components import CacheCapacity, EngineComponents, Verify
from engine.runtime.drafter_pool import DrafterPool
from engine.runtime.profiling import IdleMeasurement, check_weights, look, measure, profile
from engine.runtime.registry import drafter_class, named
from engine.runtime.rounding import exact_or_usual, measured_margin
from engine.speculation.rng import RandomSource, SeededRandom
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits, Verdict, verify_or_error

WARM = GenerationRequest((0, 1, 2, 0, 1, 2, 0, 1), 6)
# On a CUDA device kernels are compiled at their first call, and kept on the disk; some judge drafts of
# sampled tokens alone, and as few passes as these a drafter that does not pay yet would not draft at all.
SAMPLED = replace(WARM, sampling=SamplingParams(1.0, seed=0), length="fixed", draft_nodes=4)
WARM_SECONDS, COMPILE_SECONDS = 1.0, 20.0
SWAP_SHARE = 0.25  # of the free memory, for conversations that are swapped out
WIDEST_MARGIN = 1e-3  # in logits: of the choices of SmolLM2, about 1 in 2,500 is nearer
AMPLE = 4  # times the files: stored halves become whole numbers, and parts one map, in a copy


def build(spec: ModelSpec, speller: Speller | None = None) -> Engine:
    """Load the models and wire everything; raises ModelUnusable with the remedy."""
    spec = replace(spec, exact=exact_or_usual(spec.exact, spec.backend))
    engine = assemble(spec, *load(spec), speller)
    if spec.device != "cpu":
        engine.warm_up(COMPILE_SECONDS, WARM, SAMPLED)
    elif spec.backend != "llama_cpp":  # which builds nothing at its first calls
        engine.warm_up(WARM_SECONDS, WARM)
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
        parts = _calibrated(spec, parts)
    except NumericalError as error:
        raise ModelUnusable(_weights_error(spec)) from error
    try:
        return _measured(spec, parts, no_draft), no_draft
    except NumericalError:
        no_draft = f"as to the draft, {_weights_error(_draft_spec(spec))}"
        return _measured(spec, replace(parts, draft_model=None), no_draft), no_draft


def _calibrated(spec: ModelSpec, parts: DrafterResources) -> DrafterResources:
    """With what is known of the target, or else measured: its rows' bits, its prices, its margin."""
    known, target = spec.calibration, parts.target
    if target.source is not None:
        return replace(parts, exact_rows=profile(target, parts.cost))
    check_weights(target)
    if known is not None:
        _limit(spec, target, known.exact_rows)
        parts.cost.reset(dict(known.seconds))
        parts.cost.per_context, parts.cost.per_row = known.per_context, known.per_row
        if not (known.whole or spec.measure_later):
            measure(target, parts.cost, tuple(dict(known.seconds)))
        return replace(parts, exact_rows=known.exact_rows, margin=known.margin)
    seen = look(target)
    limited = _limit(spec, target, seen.exact_rows)
    if spec.measure_later and _keeps(spec, target) and not limited:
        parts.cost.reset(seen.seconds)
    else:
        measure(target, parts.cost, seen.widths)
    return replace(parts, exact_rows=seen.exact_rows, margin=_margin(spec, target))


def _limit(spec: ModelSpec, target: Target, exact: int) -> bool:
    """Let passes have no more rows than round alike, where ``spec.exact``; whether that is a limit."""
    limited = exact < UNLIMITED and bool(spec.exact) and target.limits_rows
    if limited:
        target.limit_rows(exact)
    return limited


def _keeps(spec: ModelSpec, target: Target) -> bool:
    """Whether what is measured is kept: on the processor, without a disk's or a GPU's share."""
    return spec.device == "cpu" and not spec.gpu_layers and target.source is None


def _fresh(
    spec: ModelSpec, parts: DrafterResources, left: IdleMeasurement | None
) -> Calibration | None:
    """What this load measured and the next one need not; None where that is nothing."""
    known = spec.calibration
    if not _keeps(spec, parts.target) or (known and (known.whole or left)):
        return None
    return _calibration(parts, whole=left is None)


def _calibration(parts: DrafterResources, *, whole: bool) -> Calibration:
    cost = parts.cost
    knots = tuple(sorted(cost.knots.items()))
    context = cost.per_context, cost.per_row
    return Calibration(knots, *context, parts.exact_rows, parts.margin, whole)


def _left(
    spec: ModelSpec, parts: DrafterResources, warm: int, *, swaps: bool
) -> IdleMeasurement | None:
    """What is left to measure; None where nothing is."""
    known = spec.calibration
    if not (spec.measure_later and _keeps(spec, parts.target)) or (known and known.whole):
        return None
    found = partial(_calibration, parts, whole=True)
    return IdleMeasurement(parts.target, parts.cost, spec.slots + warm, swaps, found)


def _margin(spec: ModelSpec, target: Target) -> float:
    """Below which difference of two logits a choice is a near tie; 0 where none is looked for.

    With numbers of fewer digits rounding decides so often that plain decoding would be faster.
    """
    full = spec.dtype == "float32" and not target.limits_rows  # a GGUF file has a format of its own
    drafted = not target.refuses(frozenset()) and target.source is None
    if target.sums_alike or not full or not drafted:
        return 0.0
    margin = measured_margin(target)
    return margin if margin <= WIDEST_MARGIN else 0.0


def _measured(spec: ModelSpec, parts: DrafterResources, no_draft: str) -> DrafterResources:
    """With the costs that the drafters measure; raises NumericalError for a damaged draft model."""
    for name in DRAFTERS:
        if not _obstacle(name, spec, parts, no_draft):
            found = drafter_class(name).measure(parts)
            parts = replace(parts, measured={**parts.measured, **found})
    return parts


def _weights_error(spec: ModelSpec) -> str:
    """The error for logits that are not finite: which weights, and what to do."""
    remedy = "get the model again"
    if spec.dtype == "float16":
        remedy = "float16 may be too narrow for this model, choose bfloat16"
    return (
        f"the weights in {spec.folder} give logits that are not finite numbers, from which no token "
        f"can be taken; {remedy}"
    )


def assemble(
    spec: ModelSpec, parts: DrafterResources, no_draft: str, speller: Speller | None = None
) -> Engine:
    """An engine over loaded parts; ``no_draft`` is said of drafters that miss a draft model."""
    verify, randomness = _judges(spec.device)
    room = _room(spec, parts)
    warm = _warm(spec, parts.target, room)
    left = _left(spec, parts, warm, swaps=bool(room.apart))
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
        notes=(*notes(spec), *_rounding(spec, parts), *_undrafted(spec, parts, able, refused)),
        calibration=_fresh(spec, parts, left),
    )
    machinery = EngineComponents(
        target=parts.target,
        draft_model=parts.draft_model,
        drafters=DrafterPool(parts, able, refused),
        cost=parts.cost,
        facts=facts,
        slots=spec.slots,
        warm=warm,
        room=room,
        verify=verify,
        margin=parts.margin,
        damage=_weights_error(spec),
        rng=randomness,
        speller=speller,
        clock=parts.clock,
        later=left,
    )
    return Engine(machinery)


def _warm(spec: ModelSpec, target: Target, room: CacheCapacity) -> int:
    """Further slots for idle conversations; none where they would slow down those that run.

    On a CUDA device our own target gives each slot a whole context from its first token on. Where
    slots share rows, every pass reads all of them: with 4 and 13 idle conversations of 300 tokens a
    plain pass of a 4-bit file took 2 and 8 % longer. So those are swapped out, or there are none.
    """
    if target.swap_bytes:
        return target.max_slots - spec.slots if room.apart else 0
    return 0 if spec.device != "cpu" or target.shared_rows is not None else spec.warm


def _room(spec: ModelSpec, parts: DrafterResources) -> CacheCapacity:
    """What was planned for ``spec.slots`` conversations at their longest."""
    target = parts.target
    models = _models(parts)
    if target.shared_rows is not None:
        each = sum(model.swap_bytes for model in models)
        fixed = -(-sum(model.swap_fixed for model in models) // max(each, 1))
        rows = target.shared_rows + spec.slots * fixed
        return CacheCapacity(rows, partial(_with_fixed, fixed), _swap_tokens(spec, parts, fixed))

    def taken(slot: int, tokens: int) -> int:
        return max(grown_rows(tokens), *(model.rows_taken(slot) for model in models))

    return CacheCapacity(spec.slots * grown_rows(target.context + SCORED_ROWS), taken)


def _swap_tokens(spec: ModelSpec, parts: DrafterResources, fixed: int) -> int:
    """Tokens that may be swapped out: a share of the free memory, at least one context or none.

    ``fixed`` is what each conversation takes besides, in tokens.
    """
    each = sum(model.swap_bytes for model in _models(parts))
    if not each:
        return 0
    weights = Path(spec.folder).stat().st_size  # mapped: the system calls them free
    tokens = int(SWAP_SHARE * max(ram().available - weights, 0)) // each
    return tokens if tokens >= parts.target.context + fixed else 0


def _models(parts: DrafterResources) -> list[Target]:
    return [model for model in (parts.target, parts.draft_model) if model is not None]


def _with_fixed(fixed: int, slot: int, tokens: int) -> int:  # noqa: ARG001 - slots share cells
    return tokens + fixed if tokens else 0


def _judges(device: str) -> tuple[Verify, Callable[[int | None], RandomSource]]:
    """Verification and its random numbers: kernels on a CUDA device, else the definitions themselves.

    Torch for CUDA brings Triton on Linux, and not on Windows.
    """
    kernels = device != "cpu" and find_spec("triton") is not None
    return (verify_all, PhiloxRandom) if kernels else (_one_by_one, SeededRandom)


def _one_by_one(
    trees: Sequence[DraftTree],
    logits: Sequence[Logits],
    samplings: Sequence[SamplingParams],
    chances: Sequence[RandomSource],
) -> list[Verdict | NumericalError]:
    return list(map(verify_or_error, trees, logits, samplings, chances))


def _target(spec: ModelSpec) -> Target:
    if spec.backend not in TARGETS:
        raise ModelUnusable(f"unknown backend {spec.backend!r}; known are {', '.join(TARGETS)}")
    if spec.resident is None:
        recorded = spec.backend == "torch" and spec.device != "cpu"
        target: Target = named(TARGETS, "cuda" if recorded else spec.backend)(spec)
        return target
    if spec.backend not in STREAMED:
        raise ModelUnusable(
            f"the backend {spec.backend!r} cannot stream its weights, so a limit of memory cannot be "
            f"kept; backends that can: {', '.join(STREAMED)}"
        )
    open_source = named(SOURCES, _source(spec, spec.resident))
    streamed: Target = named(STREAMED, spec.backend)(spec, open_source)
    return streamed


def _source(spec: ModelSpec, limit: int) -> str:
    """Where layers come from: memory where there is ample, the disk, or RAM next to a device."""
    if spec.device != "cpu":
        return "ram"
    stored = sum(file.stat().st_size for file in weight_files(Path(spec.folder)))
    return "resident" if AMPLE * stored <= limit else "disk"


def _draft_model(spec: ModelSpec, target: Target) -> tuple[Target | None, str]:
    """The draft model, or None and the reason."""
    if spec.draft_folder is None:
        own = target.early_draft_model(spec.exit_layer) if spec.exit_layer else None
        return own, "" if own else f"no draft model is paired with {spec.name}"
    if differs := vocabulary_mismatch(Path(spec.folder), Path(spec.draft_folder)):
        return None, f"the draft model's vocabulary differs from the model's: {differs}"
    draft = _target(_draft_spec(spec))
    if draft.vocab != target.vocab:
        return None, f"the draft model has {draft.vocab} tokens, the model {target.vocab}"
    if why := draft.refuses(frozenset({Capability.TREE})):
        return None, f"the draft model cannot draft: {why}"
    return draft, ""


def _draft_spec(spec: ModelSpec) -> ModelSpec:
    """The draft model of a spec as a target of its own."""
    place = spec.draft_folder or ""
    alone = replace(spec, folder=place, backend=spec.draft_backend, inflate=1)
    inexact = spec.draft_backend == "hf"  # only what verifies needs plain ones' bits, and no trees
    exact = None if inexact else spec.exact
    whole = replace(alone, windowed=False, cpu_experts=0)
    return replace(whole, resident=None, weights="full", exact=exact)


def _undrafted(
    spec: ModelSpec, parts: DrafterResources, able: tuple[str, ...], refused: dict[str, str]
) -> tuple[str, ...]:
    """Why a model is not drafted for, or not in trees; empty where it is drafted for."""
    if not set(able) - {PLAIN, AUTO}:
        return (f"nothing drafts for {spec.name}: {next(iter(refused.values()), '')}",)
    why = parts.target.refuses(frozenset({Capability.TREE}))
    return (f"drafts for {spec.name} are chains, never trees: {why}",) if why else ()


def _rounding(spec: ModelSpec, parts: DrafterResources) -> tuple[str, ...]:
    """What follows where passes of many rows round unlike those of one; empty where none does."""
    rows, alike = parts.exact_rows, parts.target.sums_alike
    gguf = parts.target.limits_rows
    if (alike and rows == UNLIMITED) or (spec.dtype == "float32" and not gguf):
        return ()  # in float32 a difference is some 1e-6, and hardly any tie is that near
    if alike and spec.exact and gguf:
        narrow = (
            f"with these weights this processor rounds passes of more than {rows} rows differently; "
            f"so that answers stay those of plain decoding, drafts are verified {rows} rows at a time, "
            "which gains less; exact = false in config.toml allows wider passes"
        )
        return (narrow,)
    remedy = ""
    if gguf and not spec.gpu_layers and not spec.exact:
        remedy = "; exact = true in config.toml prevents that, and makes long texts slower"
    elif spec.backend == "hf" and spec.device == "cpu" and not spec.exact:
        remedy = "; exact = true in config.toml prevents that, and drafts chains, never trees"
    differs = (
        "drafted answers can differ here from plain ones where two tokens are almost equally likely"
        f"{remedy}"
    )
    return (differs,)


_LACKING = {
    Capability.TREE: "this backend scores chains only, no trees",
    Capability.LAYERS: "only the own decoder, which reads safetensors, can stop after some layers",
}


def _obstacle(name: str, spec: ModelSpec, parts: DrafterResources, no_draft: str) -> str:
    """Why a drafter cannot run with these parts; empty when it can."""
    needs = drafter_class(name).needs
    if name not in (PLAIN, AUTO) and (why := parts.target.refuses(needs)):
        return why
    missing = needs - parts.target.offers - {Capability.DRAFT_MODEL}
    if missing:
        return "; ".join(_LACKING[one] for one in sorted(missing))
    if Capability.DRAFT_MODEL in needs and parts.draft_model is None:
        return no_draft
    if Capability.LAYERS in needs and spec.exit_layer is None:
        return f"{spec.name} was not trained with an early-exit loss"
    source = parts.target.source
    if Capability.LAYERS in needs and source is not None and source.whole == 0:
        return f"no whole layer of {spec.name} stays in memory: every draft would be a pass"
    return ""
