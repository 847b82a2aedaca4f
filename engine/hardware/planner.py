"""plan(): the first rung of the retreat that fits, with the reason for every field.

Rungs come best first, and a rung that fits goes on fitting where there is more memory: so more
memory never gives a worse plan.
"""

from engine.drafters import DRAFTERS, describe
from engine.errors import ModelUnusable
from engine.hardware.candidates import (
    FittedPlacement,
    Placement,
    Room,
    fit,
    lack,
    placements,
    room_of,
)
from engine.hardware.footprint import CPU, CUDA, TORCH
from engine.hardware.plan import Candidates, Plan, PlanConstraints, Refusal, Stage, Tier
from engine.hardware.profile import HardwareProfile
from engine.hardware.reasons import Case, gib, reasons

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
    room = room_of(profile)
    least_of: dict[Stage, Placement] = {}  # the last rung of every stage that was tried
    for rung in placements(profile, model, wishes):
        found = fit(rung, room)
        if found is not None:
            case = Case(found, model, wishes, room, dict(least_of))
            return _plan(case, _drafter(found, model))
        least_of[rung.stage] = rung
    if not least_of:
        raise ModelUnusable(_no_such_form(model, wishes))
    return _refusal(model, least_of, room)


def _drafter(found: FittedPlacement, model: Candidates) -> str:
    """The drafter with the most conditions for its use, of those whose conditions all hold."""
    rung = found.rung
    conditions = {
        "dense": rung.form.dense,
        "draft model": rung.draft is not None,
        "streamed": rung.streams,
        "early exit": model.exit_layer is not None and rung.form.backend == TORCH,
    }
    fitting = {
        name: len(when)
        for name in DRAFTERS
        if (when := describe(name).plan_when) is not None and all(map(conditions.get, when))
    }
    return max(fitting, key=fitting.__getitem__)


def _plan(case: Case, drafter: str) -> Plan:
    found = case.found
    rung = found.rung
    return Plan(
        model=case.model.model,
        stage=rung.stage,
        backend=rung.form.backend,
        dtype=rung.form.dtype,
        device=CUDA if rung.home == Tier.DEVICE else CPU,
        placement=found.placement,
        drafter=drafter,
        draft_model=rung.draft.name if rung.draft else None,
        context=rung.context,
        batch=rung.batch,
        resident=_resident(found),
        needs=found.needs,
        room=tuple(case.room.items()),
        why=reasons(case, drafter),
    )


def _resident(found: FittedPlacement) -> int | None:
    """What a streaming target may take where its passes run: all but caches and the draft model."""
    if not found.rung.streams:
        return None
    home = (need for need in found.needs if need.tier == found.rung.home)
    return sum(need.bytes for need in home if need.what in _STREAMING)


def _no_such_form(model: Candidates, wishes: PlanConstraints) -> str:
    wished = " in ".join(text for text in (wishes.backend, wishes.dtype) if text)
    known = ", ".join(sorted({f"{form.backend} in {form.dtype}" for form in model.forms}))
    return (
        f"{model.model} cannot run as {wished or 'wished'} here; it can run as {known or 'nothing'}"
    )


def _refusal(model: Candidates, tried: dict[Stage, Placement], room: Room) -> Refusal:
    """The two numbers of the way that lacks least."""
    rung = min(tried.values(), key=lambda rung: lack(rung, room)[0] - lack(rung, room)[1])
    needed, free = lack(rung, room)
    where = {
        Stage.DEVICE: "on the GPU",
        Stage.SHARED: "on the GPU and in RAM",
        Stage.RAM: "in RAM",
        Stage.DEVICE_DISK: "on the GPU, even with its layers on disk",
        Stage.RAM_DISK: "in RAM, even with its layers on disk",
    }
    sentence = (
        f"{model.model} needs {gib(needed)} {where[rung.stage]}, at a context of {rung.context} "
        f"tokens; {gib(free)} are free: choose a smaller model or a 4-bit file, or close programs"
    )
    return Refusal(model.model, needed, free, sentence)
