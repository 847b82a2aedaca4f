"""One sentence for every field of a plan, with the numbers that decided."""

from dataclasses import dataclass

from engine.drafters import describe
from engine.hardware.candidates import LONGEST, FittedPlacement, Placement, Room, lack
from engine.hardware.footprint import LLAMA_CPP, TORCH
from engine.hardware.plan import Candidates, PlanConstraints, Reason, Stage, Tier
from engine.hardware.profile import GIB

_PLACES = {Tier.DEVICE: "on the GPU", Tier.RAM: "in RAM", Tier.DISK: "on disk"}


@dataclass(frozen=True, slots=True)
class Case:
    """What the sentences are about."""

    found: FittedPlacement
    model: Candidates
    wishes: PlanConstraints
    room: Room
    failed: dict[Stage, Placement]  # the least rung of every better stage

    @property
    def rung(self) -> Placement:
        """The rung that fits."""
        return self.found.rung

    @property
    def longest(self) -> int:
        """Tokens that were tried first."""
        return min(self.rung.form.context, self.wishes.context or LONGEST)


def reasons(case: Case, drafter: str) -> tuple[Reason, ...]:
    """In the order of the plan's fields."""
    return (
        Reason("backend", _backend(case)),
        Reason("dtype", _dtype(case)),
        Reason("device", _device(case)),
        Reason("placement", _placement(case)),
        Reason("drafter", _drafter(case, drafter)),
        Reason("draft_model", _draft_model(case)),
        Reason("context", _context(case)),
        Reason("batch", _batch(case)),
        Reason("resident", _resident(case)),
    )


def gib(size: int) -> str:
    """In GiB, or in MiB below a tenth of one."""
    return f"{size / GIB:.2f} GiB" if size >= GIB / 10 else f"{size / 2**20:.1f} MiB"


def _backend(case: Case) -> str:
    if case.rung.form.backend == LLAMA_CPP:
        return "The model is a GGUF file, which llama.cpp runs."
    if case.rung.form.backend == TORCH:
        return "The model is in safetensors and of a family that the own decoder runs."
    return f"The backend {case.rung.form.backend} runs this family."


def _dtype(case: Case) -> str:
    form = case.rung.form
    size = gib(form.weights)
    if case.wishes.dtype:
        return f"{form.dtype} was asked for: {size} of weights."
    if form.backend == LLAMA_CPP:
        return f"The weights stay as the file has them: {size}."
    if form.dtype == "float32":
        return f"{size} of weights in float32 fit, and drafted answers are then plain's to the bit."
    if case.rung.home == Tier.DEVICE:
        return f"The GPU multiplies bfloat16 at full speed: {size} of weights."
    return f"bfloat16 halves what a pass reads: {size} of weights."


def _device(case: Case) -> str:
    if case.rung.home == Tier.DEVICE:
        return "Passes run on the GPU."
    lacking = [rung for rung in case.failed.values() if rung.home == Tier.DEVICE]
    if lacking:
        needed, free = lack(lacking[-1], case.room)
        return (
            f"Passes run on the processor: the GPU's way needs {gib(needed)} of {gib(free)} free."
        )
    return "Passes run on the processor: there is no GPU."


def _placement(case: Case) -> str:
    placement, sizes = case.found.placement, case.rung.form.layers
    counts = {tier: placement.count(tier) for tier in Tier}
    if len(set(placement)) == 1 and Tier.DISK not in placement:
        tier, used = placement[0], _used(case, placement[0])
        return f"All {len(placement)} layers are {_PLACES[tier]}: {used}."
    bytes_of = {
        tier: sum(size for at, size in zip(placement, sizes, strict=True) if at == tier)
        for tier in Tier
    }
    parts = [
        f"{counts[tier]} of {len(placement)} layers ({gib(bytes_of[tier])}) {_PLACES[tier]}"
        for tier in Tier
        if counts[tier]
    ]
    way = "streamed for every pass" if case.rung.streams else "computed by the processor"
    return (
        f"{', '.join(parts)}; what is not {_PLACES[case.rung.home]} is {way}: {_too_small(case)}."
    )


def _too_small(case: Case) -> str:
    """Why nothing better was possible."""
    if not case.failed:
        return "no better place exists"
    rung = min(case.failed.values(), key=lambda rung: list(Stage).index(rung.stage))
    needed, free = lack(rung, case.room)
    return f"{rung.stage}, it needs at least {gib(needed)} of {gib(free)} free"


def _used(case: Case, tier: Tier) -> str:
    used = sum(need.bytes for need in case.found.needs if need.tier == tier)
    return f"{gib(used)} of {gib(case.room[tier])} free with caches, buffers and drafts"


def _drafter(case: Case, drafter: str) -> str:
    streamed = (
        size
        for tier, size in zip(case.found.placement, case.rung.form.layers, strict=True)
        if tier != case.rung.home
    )
    text = describe(drafter).plan_reason.format(
        exit_layer=case.model.exit_layer,
        streamed=gib(sum(streamed)),
        no_draft_model=_no_draft(case),
    )
    if not case.rung.form.dense:
        text += "; a tree would make its experts read more, so lengths follow the measured cost"
    return text[0].upper() + text[1:] + "."


def _no_draft(case: Case) -> str:
    if not case.rung.form.dense and case.rung.draft is None and case.model.draft:
        return "experts on two memories take no drafted trees"
    return "there is no draft model" if not case.model.draft else "the draft model is left out"


def _draft_model(case: Case) -> str:
    draft = case.rung.draft
    if draft is not None:
        return f"{draft.name} shares the vocabulary and fits beside it: {gib(draft.weights)}."
    if not case.model.draft:
        return "No draft model is paired with this model."
    if not case.wishes.draft:
        return "No draft model was wished."
    if not case.rung.form.dense:
        return "A draft's tokens would each call other experts from the slower memory."
    return "The draft model does not fit beside the model, or has not its form."


def _context(case: Case) -> str:
    rung = case.rung
    size = rung.form.cache(rung.context, 0, 1)
    each = f"{rung.context} tokens take {gib(size)} of keys and values"
    if case.wishes.context and rung.context < case.wishes.context:
        return f"{each}; the {case.wishes.context} that were wished do not fit, or are too many for the model."
    if rung.context == rung.form.context:
        return f"{each}; the model was made for no more."
    if rung.context < case.longest:
        return f"{each}; a longer one would take the place of layers or of the draft model."
    return f"{each}; ask for more if a conversation needs it."


def _batch(case: Case) -> str:
    count = case.rung.batch
    warm = "as many stay warm"
    if case.rung.form.backend == LLAMA_CPP:
        warm = "further ones stay warm beside them as far as memory is free"
    elif case.rung.home == Tier.RAM:
        warm = "shorter ones stay warm as far as that has room"
    if case.wishes.batch:
        return f"{count} conversations at once were asked for; {warm}."
    if count == 1:
        return (
            "One conversation answers at a time: further ones would take memory from what is above; "
            f"{warm}."
        )
    return f"{count} conversations of this length can answer at once; {warm}."


def _resident(case: Case) -> str:
    if not case.rung.streams:
        return "Nothing is streamed."
    return f"Streaming takes what is free {_PLACES[case.rung.home]} beside caches and draft model."
