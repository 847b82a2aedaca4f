"""Offloaded is resident: where the weights wait changes no token, and a fault is never an answer."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.build import assemble, load
from engine.engine import Engine
from engine.errors import ModelUnusable
from engine.interfaces.drafter import DrafterResources
from engine.models.offload import direct_files as files
from engine.request import Done, FinishReason, GenerationRequest, ModelSpec, SamplingParams
from engine.speculation.tree import DraftTree
from tests.bundled import POCKET, POCKET_DRAFT
from tests.engine.tiny import run_all

LIMIT = 36_000_000  # 31 of them for embedding, head, buffers and the library; layers take 18
DRAFT = str(POCKET_DRAFT)
SPEC = ModelSpec("pocket", str(POCKET), draft_folder=DRAFT, exit_layer=2, slots=2)
PROMPT = tuple(range(200, 260))


@pytest.fixture(scope="module")
def resident() -> DrafterResources:
    return load(SPEC)[0]


@pytest.fixture(scope="module")
def streamed() -> DrafterResources:
    return load(replace(SPEC, resident=LIMIT))[0]


def answer(engine: Engine, drafter: str = "none", **fields) -> tuple[list[int], Done]:
    asked = GenerationRequest(**{"prompt": PROMPT, "max_tokens": 24, "drafter": drafter} | fields)
    [found] = run_all(engine, [asked])
    return found


def test_most_of_the_model_is_streamed(streamed: DrafterResources) -> None:
    assert streamed.target.source.streamed > 2 * streamed.target.source.resident > 0


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.7, top_p=0.9, seed=4)])
def test_every_drafter_gives_the_resident_models_tokens(resident, streamed, sampling) -> None:
    wanted, _ = answer(assemble(SPEC, resident, ""), sampling=sampling)
    engine = assemble(SPEC, streamed, "")
    assert "specexec" in engine.facts.drafters
    for drafter in (*engine.facts.drafters, "auto"):
        found, done = answer(engine, drafter, sampling=sampling)
        assert done.error is None
        assert found == wanted, drafter


@pytest.mark.parametrize(
    "fields", [{"inflate": 2}, {"weights": "int8"}, {"backend": "llama_cpp"}, {"device": "cuda"}]
)
def test_what_cannot_be_streamed_is_refused(fields) -> None:
    with pytest.raises(ModelUnusable, match="stream|stored|finds no CUDA device"):
        load(replace(SPEC, resident=LIMIT, **fields))


def test_early_exit_needs_a_layer_that_stays(streamed: DrafterResources) -> None:
    engine = assemble(SPEC, streamed, "")
    whole = streamed.target.source.whole
    assert ("early_exit" in engine.facts.drafters) == (whole > 0)
    if whole == 0:
        assert "no whole layer" in dict(engine.facts.refused)["early_exit"]


@pytest.mark.parametrize(
    ("draft", "asked"),
    [
        (DRAFT, {"drafter": "early_exit", "length": "fixed"}),
        (DRAFT, {"drafter": "early_exit"}),
        (None, {"drafter": "specexec", "length": "fixed", "draft_depth": 8, "draft_nodes": 24}),
    ],
    ids=["early exit of one length", "early exit", "trees without a draft model"],
)
def test_the_layers_that_stay_draft(draft, asked) -> None:
    spec = replace(SPEC, resident=44_000_000, draft_folder=draft)
    parts, no_draft = load(spec)
    assert 0 < parts.target.source.whole < parts.target.layers
    engine = assemble(spec, parts, no_draft)
    wanted, _ = answer(engine)
    found, done = answer(engine, **asked)
    assert found == wanted
    assert done.stats.drafted > 0 or "length" not in asked
    if draft is None:
        assert 0 < parts.draft_model.layers <= parts.target.source.whole
        assert done.stats.passes < 24  # they are worth something


def test_first_layers_that_were_not_trained_to_draft_are_no_draft_model() -> None:
    spec = replace(SPEC, resident=44_000_000, draft_folder=None, exit_layer=None)
    parts, no_draft = load(spec)
    assert parts.draft_model is None
    assert "no draft model is paired" in no_draft


def test_a_long_prompt_is_read_in_passes_that_fit(resident, streamed) -> None:
    assert streamed.target.source.widest < 256
    engines = (assemble(SPEC, parts, "") for parts in (resident, streamed))
    wanted, found = (answer(one, prompt=PROMPT * 6, max_tokens=8)[0] for one in engines)
    assert found == wanted


@pytest.mark.parametrize("layer", [0, 1, 3, 5])
def test_a_prompt_that_breaks_off_in_any_layer_leaves_nothing(
    resident: DrafterResources, streamed: DrafterResources, layer: int
) -> None:
    """Data that the source is prefetching for later layers is not used for another layer."""
    tree = DraftTree((5, 9, 30, 31, 32, 77, 78), (-1, 0, 0, 1, 1, 2, 5))
    found = []
    for parts in (resident, streamed):
        target, asked = parts.target, []
        target.feed(1, PROMPT[:20])
        assert target.abort_when(lambda asked=asked: asked.append(layer) or len(asked) > layer)
        target.feed(1, PROMPT)
        assert (target.length(1), target.pending(1), len(asked)) == (20, 0, layer + 1)
        target.abort_when(bool)
        target.feed(1, PROMPT[20:])
        found.append(target.score([1], [tree])[0].logits)
        target.crop(1, 0)
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-4)


def test_no_tree_is_wider_than_a_pass_may_be(streamed: DrafterResources) -> None:
    shape = {"length": "fixed", "draft_depth": 16, "draft_nodes": 900}
    _, done = answer(assemble(SPEC, streamed, ""), "specexec", max_tokens=16, **shape)
    assert done.stats.drafted <= done.stats.passes * streamed.target.source.widest


@pytest.mark.parametrize(
    "fault",
    [
        OSError(5, "Input/output error"),
        pytest.param(
            MemoryError("the reader dies"),
            marks=pytest.mark.filterwarnings(
                "ignore::pytest.PytestUnhandledThreadExceptionWarning"
            ),
        ),
    ],
)
def test_a_fault_ends_its_request_with_the_layer_and_the_next_one_is_served(
    monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    broken: list[BaseException] = []

    def read(descriptor: int, buffer: memoryview, offset: int) -> int:
        if broken:
            raise broken[0]
        return files.read_into(descriptor, buffer, offset)

    monkeypatch.setattr("engine.models.offload.disk.read_into", read)
    spec = replace(SPEC, resident=LIMIT)
    parts, _ = load(spec)
    engine = assemble(spec, parts, "")
    for drafter in ("none", "specexec"):
        wanted, _ = answer(engine, drafter, max_tokens=12)
        broken.append(fault)
        ids, done = answer(engine, drafter, prompt=PROMPT[:40], max_tokens=12)
        assert done.reason is FinishReason.ERROR
        assert re.search("layer.*could not be read", done.error)
        assert len(ids) < 12
        broken.clear()
        again, done = answer(engine, drafter, max_tokens=12)
        assert done.error is None
        assert again == wanted


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def overwrite(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(-4096, os.SEEK_END)
        opened.write(b"\0" * 4096)


@pytest.mark.parametrize(("damage", "said"), [(cut, "was cut from"), (overwrite, "was changed")])
def test_a_file_that_is_damaged_while_in_use_ends_its_requests_until_it_is_loaded_again(
    tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "pocket"
    shutil.copytree(SPEC.folder, folder)
    spec = replace(SPEC, folder=str(folder), resident=LIMIT)
    parts, no_draft = load(spec)
    engine = assemble(spec, parts, no_draft)
    wanted, _ = answer(engine)
    damage(folder / "model.safetensors")
    for drafter in ("none", "specexec"):
        _, done = answer(engine, drafter, prompt=PROMPT[:30])
        assert done.reason is FinishReason.ERROR
        assert said in str(done.error)
        assert "layer" in str(done.error)
    shutil.copyfile(Path(SPEC.folder) / "model.safetensors", folder / "model.safetensors")
    found, done = answer(assemble(spec, *load(spec)))
    assert done.error is None
    assert found == wanted
