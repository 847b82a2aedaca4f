"""The target contract on the bundled model's GGUF; the torch target is the oracle."""

import random
import threading
import time
from dataclasses import replace

import psutil
import pytest
import torch

from app.bench.prompt_files import SHIPPED, read_prompts
from app.request import Message
from app.text.chat_text import ChatText
from engine.build import build
from engine.errors import Aborted, ModelUnusable, NumericalError
from engine.interfaces.target import Rows
from engine.models.gguf.context import CacheFull
from engine.models.gguf.header import read_header
from engine.models.gguf.layers import first_layers
from engine.models.gguf.target import LlamaCppTarget
from engine.models.own.target import load_target
from engine.request import FinishReason, GenerationRequest, ModelSpec, SamplingParams
from engine.speculation.sampling import probabilities
from engine.speculation.tree import chain, single
from tests.bundled import BUNDLED, POCKET
from tests.engine.models.conversations import SLOTS, converse
from tests.engine.models.gguf.files import exact, exported, quantized, random_gguf
from tests.engine.tiny import run_all

TOLERANCE = 1e-3  # of logits that reach 30; another order of summation gives 3e-5


@pytest.fixture(scope="module")
def oracle():
    return load_target(POCKET, "float32", "cpu")


@pytest.fixture
def target(pocket_gguf):
    return LlamaCppTarget(exact(pocket_gguf))


IDS = random.Random(5).choices(range(6, 4096), k=40)
LONG = random.Random(6).choices(range(6, 4096), k=60)


def test_only_rows_that_are_asked_for_come_back(target):
    [grown] = target.grow([Rows(0, IDS[:9], range(-1, 8), last=1)])
    assert grown.logits.shape == (1, 4096)
    whole = target.score([1], [chain(IDS[:9])])[0].logits
    assert near(grown.logits[0], whole[-1])


def near(found, wanted):
    return (found - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize("branches", [64, 2, 5])
def test_conversations_equal_the_torch_target(pocket_gguf, oracle, branches):
    """Resting between it; few branches make trees take many passes."""
    for slot in range(SLOTS):
        oracle.crop(slot, 0)
    target = LlamaCppTarget(exact(pocket_gguf), branches)
    converse(oracle, target, random.Random(branches), near)


def test_trees_and_prompts_longer_than_a_pass(pocket_gguf, oracle):
    target = LlamaCppTarget(exact(pocket_gguf, batch=32))
    oracle.crop(0, 0)
    ids = random.Random(1).choices(range(6, 4096), k=300)
    for one in (target, oracle):
        one.feed(0, ids[:150])
    wanted, found = (one.score([0], [chain(ids[150:])])[0].logits for one in (oracle, target))
    assert near(wanted, found)


def test_a_decoded_token_has_the_row_of_a_scored_one_and_is_committed(target):
    for slot in (0, 1):
        target.feed(slot, IDS[:20])
    target.grow([Rows(0, IDS[:3], (-1, 0, -1))])  # a draft that nobody keeps
    for at in range(20, 40):
        lent = target.decode(0, IDS[at : at + 1]).copy()
        [scores] = target.score([1], [single(IDS[at])])
        target.commit(1, [0])
        assert lent.shape == (1, 4096)
        assert near(torch.from_numpy(lent), scores.logits)
        assert target.tokens(0) == target.tokens(1) == IDS[: at + 1]
    assert target.pending(0) == 0


@pytest.mark.parametrize("batch", [32, 256])
def test_decoded_tokens_end_with_the_row_of_a_scored_one(pocket_gguf, batch):
    """Also where they are more than one pass takes."""
    target = LlamaCppTarget(exact(pocket_gguf, batch=batch))
    target.feed(0, LONG[:5])
    lent = target.decode(0, LONG[5:60]).copy()
    target.feed(1, LONG[:59])
    [scores] = target.score([1], [single(LONG[59])])
    assert lent.shape == (1, 4096)
    assert near(torch.from_numpy(lent), scores.logits)
    assert target.tokens(0) == LONG[:60]
    assert target.pending(0) == 0


def test_decoding_that_is_given_up_leaves_the_slot_as_it_was(pocket_gguf):
    target = LlamaCppTarget(exact(pocket_gguf))
    target.feed(0, LONG[:5])
    target.abort_when(lambda: True)
    with pytest.raises(Aborted):
        target.decode(0, LONG[5:60])
    assert target.tokens(0) == LONG[:5]
    target.abort_when(lambda: False)
    assert target.decode(0, LONG[5:60]).shape == (1, 4096)


@pytest.fixture(scope="module")
def alike(pocket_gguf, tmp_path_factory):
    """An engine with a file whose rows round alike in passes of any width."""
    file = quantized(pocket_gguf, tmp_path_factory.mktemp("alike") / "p.gguf", "Q8_0")
    return build(ModelSpec("p", str(file), backend="llama_cpp", context=512, exact=True))


@pytest.mark.parametrize("drafter", ["none", "lookup"])
def test_the_first_token_comes_with_the_prompts_last_pass(alike, drafter):
    """And is the one that a pass of its own gives."""
    held, prompt, tokens = alike, tuple(LONG), list[int]()
    held.submit(GenerationRequest(prompt, 6, drafter=drafter, cold=True))
    first = [event for _, event in held.step()]
    assert [len(event.ids) for event in first] == [1]
    tokens += first[0].ids
    while held.busy:
        *events, (_, last) = held.step() or [(0, None)]
        tokens += [token for _, event in events for token in event.ids]
        tokens += getattr(last, "ids", ())
    assert last.stats.emitted == last.stats.passes + last.stats.accepted == 6
    assert last.stats.prompt_seconds > 0
    assert last.stats.decode_seconds > 0
    [(again, done)] = run_all(held, [GenerationRequest(prompt, 6, drafter=drafter)])
    assert again == tokens
    assert done.stats.cached_tokens == len(prompt) - 1, "one row is left to read"


def test_an_answer_of_one_token_ends_with_the_prompts_last_pass(alike):
    alike.submit(GenerationRequest(tuple(LONG), 1, cold=True))
    [(_, token), (_, done)] = alike.step()
    assert len(token.ids) == 1
    assert done.reason is FinishReason.LENGTH
    assert not alike.busy


def test_a_full_cache_refuses_a_token_and_keeps_the_others(pocket_gguf):
    target = LlamaCppTarget(exact(pocket_gguf, slots=1, context=256))
    cells = target.llama.cells
    target.feed(0, [7] * cells)
    with pytest.raises(CacheFull):
        target.decode(0, [8])
    assert target.length(0) == cells
    target.crop(0, 20)
    assert target.decode(0, [8]).shape == (1, 4096)


def test_the_last_cell_is_used(pocket_gguf):
    target = LlamaCppTarget(exact(pocket_gguf, slots=1, context=256))
    cells = target.llama.cells
    target.feed(0, [7] * (cells - 1))
    assert target.score([0], [single(8)])[0].logits.shape == (1, 4096)
    target.commit(0, [0])
    with pytest.raises(CacheFull):
        target.score([0], [single(8)])


def test_a_full_cache_forgets_an_idle_conversation_first(pocket_gguf):
    target = LlamaCppTarget(exact(pocket_gguf, slots=2, context=256))
    cells = target.llama.cells
    with pytest.raises(CacheFull, match=f"{cells} tokens"):
        target.feed(0, [7] * (cells + 1))
    target.crop(0, 0)
    target.feed(0, [7] * (cells - 100))
    target.feed(1, [8] * 150)
    assert (target.length(0), target.length(1)) == (0, 150)


@pytest.mark.parametrize("count", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_greedy_answers_are_the_torch_targets(pocket_gguf, count):
    text = ChatText.load(POCKET)
    prompts = [text.encode_chat([Message("user", t[0])]) for t in read_prompts(SHIPPED, count)]
    requests = [
        GenerationRequest(p, 16, stop_tokens=text.stop_tokens, drafter="none") for p in prompts
    ]
    torch_engine = build(ModelSpec("p", str(POCKET), slots=1))
    wanted = [ids for ids, _ in run_all(torch_engine, requests)]
    found = [ids for ids, _ in run_all(build(exact(pocket_gguf, slots=1, context=None)), requests)]
    assert found == wanted
    assert any(len(ids) == 16 for ids in wanted)


def test_a_prompt_chunk_ends_soon_after_it_is_cancelled(tmp_path):
    """The prompt takes a second or more: the abort and nothing else can end it."""
    wide = random_gguf(tmp_path / "wide.gguf", hidden=1024, layers=2, context=4096)
    target = LlamaCppTarget(exact(wide, context=4096))
    asked = threading.Event()
    target.abort_when(asked.is_set)
    target.feed(0, [3] * 5)
    stopped = []
    timer = threading.Timer(0.1, lambda: (stopped.append(time.perf_counter()), asked.set()))
    timer.start()
    target.feed(0, [5] * 2048)
    waited = time.perf_counter() - stopped[0]
    timer.join()
    assert target.length(0) == 5
    assert waited < 0.2  # under 0.05 on an idle machine
    asked.clear()
    found = target.score([0], [single(9)])[0].logits
    wanted = target.score([1], [chain([3] * 5 + [9])])[0].logits[-1]
    assert near(found[0], wanted)


def test_a_cancel_in_the_middle_of_a_prompt_ends_it(pocket_gguf):
    engine = build(exact(pocket_gguf))
    number = engine.submit(GenerationRequest(tuple(IDS) * 6, 8, drafter="none"))
    engine.listen = lambda: engine.cancel(number)
    assert engine.step() == []
    assert engine.components.target.length(engine.requests[number].slot) == 0
    [(_, done)] = engine.step()
    assert done.reason is FinishReason.CANCELLED


def test_a_large_vocabulary_and_a_long_context_take_no_logits_for_every_token(tmp_path):
    """Kept logits would be 32,768 x 150,000 x 4 = 20 GB; a pass may have 128 rows of them."""
    vocab, context = 150_000, 32_768
    wide = random_gguf(tmp_path / "wide.gguf", vocab=vocab, context=context)
    process = psutil.Process()
    before = process.memory_info().rss
    spec = replace(exact(wide, slots=1, context=context), kv_type="f16", flash_attention=None)
    target = LlamaCppTarget(spec)
    target.feed(0, [7] * 600)
    [scores] = target.score([0], [chain([7] * 100)])
    assert scores.logits.shape == (100, vocab)
    rows = target.llama.outputs * vocab * 4
    cache = context * 2 * 32 * 2
    copies = 2 * rows + scores.logits.numel() * 4  # computed, given out by llama.cpp, given to us
    used = process.memory_info().rss - before
    assert used < copies + cache + wide.stat().st_size + 150e6


def test_logits_that_are_not_finite_end_the_request(tmp_path):
    broken = random_gguf(tmp_path / "nan.gguf")
    data = bytearray(broken.read_bytes())
    data[-32 * 32 * 4 :] = b"\xff" * (32 * 32 * 4)
    broken.write_bytes(data)
    target = LlamaCppTarget(exact(broken))
    with pytest.raises(NumericalError):
        probabilities(target.score([0], [single(3)])[0].logits, SamplingParams(1.0))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kv_type": "q3"}, "kv_type 'q3'"),
        ({"gpu_layers": 4}, "no GPU support"),
        ({"slots": 126}, "at most 124"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(pocket_gguf, change, says):
    with pytest.raises(ModelUnusable, match=says):
        LlamaCppTarget(exact(pocket_gguf, **change))


def test_a_file_that_is_no_model_is_refused(tmp_path):
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelUnusable, match="cannot be loaded"):
        LlamaCppTarget(exact(junk))


@pytest.mark.parametrize("kind", ["folder", "file", "its own first layers"])
def test_a_draft_of_any_kind_drafts_for_a_gguf_target(pocket_gguf, tmp_path, kind):
    draft = {
        "folder": lambda: BUNDLED / "pocket-draft",
        "file": lambda: exported(BUNDLED / "pocket-draft", tmp_path / "draft.gguf"),
        "its own first layers": lambda: first_layers(pocket_gguf, 4, tmp_path),
    }[kind]()
    backend = "torch" if kind == "folder" else "llama_cpp"
    engine = build(exact(pocket_gguf, draft_folder=str(draft), draft_backend=backend))
    requests = [
        GenerationRequest(tuple(IDS[:12]), 24, drafter=name, length="fixed")
        for name in ("none", "chain", "specexec")
    ]
    (plain, _), *drafted = run_all(engine, requests)
    assert all(ids == plain and done.stats.accepted > 0 for ids, done in drafted)


def test_a_draft_with_another_vocabulary_is_refused_with_the_first_mismatch(pocket_gguf, tmp_path):
    other = random_gguf(tmp_path / "other.gguf", vocab=4096)
    spec = exact(pocket_gguf, draft_folder=str(other), draft_backend="llama_cpp")
    refused = dict(build(spec).facts.refused)
    assert "differs from the model's: token 0 is " in refused["chain"]
    assert "'t0' in the draft model" in refused["specexec"]


# A file of its first layers.


@pytest.mark.parametrize("layers", [1, 4])
def test_the_logits_of_first_layers_are_those_of_the_exit(pocket_gguf, oracle, tmp_path, layers):
    short = LlamaCppTarget(exact(first_layers(pocket_gguf, layers, tmp_path), slots=1))
    found = short.score([0], [chain(IDS[:5])])[0].logits
    oracle.crop(0, 0)
    wanted = torch.cat([oracle.shallow([0], [token], layers)[0] for token in IDS[:5]])
    assert near(found, wanted)


def test_a_file_of_first_layers_is_written_once_and_again_when_the_source_changed(tmp_path):
    source = random_gguf(tmp_path / "a.gguf", layers=3)
    first = first_layers(source, 2, tmp_path / "short")
    written = first.stat().st_mtime_ns
    assert first_layers(source, 2, tmp_path / "short") == first
    assert first.stat().st_mtime_ns == written
    source.write_bytes(source.read_bytes() + bytes(32))
    assert first_layers(source, 2, tmp_path / "short") != first


def test_a_file_of_first_layers_is_the_source_in_all_else(tmp_path):
    source = random_gguf(tmp_path / "a.gguf", layers=3)
    long, short = read_header(source), read_header(first_layers(source, 1, tmp_path))
    assert short.of("block_count") == 1
    assert {**short.metadata, "llama.block_count": 3} == dict(long.metadata)
    kept = [t for t in long.tensors if not t.name.startswith(("blk.1", "blk.2"))]
    assert [(t.name, t.shape, t.type) for t in short.tensors] == [
        (t.name, t.shape, t.type) for t in kept
    ]
    for layers in (0, 3, 9):
        with pytest.raises(ModelUnusable, match="3 layers"):
            first_layers(source, layers, tmp_path)
