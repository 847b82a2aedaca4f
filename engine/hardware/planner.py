"""plan(): the first placement that fits, with the reason for every field.

Placements come best first, and one that fits also fits into more memory: so more memory never gives
a worse plan.
"""

from dataclasses import dataclass
from itertools import chain

from engine.drafters import DRAFTERS, describe
from engine.errors import ModelUnusable
from engine.hardware.candidates import (
    TIGHT_MARGIN,
    FittedPlacement,
    Placement,
    Room,
    fit,
    forced,
    lack,
    placements,
    room_for,
    room_of,
    tight_placements,
)
from engine.hardware.footprint import BYTES, CPU, CUDA, LLAMA_CPP, TORCH
from engine.hardware.plan import Candidates, Plan, PlanConstraints, Refusal, Stage, Tier
from engine.hardware.profile import GIB, HardwareProfile
from engine.hardware.reasons import Case, gib, reasons
from engine.platform.instructions import BFLOAT16

CACHE_PART = 4  # of the weights on a GPU, a quarter is added for caches and passes
LEAST_CACHE = GIB
LARGE = 2 * GIB  # of float32 weights: below, transformers' exact sums cost nothing that one notices
_STREAMING = (
    "layers",
    "layers on their way",
    "embedding and head",
    "the widest pass",
    "reading buffers",
)


def plan(
    profile: HardwareProfile, model: Candidates, wishes: PlanConstraints | None = None
) -> Plan | Refusal:
    """How to run ``model`` on this machine; a value for every answer, also for a no.

    Raises ModelUnusable when the model has no form of the kind that is wished.
    """
    wishes = wishes or PlanConstraints()
    room, tight_room = room_of(profile), room_of(profile, TIGHT_MARGIN)
    least_of: dict[Stage, Placement] = {}  # the last choice of every stage that was tried
    tight = tight_placements(profile, model, wishes)
    for choice in chain(placements(profile, model, wishes), tight):
        its_room = tight_room if choice.tight else room
        found = fit(choice, room_for(choice, its_room, wishes))
        if found is not None:
            return _plan(Case(found, model, wishes, its_room, dict(least_of)))
        least_of[choice.stage] = choice
    if not least_of:
        raise ModelUnusable(_no_such_form(model, wishes))
    tried = {choice: tight_room if choice.tight else room for choice in least_of.values()}
    nearest = min(tried, key=lambda choice: _lacking(choice, tried[choice]))
    if wishes.anyway:
        return _plan(Case(forced(nearest), model, wishes, tried[nearest], dict(least_of)))
    return _refusal(model, nearest, tried[nearest])


def _drafter(found: FittedPlacement, model: Candidates) -> str:
    """The drafter with the most conditions for its use, of those whose conditions all hold."""
    choice = found.choice
    conditions = {
        "dense": choice.form.dense,
        "draft model": choice.draft is not None,
        "streamed": choice.streams,
        "early exit": model.exit_layer is not None and choice.form.backend == TORCH,
    }
    fitting = {
        name: len(when)
        for name in DRAFTERS
        if (when := describe(name).plan_when) is not None and all(map(conditions.get, when))
    }
    return max(fitting, key=fitting.__getitem__)


def _plan(case: Case) -> Plan:
    found = case.found
    choice, drafter = found.choice, _drafter(found, case.model)
    return Plan(
        model=case.model.model,
        stage=choice.stage,
        backend=choice.form.backend,
        dtype=choice.form.dtype,
        device=CUDA if choice.home == Tier.DEVICE else CPU,
        placement=found.tiers,
        drafter=drafter,
        draft_model=choice.draft.name if choice.draft else None,
        context=choice.context,
        batch=choice.batch,
        resident=_resident(found),
        needs=found.needs,
        room=tuple(case.room.items()),
        why=reasons(case, drafter),
        windowed=bool(choice.form.window),
        cpu_experts=found.cpu_experts,
    )


def _resident(found: FittedPlacement) -> int | None:
    """What a streaming target may take where its passes run: all but caches and the draft model."""
    if not found.choice.streams:
        return None
    home = (need for need in found.needs if need.tier == found.choice.home)
    return sum(need.bytes for need in home if need.what in _STREAMING)


def _no_such_form(model: Candidates, wishes: PlanConstraints) -> str:
    wished = " in ".join(text for text in (wishes.backend, wishes.dtype) if text)
    known = ", ".join(sorted({f"{form.backend} in {form.dtype}" for form in model.forms}))
    return (
        f"{model.model} cannot run as {wished or 'wished'} here; it can run as {known or 'nothing'}"
    )


def _lacking(choice: Placement, room: Room) -> int:
    needed, free = lack(choice, room)
    return needed - free


def _refusal(model: Candidates, choice: Placement, room: Room) -> Refusal:
    """The two numbers of the way that lacks least."""
    needed, free = lack(choice, room)
    where = {
        Stage.DEVICE: "on the GPU",
        Stage.SHARED: "on the GPU and in RAM",
        Stage.RAM: "in RAM",
        Stage.DEVICE_DISK: "on the GPU or in RAM, even with its layers on disk",
        Stage.RAM_DISK: "in RAM, even with its layers on disk",
    }
    smaller = "a smaller file of this one" if choice.form.backend == LLAMA_CPP else "a 4-bit file"
    sentence = (
        f"{model.model} needs {gib(needed)} {where[choice.stage]}, at a context of {choice.context} "
        f"tokens; {gib(free)} are free: choose a smaller model or {smaller}, or close programs"
    )
    return Refusal(model.model, needed, free, sentence)


@dataclass(frozen=True, slots=True)
class HfPlacement:
    """Where a model of the transformers library is loaded."""

    device: str
    dtype: str


def place_hf(
    profile: HardwareProfile,
    model: str,
    elements: int,
    wished: str | None = None,
    *,
    anyway: bool = False,
) -> HfPlacement | Refusal:
    """Device and dtype for ``elements`` weights that transformers loads whole.

    A GPU where they fit with room for caches, read through RAM. Else RAM: float32 sums exactly;
    bfloat16 halves what every pass reads, which pays for large models on processors that multiply
    it, and may be all that fits.
    """
    free = room_of(profile)
    on_gpu = wished or "bfloat16"
    weights = elements * BYTES[on_gpu]
    needed = weights + max(weights // CACHE_PART, LEAST_CACHE)
    if needed <= free[Tier.DEVICE] and weights <= free[Tier.RAM]:
        return HfPlacement(CUDA, on_gpu)
    halves = 4 * elements >= LARGE and bool(BFLOAT16 & set(profile.instructions))
    usual = ("bfloat16", "float32") if halves else ("float32", "bfloat16")
    sizes = {name: elements * BYTES[name] for name in ((wished,) if wished else usual)}
    found = next((name for name, size in sizes.items() if size <= free[Tier.RAM]), None)
    if found is not None:
        return HfPlacement(CPU, found)
    dtype, least = min(sizes.items(), key=lambda size: size[1])
    if anyway or least <= room_of(profile, TIGHT_MARGIN)[Tier.RAM]:
        return HfPlacement(CPU, dtype)
    return Refusal(
        model,
        least,
        free[Tier.RAM],
        f"{model} needs {gib(least)} in RAM in {dtype}, all of it at once as its family cannot be "
        f"streamed; {gib(free[Tier.RAM])} are free: choose a smaller model, or a GGUF file of it",
    )
