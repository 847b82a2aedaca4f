"""Ways to place a model on a machine, best first, and whether one fits: bytes per purpose and tier."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from engine.hardware.footprint import CPU, CUDA, INT8, TORCH, Footprint
from engine.hardware.plan import Candidates, Need, PlanConstraints, Stage, Tier
from engine.hardware.profile import GIB, HardwareProfile
from engine.platform.instructions import BFLOAT16

MARGIN = GIB  # of each memory: this program, its libraries, the display, other programs' growth
TIGHT_MARGIN = 256 * 2**20  # where nothing fits otherwise: this program and its libraries
SCORED_ROWS = 256  # of all trees of one pass together
TIGHT_ROWS = 32
MOST_TAKEN = {
    Tier.RAM: 0.85,
    Tier.DEVICE: 0.9,
}  # of the room: other programs need RAM more than a GPU
USEFUL = 8192  # tokens of a conversation: below, the draft model goes before more of them go
LONGEST = 32768  # tokens, unless more is wished: longer prompts take minutes to read
STREAMED_LONGEST = 8192  # where a longer cache would take the place of layers
LEAST = 2048
TIGHT_CONTEXTS = (LEAST, 1024, 512)
BATCHES = (4, 2, 1)
_RING = 320 * 2**20  # bytes of reading buffers and libraries for layers that come from disk


STREAMED = frozenset({Stage.SHARED, Stage.DEVICE_DISK, Stage.RAM_DISK})
_ON_GPU = frozenset({Stage.DEVICE, Stage.SHARED, Stage.DEVICE_DISK})
_FROM_DISK = frozenset({Stage.DEVICE_DISK, Stage.RAM_DISK})
Room = dict[Tier, int]


@dataclass(frozen=True, slots=True)
class Placement:
    """One way to run a model, not yet checked for size."""

    stage: Stage
    form: Footprint
    draft: Footprint | None
    context: int
    batch: int
    rows: int = SCORED_ROWS  # of a tree
    tight: bool = False  # the least that is of use, with a smaller margin

    @property
    def home(self) -> Tier:
        """Where passes run."""
        return Tier.DEVICE if self.stage in _ON_GPU else Tier.RAM

    @property
    def streams(self) -> bool:
        """Whether layers are read again for each pass."""
        return self.stage in STREAMED and self.form.backend == TORCH


@dataclass(frozen=True, slots=True)
class FittedPlacement:
    """A placement that fits: the layers' tiers and every byte."""

    choice: Placement
    tiers: tuple[Tier, ...]  # of each layer
    needs: tuple[Need, ...]
    cpu_experts: int = 0  # first layers whose experts are in RAM


def room_of(profile: HardwareProfile, margin: int = MARGIN) -> Room:
    """Bytes that a plan may take of each memory."""
    gpu = profile.gpu
    return {
        Tier.DEVICE: max(0, gpu.free - margin) if gpu else 0,
        Tier.RAM: max(0, profile.ram.available - margin),
    }


def room_for(choice: Placement, room: Room, wishes: PlanConstraints) -> Room:
    """What of ``room`` one placement may take.

    Longer contexts and further conversations that were not requested leave other programs their part of RAM.
    """
    longer = choice.context > USEFUL and not wishes.context
    further = choice.batch > 1 and not wishes.batch
    if choice.stage != Stage.RAM or not (longer or further):
        return room
    return room | {Tier.RAM: int(MOST_TAKEN[Tier.RAM] * room[Tier.RAM])}


def placements(
    profile: HardwareProfile, model: Candidates, wishes: PlanConstraints
) -> Iterator[Placement]:
    """Every placement that this machine could try: shorter contexts before the draft model goes.

    Layers with windows keep the whole text, for drafted trees, unless that costs conversations or their length.
    The draft model goes before the context is shorter than what is useful, but not where layers are streamed.
    """
    for stage, form in _ways(profile, model, wishes):
        twin = _draft_of(stage, form, model.draft) if wishes.draft else None
        contexts, batches = _ladders(stage, form, wishes)
        least = 0 if stage in STREAMED else min(USEFUL - SCORED_ROWS, contexts[0])
        useful = [context for context in contexts if context >= least]
        for draft in (twin, None) if twin else (None,):
            for context, batch in product(useful if draft else contexts, batches):
                for one in (form, form.narrow) if form.narrow else (form,):
                    yield Placement(stage, one, draft, context, batch)


def tight_placements(
    profile: HardwareProfile, model: Candidates, wishes: PlanConstraints
) -> Iterator[Placement]:
    """The smallest that are of use, for a machine on which no other fits: one short conversation.

    Layers from the disk are none of them: without a draft model, a token would take minutes.
    """
    for stage, form in _ways(profile, model, wishes):
        if stage in _FROM_DISK:
            continue
        most = min(form.context, wishes.context or LEAST)
        for context in dict.fromkeys(min(tokens, most) for tokens in TIGHT_CONTEXTS):
            yield Placement(stage, form, None, context, 1, TIGHT_ROWS, tight=True)


def _ways(
    profile: HardwareProfile, model: Candidates, wishes: PlanConstraints
) -> Iterator[tuple[Stage, Footprint]]:
    """Stages, best first, each with the forms that it can take."""
    wished = [form for form in model.forms if _wished(form, wishes)]
    for stage in Stage:
        if profile.gpu or stage not in _ON_GPU:
            yield from ((stage, form) for form in _preferred(stage, profile, wished))


def _preferred(
    stage: Stage, profile: HardwareProfile, forms: Sequence[Footprint]
) -> list[Footprint]:
    """On a processor bfloat16 first where it multiplies that, at half of what a pass reads."""
    halves = stage in STREAMED or bool(BFLOAT16 & set(profile.instructions))

    def rank(form: Footprint) -> bool:
        return form.backend == TORCH and (form.dtype == "bfloat16") != halves

    return sorted((form for form in forms if _possible(stage, form)), key=rank)


def fit(choice: Placement, room: Room) -> FittedPlacement | None:
    """The placement with as many layers as possible where passes run; None where it does not fit."""
    needs = _fixed(choice)
    left = {tier: free - _total(needs, tier) for tier, free in room.items()}
    experts = _cpu_experts(choice, left)
    tiers = (choice.home,) * len(choice.form.layers) if experts else _place(choice, left)
    if tiers is None:
        return None
    needs += _layers(choice, tiers, experts)
    if any(_total(needs, tier) > free for tier, free in room.items()):
        return None
    return FittedPlacement(choice, tiers, tuple(need for need in needs if need.bytes), experts)


def forced(choice: Placement) -> FittedPlacement:
    """The placement whatever there is: all layers where passes run, or read from the disk."""
    tier = Tier.DISK if choice.stage in _FROM_DISK else choice.home
    tiers = (tier,) * len(choice.form.layers)
    needs = [*_fixed(choice), *_layers(choice, tiers)]
    return FittedPlacement(choice, tiers, tuple(need for need in needs if need.bytes))


def lack(choice: Placement, room: Room) -> tuple[int, int]:
    """(bytes that the placement needs at least, bytes available) of the memories that it uses."""
    needs = _fixed(choice)
    if choice.stage in _FROM_DISK:
        each = ((_total(needs, tier), room[tier]) for tier in {choice.home, Tier.RAM})
        return max(each, key=lambda both: both[0] - both[1])
    tiers = {choice.home, Tier.RAM} if choice.stage == Stage.SHARED else {choice.home}
    fixed = sum(_total(needs, tier) for tier in tiers)
    return fixed + sum(choice.form.layers), sum(room[tier] for tier in tiers)


def _wished(form: Footprint, wishes: PlanConstraints) -> bool:
    """Rounded weights are another model: they are used only where asked for."""
    asked = wishes.dtype or (None if form.dtype == INT8 else form.dtype)
    return wishes.backend in {None, form.backend} and asked == form.dtype


def _possible(stage: Stage, form: Footprint) -> bool:
    if (CUDA if stage in _ON_GPU else CPU) not in form.devices:
        return False
    if stage in _FROM_DISK or (stage == Stage.SHARED and form.backend == TORCH):
        return form.streams
    return True


def _draft_of(stage: Stage, form: Footprint, drafts: Sequence[Footprint]) -> Footprint | None:
    """The draft model in the target's own form; experts on two memories take no trees."""
    if stage in STREAMED and not form.dense:
        return None

    def kind(one: Footprint) -> tuple[str, str, tuple[str, ...]]:
        return one.backend, one.dtype, one.devices

    return next((draft for draft in drafts if kind(draft) == kind(form)), None)


def _ladders(
    stage: Stage, form: Footprint, wishes: PlanConstraints
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Contexts and numbers of conversations at once to try, the most first."""
    usual = STREAMED_LONGEST if stage in STREAMED else LONGEST
    # a torch cache holds 512 * 2^n rows: a tree has its place in the last of them
    tree = SCORED_ROWS if form.backend == TORCH else 0
    longest = min(form.context, wishes.context or usual - tree)
    powers = (2**power - tree for power in range(longest.bit_length(), 0, -1))
    contexts = (longest, *(rows for rows in powers if LEAST - tree <= rows < longest))
    batches = (wishes.batch,) if wishes.batch else ((1,) if stage in STREAMED else BATCHES)
    return contexts, batches


def _fixed(choice: Placement) -> list[Need]:
    """Everything but the layers."""
    form, home = choice.form, choice.home
    gpu = home == Tier.DEVICE
    shape = (choice.context, choice.rows, choice.batch)
    cache, working = form.cache(*shape), form.working(*shape)
    needs = [
        Need(home, "embedding and head", form.edges(choice.context, gpu=gpu)),
        Need(home, "keys and values", cache),
        Need(Tier.RAM, "checkpoints", form.aside * choice.batch),
        Need(home, "the widest pass", working),
        *_draft_needs(choice),
    ]
    if choice.stage == Stage.SHARED and form.backend != TORCH:  # the processor computes, too
        needs.append(Need(Tier.RAM, "the widest pass", working))
        needs.append(Need(Tier.RAM, "embedding", form.tables))
    if choice.streams and gpu:
        needs.append(Need(home, "layers on their way", 2 * max(form.layers)))
    if choice.stage in _FROM_DISK:
        needs.append(Need(Tier.RAM, "reading buffers", _RING))
    if choice.stage == Stage.RAM:  # before there are caches and passes
        needs.append(Need(home, "loading", max(0, form.loading - cache - working)))
    return needs


def _draft_needs(choice: Placement) -> list[Need]:
    if choice.draft is None:
        return []
    draft, gpu = choice.draft, choice.home == Tier.DEVICE
    shape = (choice.context, SCORED_ROWS, choice.batch)
    passing = draft.cache(*shape) + draft.working(*shape)
    return [
        Need(choice.home, "draft model", sum(draft.layers) + draft.edges(choice.context, gpu=gpu)),
        Need(choice.home, "draft model's keys, values and pass", passing),
    ]


def _place(choice: Placement, left: Room) -> tuple[Tier, ...] | None:
    """A tier for each layer: the first ones where passes run, as llama.cpp has it the last ones."""
    sizes = choice.form.layers
    count = _fitting(sizes, left[choice.home])
    if choice.stage not in STREAMED:
        return (choice.home,) * len(sizes) if count == len(sizes) else None
    if choice.form.backend != TORCH:
        count = _fitting(sizes[::-1], left[choice.home])
        return (Tier.RAM,) * (len(sizes) - count) + (choice.home,) * count if count else None
    rest = sizes[count:]
    if choice.stage == Stage.SHARED:
        return (choice.home,) * count + (Tier.RAM,) * len(rest)
    held = _fitting(rest, left[Tier.RAM]) if choice.home == Tier.DEVICE else 0
    disk = (Tier.DISK,) * (len(rest) - held)
    return (choice.home,) * count + (Tier.RAM,) * held + disk


def _fitting(sizes: Sequence[int], free: int) -> int:
    """How many of the first layers fit."""
    taken = count = 0
    for size in sizes:
        taken += size
        if taken > free:
            break
        count += 1
    return count


def _cpu_experts(choice: Placement, left: Room) -> int:
    """First layers whose experts go to RAM so that all else is on the GPU; 0: that cannot be, or need not.

    A token reads few of the experts, and all the rest: so the rest gains most where memory is fast.
    """
    form, home = choice.form, choice.home
    if choice.stage != Stage.SHARED or form.backend == TORCH or not any(form.experts):
        return 0
    lacking, taken = sum(form.layers) - left[home], 0
    for count, size in enumerate(form.experts, start=1):
        taken += size
        if taken >= lacking:
            return count if taken <= left[Tier.RAM] else 0
    return 0


def _layers(choice: Placement, tiers: tuple[Tier, ...], experts: int = 0) -> list[Need]:
    by_tier = dict.fromkeys(Tier, 0)
    for tier, size in zip(tiers, choice.form.layers, strict=True):
        by_tier[tier] += size
    aside = sum(choice.form.experts[:experts])
    by_tier[choice.home] -= aside
    by_tier[Tier.RAM] += aside
    return [Need(tier, "layers", size) for tier, size in by_tier.items()]


def _total(needs: Sequence[Need], tier: Tier) -> int:
    return sum(need.bytes for need in needs if need.tier == tier)
