"""One sentence for every field of a plan, with the numbers that decided."""

from dataclasses import dataclass

from engine.drafters import describe
from engine.hardware.candidates import LONGEST, FittedPlacement, Placement, Room, lack
from engine.hardware.footprint import LLAMA_CPP, TORCH
from engine.hardware.layers import called_experts
from engine.hardware.plan import Candidates, PlanConstraints, Reason, Stage, Tier
from engine.hardware.profile import GIB

TITLES = {  # of a plan's fields, and of its tiers
    "backend": "Runs with",
    "dtype": "Numbers",
    "device": "Passes",
    "placement": "Layers",
    "drafter": "Drafting",
    "draft_model": "Draft model",
    "context": "Context",
    "batch": "Conversations",
    "resident": "Streaming",
    Tier.DEVICE: "GPU",
    Tier.RAM: "RAM",
    Tier.DISK: "Disk",
}
ROWS = 8  # of a draft, for an example
_PLACES = {Tier.DEVICE: "on the GPU", Tier.RAM: "in RAM", Tier.DISK: "on disk"}


@dataclass(frozen=True, slots=True)
class Case:
    """What the sentences are about."""

    found: FittedPlacement
    model: Candidates
    wishes: PlanConstraints
    room: Room
    failed: dict[Stage, Placement]  # the last choice of every better stage

    @property
    def choice(self) -> Placement:
        """The choice that fits."""
        return self.found.choice

    @property
    def longest(self) -> int:
        """Tokens that were tried first."""
        return min(self.choice.form.context, self.wishes.context or LONGEST)


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
    if case.choice.form.backend == LLAMA_CPP:
        return "The model is a GGUF file, which llama.cpp runs."
    if case.choice.form.backend == TORCH:
        return "The model is in safetensors and of a family that the own decoder runs."
    return f"The backend {case.choice.form.backend} runs this family."


def _dtype(case: Case) -> str:
    form = case.choice.form
    size = gib(form.weights)
    if case.wishes.dtype:
        return f"{form.dtype} was requested: {size} of weights."
    if form.backend == LLAMA_CPP:
        return f"The weights stay as the file has them: {size}."
    if form.dtype == "float32":
        halves = any(one.dtype == "bfloat16" for one in case.model.forms)
        why = (
            "this processor does not multiply bfloat16" if halves else "nothing of them is rounded"
        )
        return f"{size} of weights in float32 fit; {why}."
    if case.choice.home == Tier.DEVICE:
        return f"The GPU multiplies bfloat16 at full speed: {size} of weights."
    return f"bfloat16 halves what a pass reads: {size} of weights."


def _device(case: Case) -> str:
    if case.choice.home == Tier.DEVICE:
        return "Passes run on the GPU."
    lacking = [choice for choice in case.failed.values() if choice.home == Tier.DEVICE]
    if lacking:
        needed, free = lack(lacking[-1], case.room)
        return (
            f"Passes run on the processor: the GPU's way needs {gib(needed)} of {gib(free)} free."
        )
    return "Passes run on the processor: there is no GPU."


def _placement(case: Case) -> str:
    placement, sizes = case.found.tiers, case.choice.form.layers
    if experts := case.found.cpu_experts:
        aside = gib(sum(case.choice.form.experts[:experts]))
        return (
            f"All {len(placement)} layers are on the GPU but for the experts of the first {experts} ({aside}): "
            f"these are in RAM and computed by the processor, as a token reads few of them; "
            f"{_too_small(case)}."
        )
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
    way = "streamed for every pass" if case.choice.streams else "computed by the processor"
    return (
        f"{', '.join(parts)}; what is not {_PLACES[case.choice.home]} is {way}: {_too_small(case)}."
    )


def _too_small(case: Case) -> str:
    """Why nothing better was possible."""
    if not case.failed:
        return "no better place exists"
    choice = min(case.failed.values(), key=lambda choice: list(Stage).index(choice.stage))
    needed, free = lack(choice, case.room)
    return f"{choice.stage}, it needs at least {gib(needed)} of {gib(free)} free"


def _used(case: Case, tier: Tier) -> str:
    used = sum(need.bytes for need in case.found.needs if need.tier == tier)
    return f"with caches, buffers and drafts, they take {gib(used)} of the {gib(case.room[tier])} that are free"


def _drafter(case: Case, drafter: str) -> str:
    streamed = (
        size
        for tier, size in zip(case.found.tiers, case.choice.form.layers, strict=True)
        if tier != case.choice.home
    )
    text = describe(drafter).plan_reason.format(
        exit_layer=case.model.exit_layer,
        streamed=gib(sum(streamed)),
        no_draft_model=_no_draft(case),
    )
    if not case.choice.form.dense:
        text += _experts_of_rows(case)
    if case.choice.form.window:
        text += "; layers that keep no more than their window take chains, never trees"
    return text[0].upper() + text[1:] + "."


def _experts_of_rows(case: Case) -> str:
    experts, used = case.choice.form.called
    if not used:
        return "; a tree would make its experts read more, so lengths follow the measured cost"
    called = called_experts(experts, used, ROWS)
    return (
        f"; {ROWS} rows call about {called:.0f} of a layer's {experts} experts and one row {used}, "
        "so lengths follow the measured cost"
    )


def _no_draft(case: Case) -> str:
    if not case.choice.form.dense and case.choice.draft is None and case.model.draft:
        return "experts on two memories take no drafted trees"
    return "there is no draft model" if not case.model.draft else "the draft model is left out"


def _draft_model(case: Case) -> str:
    draft = case.choice.draft
    if draft is not None:
        return f"{draft.name} has the same vocabulary and fits next to it: {gib(draft.weights)}."
    if not case.model.draft:
        return "No draft model is paired with this model."
    if not case.wishes.draft:
        return "The request excludes a draft model."
    if not case.choice.form.dense:
        return "A draft's tokens would each call other experts from the slower memory."
    return "The draft model does not fit next to the model, or has another form."


def _context(case: Case) -> str:
    choice = case.choice
    size = choice.form.cache(choice.context, 0, 1)
    state = choice.form.state
    running = ""
    if state:
        running = (
            f", {gib(state)} of it a running state and those of the last rows, with "
            f"{gib(choice.form.aside)} of checkpoints in RAM"
        )
    if choice.form.window:
        running = f", {gib(state)} of it in layers that keep no more than their window"
    each = f"{choice.context} tokens take {gib(size)} of keys and values{running}"
    each += _windows(case)
    if short := _short(case):
        return f"{each}; {short}."
    if case.wishes.context and choice.context < case.wishes.context:
        return f"{each}; the {case.wishes.context} that were requested do not fit, or are too many for the model."
    if choice.context == choice.form.context:
        return f"{each}; the model was made for no more."
    if choice.context < case.longest:
        return f"{each}; a longer one would take the place of layers, of the draft model or of other programs."
    return f"{each}; ask for more if a conversation needs it."


def _windows(case: Case) -> str:
    """What each of both kinds of cache costs, where layers have windows."""
    choice, form = case.choice, case.choice.form
    if form.narrow:
        less = form.narrow.cache(choice.context, 0, 1)
        return (
            f"; windows of {form.narrow.window} tokens alone would take {gib(less)} and {gib(form.narrow.aside)} of "
            "checkpoints, but no drafted trees"
        )
    if not form.window:
        return ""
    full = next(one for one in case.model.forms if one.narrow == form)
    return (
        f", with {gib(form.aside)} of checkpoints in RAM, where the full cache would take "
        f"{gib(full.cache(choice.context, 0, 1))}; what goes back further than {form.window} tokens begins at a "
        "checkpoint or is read again"
    )


def _short(case: Case) -> str:
    """What is to be said where memory is short, or too short."""
    needed, free = lack(case.choice, case.room)
    if needed > free:
        return f"loaded as was asked, though {gib(needed)} are needed and {gib(free)} are free"
    return "memory is short: close other programs for a longer one" if case.choice.tight else ""


def _batch(case: Case) -> str:
    count = case.choice.batch
    warm = "as many stay cached"
    if case.choice.form.backend == LLAMA_CPP:
        warm = "further ones stay cached as far as memory is free"
    elif case.choice.home == Tier.RAM:
        warm = "shorter ones stay cached as far as there is room"
    if case.wishes.batch:
        return f"{count} conversations at once were requested; {warm}."
    if count == 1:
        return (
            "One conversation answers at a time: further ones would take memory from what is above; "
            f"{warm}."
        )
    return f"{count} conversations of this length can answer at once; {warm}."


def _resident(case: Case) -> str:
    if not case.choice.streams:
        return "Nothing is streamed."
    return (
        f"Streaming takes what is free {_PLACES[case.choice.home]} next to caches and draft model."
    )
