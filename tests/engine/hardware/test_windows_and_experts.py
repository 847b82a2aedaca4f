"""Plans of models with sliding windows and with experts: what lies where, what it costs, and the sentences."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.placement.plans import forms, planned
from engine.hardware.footprint import Footprint, llama_footprint
from engine.hardware.layers import called_experts, completed
from engine.hardware.plan import Candidates, Plan, PlanConstraints, Stage, Tier
from engine.hardware.planner import plan
from engine.hardware.profile import GIB, imagined
from engine.hardware.published import Q4, weights
from engine.hardware.shape import LayerKinds, ModelShape
from engine.models.gguf.library import llama_library
from engine.models.gguf.target import load
from engine.request import ModelSpec
from tests.engine.models.gguf.families import KINDS, WINDOWED, family_gguf

GEMMA_12B = ModelShape(
    3840, 48, 16, 8, 256, 15360, 262208, 131072, tied=True,
    kinds=LayerKinds(full=8, window=1024),
)  # fmt: skip
GPT_OSS = ModelShape(
    2880, 24, 64, 8, 64, 2880, 201088, 131072, experts=32,
    kinds=LayerKinds(full=12, window=128, used=4),
)  # fmt: skip
QWEN_30B = ModelShape(
    2048, 48, 32, 4, 128, 768, 151936, 262144, experts=128, kinds=LayerKinds(used=8)
)
SHAPES = {"gemma": GEMMA_12B, "gpt-oss": GPT_OSS, "qwen": QWEN_30B}


def form(name: str) -> Footprint:
    shape = completed(SHAPES[name])
    return llama_footprint(name, shape, weights(shape, Q4), Q4)


def found(name: str, gpu: int, ram: int, **wishes: int) -> Plan:
    answer = plan(imagined(gpu, ram), Candidates(name, (form(name),)), PlanConstraints(**wishes))
    assert isinstance(answer, Plan)
    return answer


def test_the_full_cache_is_taken_while_there_is_room() -> None:
    whole = found("gemma", 0, 64 * GIB)
    assert not whole.windowed
    assert "windows of 1024 tokens alone would take" in whole.reason("context")
    assert not planned(ModelSpec("g", "g.gguf"), whole).windowed


def test_windows_alone_make_room_for_a_longer_conversation() -> None:
    narrow = found("gemma", 0, 16 * GIB)
    assert narrow.windowed
    assert narrow.context == 32768
    assert planned(ModelSpec("g", "g.gguf"), narrow).windowed
    said = narrow.reason("context")
    assert "of checkpoints in RAM" in said
    assert "the full cache would take" in said
    assert "read again" in said
    assert "chains, never trees" in narrow.reason("drafter")
    full = replace(form("gemma"), narrow=None)
    without = plan(imagined(0, 16 * GIB), Candidates("gemma", (full,)))
    assert isinstance(without, Plan)
    assert without.context < narrow.context


def test_experts_go_to_ram_and_all_else_to_the_gpu() -> None:
    """As a token reads all of the attention and few of the experts."""
    shared = found("qwen", 12 * GIB, 32 * GIB)
    assert shared.stage is Stage.SHARED
    assert shared.gpu_layers == 48
    assert 0 < shared.cpu_experts < 48
    assert f"the experts of the first {shared.cpu_experts}" in shared.reason("placement")
    spec = planned(ModelSpec("q", "q.gguf"), shared)
    assert (spec.gpu_layers, spec.cpu_experts) == (48, shared.cpu_experts)
    assert "8 rows call about 52 of a layer's 128 experts and one row 8" in shared.reason("drafter")


def test_a_model_of_experts_that_fits_lies_on_the_gpu() -> None:
    whole = found("gpt-oss", 24 * GIB, 32 * GIB)
    assert (whole.stage, whole.cpu_experts) == (Stage.DEVICE, 0)


@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 64 * GIB), st.integers(4 * GIB, 128 * GIB))
def test_a_plan_never_takes_more_than_there_is(name: str, gpu: int, ram: int) -> None:
    answer = plan(imagined(gpu, ram), Candidates(name, (form(name),)))
    if isinstance(answer, Plan):
        assert all(answer.needed(tier) <= free for tier, free in answer.room)
        held = sum(need.bytes for need in answer.needs if need.what == "layers")
        assert held == sum(form(name).layers)
        if answer.cpu_experts:
            least = sum(form(name).experts[: answer.cpu_experts])
            assert answer.needed(Tier.RAM) >= least


def test_rows_call_more_experts_the_more_they_are() -> None:
    assert called_experts(256, 8, 1) == pytest.approx(8)
    assert called_experts(256, 8, 8) / 8 == pytest.approx(7.2, abs=0.05)
    assert called_experts(32, 4, 1000) == pytest.approx(32)


@pytest.mark.parametrize("name", SHAPES)
def test_a_token_reads_the_head_all_attention_and_its_own_experts(name: str) -> None:
    one, (every, used) = form(name), form(name).called
    alone, _ = one.token_reads()
    assert alone == pytest.approx(
        one.read + sum(one.layers) - sum(one.experts) * (1 - used / every if used else 0), abs=100
    )
    for count in range(0, len(one.layers) + 1, 8):
        here, aside = one.token_reads(count)
        assert here + aside == alone
        assert aside == pytest.approx(sum(one.experts[:count]) * used / max(every, 1), abs=100)


def test_a_gpu_holds_the_head_and_not_the_embedding() -> None:
    """As llama.cpp does: it assigns the input layer to the processor, and copies a tied head."""
    for name, one in ((name, form(name)) for name in SHAPES):
        whole = found(name, 48 * GIB, 64 * GIB)
        needs = {need.what: need.bytes for need in whole.needs if need.tier == Tier.DEVICE}
        assert needs["embedding and head"] == one.read
        tied = SHAPES[name].tied
        assert one.outside - one.read == pytest.approx(0 if tied else one.tables, abs=1)


KEPT = [(kind, False) for kind in KINDS] + [(kind, True) for kind in WINDOWED]
BUFFER = re.compile(r"(model|KV|RS|compute|output) buffer size = +([\d.]+) MiB")


@pytest.mark.parametrize(("kind", "windowed"), KEPT)
@pytest.mark.parametrize("exact", [True, False])
def test_llama_cpp_takes_what_was_planned(tmp_path, kind: str, windowed: bool, exact: bool) -> None:
    """By its own log: weights, caches, states and what passes take, within 5 %."""
    file = family_gguf(tmp_path / "model.gguf", kind, context_length=8192)
    [known] = forms("model", file, "llama_cpp")
    planned_form = known.narrow if windowed else known
    assert planned_form is not None
    words: list[str] = []
    spec = ModelSpec(
        "model", str(file), backend="llama_cpp", slots=2, context=4096, windowed=windowed,
        kv_type="f16", flash_attention=exact or None, threads=1, exact=exact,
    )  # fmt: skip
    with llama_library().listening(lambda _, text: words.append(text)):
        load(spec)
    taken = dict.fromkeys(("model", "KV", "RS", "compute", "output"), 0.0)
    for what, size in BUFFER.findall("".join(words)):
        taken[what] += float(size) * 2**20
    cache = planned_form.cache(4096, 0, 2)
    assert taken["KV"] + taken["RS"] == pytest.approx(cache, rel=0.05)
    if exact:  # otherwise scores are stored where they are small
        whole = planned_form.weights + cache + planned_form.working(4096, 0, 2)
        assert sum(taken.values()) == pytest.approx(whole, rel=0.05, abs=2**17)
