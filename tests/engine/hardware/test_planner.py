"""Laws of the planner over all memories, and two plans checked by hand."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelUnusable
from engine.hardware.candidates import (
    MARGIN,
    MOST_TAKEN,
    SCORED_ROWS,
    STREAMED,
    TIGHT_MARGIN,
    USEFUL,
    room_of,
)
from engine.hardware.footprint import LLAMA_CPP
from engine.hardware.plan import Plan, PlanConstraints, Refusal, Stage, Tier
from engine.hardware.planner import plan
from engine.hardware.profile import GIB, HardwareProfile, imagined
from engine.hardware.published import MACHINES, MODELS, SHAPES, candidates, weights
from engine.hardware.reasons import gib

MODEL = st.sampled_from(sorted(MODELS))
MEMORY = st.integers(0, 160 * GIB)
WISHES = st.builds(
    PlanConstraints,
    context=st.none() | st.integers(1, 200_000),
    batch=st.none() | st.integers(1, 8),
    draft=st.booleans(),
)


def rank(found: Plan | Refusal, machine: HardwareProfile) -> tuple[int, ...]:
    """Larger is better: the order of retreat, read backwards; the tight plans are the last of it."""
    if isinstance(found, Refusal):
        return (-1, -len(Stage))
    usual, drafts = int(dict(found.room) == room_of(machine)), int(found.draft_model is not None)
    return (usual, -list(Stage).index(found.stage), drafts, found.context, found.batch)


@given(MODEL, MEMORY, MEMORY, WISHES)
def test_a_plan_never_takes_more_than_there_is(
    model: str, gpu: int, ram: int, wishes: PlanConstraints
) -> None:
    machine = imagined(gpu, ram)
    found = plan(machine, candidates(model), wishes)
    if isinstance(found, Plan):
        room = dict(found.room)
        assert room in (room_of(machine, MARGIN), room_of(machine, TIGHT_MARGIN))
        assert found.needed(Tier.DEVICE) <= room[Tier.DEVICE] <= max(0, gpu - TIGHT_MARGIN)
        assert found.needed(Tier.RAM) <= room[Tier.RAM]
        held = sum(need.bytes for need in found.needs if need.what == "layers")
        form = next(
            form
            for form in candidates(model).forms
            if form.dtype == found.dtype and form.backend == found.backend
        )
        assert held == sum(form.layers)
        assert len(found.placement) == len(form.layers)
    else:
        assert found.needed > found.free
        assert gib(found.needed) in found.sentence
        assert gib(found.free) in found.sentence


@given(MODEL, MEMORY, MEMORY, WISHES, st.integers(0, 80 * GIB), st.integers(0, 80 * GIB))
def test_more_memory_never_gives_a_worse_plan(
    model: str, gpu: int, ram: int, wishes: PlanConstraints, more_gpu: int, more_ram: int
) -> None:
    for dtype in {None, *(form.dtype for form in candidates(model).forms)}:
        fixed = replace(wishes, dtype=dtype)
        little, much = imagined(gpu, ram), imagined(gpu + more_gpu, ram + more_ram)
        less = rank(plan(little, candidates(model), fixed), little)
        more = rank(plan(much, candidates(model), fixed), much)
        # of several formats the preferred one may fit now, and take what another left to a context
        assert (more if dtype else more[:2]) >= (less if dtype else less[:2])


@given(MODEL, MEMORY, MEMORY, WISHES)
def test_every_choice_has_a_sentence(
    model: str, gpu: int, ram: int, wishes: PlanConstraints
) -> None:
    found = plan(imagined(gpu, ram), candidates(model), wishes)
    if isinstance(found, Plan):
        chosen = {field.name for field in fields(Plan)} - {"model", "stage", "needs", "room", "why"}
        assert {reason.field for reason in found.why} == chosen
        for reason in found.why:
            assert reason.sentence.endswith(".")
            assert reason.sentence[0].isupper() or reason.sentence[0].isdigit() or found.draft_model
            assert "{" not in reason.sentence


@given(MODEL, MEMORY, MEMORY, WISHES)
def test_a_draft_model_is_counted_in_the_form_in_which_it_is_loaded(
    model: str, gpu: int, ram: int, wishes: PlanConstraints
) -> None:
    found = plan(imagined(gpu, ram), candidates(model), wishes)
    if isinstance(found, Plan) and found.draft_model:
        (held,) = (need.bytes for need in found.needs if need.what == "draft model")
        (twin,) = (
            form
            for form in candidates(model).draft
            if form.dtype == found.dtype and found.device in form.devices
        )
        assert held == twin.weights + twin.position * found.context


@given(MEMORY, MEMORY, WISHES)
def test_experts_are_never_streamed(gpu: int, ram: int, wishes: PlanConstraints) -> None:
    found = plan(imagined(gpu, ram), candidates("qwen3-30b-a3b-q4"), wishes)
    if isinstance(found, Plan):
        assert Tier.DISK not in found.placement
        assert found.resident is None


@given(st.integers(8 * GIB, 17 * GIB), st.integers(32 * GIB, 160 * GIB), WISHES)
def test_experts_on_two_memories_take_no_trees(gpu: int, ram: int, wishes: PlanConstraints) -> None:
    """No memory of the law above was between too little and enough, so this was never asked."""
    found = plan(imagined(gpu, ram), candidates("qwen3-30b-a3b-q4"), wishes)
    assert isinstance(found, Plan)
    assert found.stage is Stage.SHARED
    assert found.cpu_experts or set(found.placement) == {Tier.DEVICE, Tier.RAM}
    assert (found.drafter, found.draft_model) == ("lookup", None)


def test_the_products_rule() -> None:
    def at(machine: str, model: str) -> Plan:
        found = plan(MACHINES[machine], candidates(model))
        assert isinstance(found, Plan)
        return found

    fits = at("24 GB GPU, 64 GB", "layerskip-llama3.2-1b")
    assert (fits.stage, fits.drafter) == (Stage.DEVICE, "early_exit")
    assert at("24 GB GPU, 64 GB", "llama-3.1-8b").drafter == "auto"
    large = at("24 GB GPU, 64 GB", "llama-3.3-70b")
    assert (large.stage, large.drafter) == (Stage.DEVICE_DISK, "specexec")
    assert large.draft_model == "llama-3.2-1b"


def test_a_shorter_context_comes_before_the_draft_model_goes() -> None:
    """Walking down in memory, the draft model leaves only after the context is at its least."""
    lengths = []
    for size in range(24, 4, -1):
        found = plan(imagined(size * GIB, 8 * GIB), candidates("llama-3.1-8b-q4"))
        assert isinstance(found, Plan)
        if found.stage == Stage.DEVICE and found.draft_model:
            lengths.append(found.context)
    assert lengths == sorted(lengths, reverse=True)
    assert min(lengths) < max(lengths)


@given(MODEL, MEMORY, MEMORY, WISHES)
def test_a_draft_model_never_costs_a_useful_context(
    model: str, gpu: int, ram: int, wishes: PlanConstraints
) -> None:
    """On 8 GiB it cut the context from 8,192 to 2,048 tokens."""
    found = plan(imagined(gpu, ram), candidates(model), wishes)
    if isinstance(found, Plan) and found.draft_model and found.stage not in STREAMED:
        longest = min(wishes.context or USEFUL, *(form.context for form in candidates(model).forms))
        assert found.context >= min(USEFUL - SCORED_ROWS, longest)


@given(MODEL, MEMORY)
def test_what_nobody_asked_for_leaves_other_programs_their_part_of_ram(
    model: str, ram: int
) -> None:
    """The model that was recommended for 24 GB took 20.6 of 21.3 GiB, for contexts of 32,768 tokens."""
    found = plan(imagined(0, ram), candidates(model))
    if isinstance(found, Plan) and found.stage is Stage.RAM:
        most = MOST_TAKEN[Tier.RAM] * dict(found.room)[Tier.RAM]
        assert found.needed(Tier.RAM) <= most or (found.context <= USEFUL and found.batch == 1)


@pytest.mark.parametrize("wishes", [PlanConstraints(context=32_768), PlanConstraints(batch=2)])
def test_what_was_asked_for_may_take_all_that_is_free(wishes: PlanConstraints) -> None:
    taken = []
    for size in range(9 * GIB, 14 * GIB, GIB // 8):
        machine = imagined(0, size)
        usual, found = (
            plan(machine, candidates("llama-3.1-8b-q4"), w) for w in (PlanConstraints(), wishes)
        )
        assert isinstance(usual, Plan)
        assert isinstance(found, Plan)
        assert wishes.context is None or found.context >= usual.context
        assert wishes.batch is None or found.batch == wishes.batch
        taken.append(found.needed(Tier.RAM) / dict(found.room)[Tier.RAM])
    assert max(taken) > MOST_TAKEN[Tier.RAM]


@given(MODEL, MEMORY, MEMORY, WISHES)
def test_anyway_every_model_has_a_plan(
    model: str, gpu: int, ram: int, wishes: PlanConstraints
) -> None:
    machine, asked = imagined(gpu, ram), replace(wishes, anyway=True)
    usual = plan(machine, candidates(model), wishes)
    found = plan(machine, candidates(model), asked)
    assert isinstance(found, Plan)
    if isinstance(usual, Plan):
        assert found == usual
    else:
        assert found.draft_model is None
        assert "loaded as was asked" in found.reason("context")


@pytest.mark.parametrize("model", ["llama-3.1-8b-q4", "qwen3-14b-q4", "qwen3-30b-a3b-q4"])
def test_before_a_refusal_comes_the_smallest_plan_of_use(model: str) -> None:
    """A file of 491 MB was refused in 1.5 GB, where it ran in 0.9."""
    seen = []
    for size in range(40 * GIB, 0, -GIB // 4):
        machine = imagined(0, size)
        found = plan(machine, candidates(model), PlanConstraints(dtype=None))
        tight = isinstance(found, Plan) and dict(found.room) != room_of(machine)
        seen.append("refused" if isinstance(found, Refusal) else "tight" if tight else "usual")
        if tight:
            assert (found.batch, found.draft_model) == (1, None)
            assert "close other programs for a longer one" in found.reason("context")
    assert list(dict.fromkeys(seen)) == ["usual", "tight", "refused"]


def test_a_form_that_the_model_has_not_is_said() -> None:
    with pytest.raises(ModelUnusable, match="cannot run as float32"):
        plan(imagined(0, 64 * GIB), candidates("llama-3.1-8b-q4"), PlanConstraints(dtype="float32"))


def test_weights_of_llama_8b_in_16_bits_by_hand() -> None:
    """By the model's card: 8,030,261,248 parameters.

    A layer: q and o 4096 * 4096 each, k and v 4096 * 1024 each, three maps of 4096 * 14336, two
    norms of 4096: 33,554,432 + 8,388,608 + 176,160,768 + 8,192 = 218,112,000. Thirty-two of them:
    6,979,584,000. Embedding and head 128,256 * 4096 = 525,336,576 each, the last norm 4096.
    """
    held = weights(SHAPES["llama-3.1-8b"], "fp16")
    assert held.layers[0].elements == 218_112_000
    assert held.total.elements == 6_979_584_000 + 2 * 525_336_576 + 4096 == 8_030_261_248
    assert held.total.bytes == 2 * 8_030_261_248
    (gpu, *_) = candidates("llama-3.1-8b").forms
    # keys and values of a token: 2 * 32 layers * 8 heads * 128 * 2 bytes = 128 KiB
    assert gpu.kv_row == 131_072
    # 16,128 tokens and a tree of 256 rows: 16,384 rows of 128 KiB are 2 GiB
    assert gpu.cache(16_128, 256, 1) == 2 * GIB


def test_weights_of_llama_8b_in_4_bits_by_hand() -> None:
    """Q4_K takes 144 bytes for 256 weights, Q6_K 210.

    In half of the layers v and down are Q6_K: (4,194,304 + 58,720,256) * 210 / 256 = 51,609,600
    instead of 35,389,440; q, k, o, gate and up take 155,189,248 * 144 / 256 = 87,293,952; norms in
    32 bits 32,768. Sixteen layers of each kind: 16 * (138,936,320 + 122,716,160) = 4,186,439,680.
    Embedding in Q4_K 295,501,824, head in Q6_K 430,940,160, last norm 16,384: 4,912,898,048 bytes,
    the 4.92 GB of the published file less its vocabulary.
    """
    held = weights(SHAPES["llama-3.1-8b"], "4-bit")
    assert {layer.bytes for layer in held.layers} == {138_936_320, 122_716_160}
    assert held.total.bytes == 4_912_898_048
    (form,) = candidates("llama-3.1-8b-q4").forms
    assert form.backend == LLAMA_CPP
    assert form.weights == 4_912_898_048
