"""The target contract on random files with running states; one long pass over a text is the oracle."""

import random
import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from app.placement.plans import forms
from engine.build import build
from engine.errors import ModelUnusable
from engine.interfaces.target import Capability
from engine.models.gguf.consistency import check_consistent
from engine.models.gguf.context import BatchRow
from engine.models.gguf.header import read_parts
from engine.models.gguf.library import llama_library
from engine.models.gguf.state_shape import CHECKPOINTS
from engine.models.gguf.target import LlamaCppTarget, load
from engine.request import FinishReason, GenerationRequest, ModelSpec
from engine.speculation.tree import chain, single
from tests.engine.models.gguf.families import ROLL_BACK, RUNNING, VOCAB, family_gguf, qwen35
from tests.engine.models.gguf.files import random_gguf
from tests.engine.models.walks import SLOTS, walk
from tests.engine.tiny import run_all

TOLERANCE = 2e-3  # of logits that reach 10; another order of summation gives 3e-5
TEXT = random.Random(7).choices(range(2, VOCAB), k=600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recurrent")


@pytest.fixture(scope="module", params=RUNNING)
def file(request, folder):
    return family_gguf(folder / f"{request.param}.gguf", request.param)


def spec(file, **changes):
    given = {"slots": SLOTS, "warm": 3, "threads": 1, "context": 512, "kv_type": "f32"}
    given |= {"exact": False, "flash_attention": False} | changes
    return ModelSpec(file.stem, str(file), backend="llama_cpp", **given)


@pytest.fixture
def target(file):
    return load(spec(file))


@pytest.fixture
def oracle(file):
    """Logits [n, V] of the last ``n`` tokens of a text that is read in one pass; 0: of all."""
    reader = load(spec(file, slots=1))

    def logits(text, n=0):
        reader.crop(0, 0)
        return reader.score([0], [chain(text)])[0].logits[-n:]

    return logits


def near(found, wanted):
    return (found - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize("seed", range(3))
def test_conversations_equal_one_long_pass(target, oracle, seed):
    """Whatever was drafted, refused, cropped, shared and swapped out in between, several at once."""
    walk(target, oracle, near, seed)


def test_plain_decoding_equals_one_long_pass(target, oracle):
    target.feed(0, TEXT[:30])
    wanted = oracle(TEXT[:60])
    for at in range(30, 60):
        row = torch.from_numpy(target.decode(0, TEXT[at : at + 1]).copy())
        assert near(row[0], wanted[at])
    assert list(target.tokens(0)) == TEXT[:60]


def test_drafts_are_chains_and_trees_are_refused_with_the_reason(target):
    assert target.refuses(frozenset()) == ""
    assert "no branches" in target.refuses(frozenset({Capability.TREE}))
    with pytest.raises(AssertionError, match="no branches"):
        target.score([0], [_fork()])


def _fork():
    from engine.speculation.tree import DraftTree

    return DraftTree((5, 6, 7), (-1, 0, 0))


def test_the_library_says_which_states_can_go_back(file, target):
    assert bool(target.llama.rollback) == (file.stem in ROLL_BACK)


def test_a_draft_longer_than_what_can_be_taken_back_is_taken_back_all_the_same(target, oracle):
    target.feed(0, TEXT[:30])
    target.score([0], [chain([TEXT[30], *[9] * 40])])
    target.commit(0, range(1))
    [scores] = target.score([0], [chain(TEXT[31:35])])
    assert near(scores.logits, oracle(TEXT[:35])[-4:])


def test_an_answer_is_asked_for_again_from_the_checkpoint_behind_its_prompt(target):
    target.feed(0, TEXT[:300])
    for at in range(300, 420):
        target.decode(0, TEXT[at : at + 1])
    target.crop(0, 300)
    assert target.length(0) == 300
    target.crop(0, 299)
    assert target.length(0) in (256, 299)
    target.crop(0, 100)
    assert target.length(0) in (0, 100)


def test_what_was_read_of_a_prompt_is_shared_while_it_is_answered(target, oracle):
    """Up to a checkpoint: every chunk begins with one."""
    target.feed(0, TEXT[:128])
    target.feed(0, TEXT[128:200])
    target.decode(0, TEXT[200:201])
    target.share(0, 1, 200)
    assert target.length(1) == 200
    target.share(0, 2, 150)
    assert target.length(2) == 128
    target.share(0, 1, 150)
    assert target.length(1) == 200, "it has as much already"
    for slot, length in ((1, 200), (2, 128)):
        found = target.score([slot], [chain(TEXT[length : length + 5])])[0].logits
        assert near(found, oracle(TEXT[: length + 5])[-5:])


def test_more_conversations_are_kept_than_have_a_sequence(target, oracle):
    """They change places without being asked; none loses anything."""
    for slot in range(6):
        target.feed(slot, TEXT[10 * slot : 10 * slot + 50])
    for slot in (0, 5, 1, 3):
        assert target.length(slot) == 50
        [scores] = target.score([slot], [single(3)])
        assert near(scores.logits[0], oracle([*TEXT[10 * slot : 10 * slot + 50], 3])[-1])
        target.commit(slot, [0])
    assert len(target.swapped) == 3


def test_a_prompt_that_is_given_up_leaves_the_conversation_as_it_was(folder):
    wide = family_gguf(folder / "wide.gguf", "mamba2")
    target = load(spec(wide, context=1024))
    target.feed(0, TEXT[:40])
    wanted = target.score([0], [chain(TEXT[40:44])])[0].logits
    asked = threading.Event()
    target.abort_when(asked.is_set)
    asked.set()
    target.feed(0, TEXT[40:340])
    assert list(target.tokens(0)) == TEXT[:40]
    asked.clear()
    assert near(target.score([0], [chain(TEXT[40:44])])[0].logits, wanted)


def test_a_cancel_in_the_middle_of_a_prompt_ends_it(file):
    engine = build(spec(file))
    number = engine.submit(GenerationRequest(tuple(TEXT[:200]), 8, drafter="none"))
    engine.listen = lambda: engine.cancel(number)
    started = time.perf_counter()
    while engine.busy:
        events = engine.step()
    assert events[-1][1].reason is FinishReason.CANCELLED
    assert time.perf_counter() - started < 5
    engine.listen = bool
    [(ids, _)] = run_all(engine, [GenerationRequest(tuple(TEXT[:200]), 8, drafter="none")])
    assert len(ids) == 8


def test_what_is_shared_after_a_refused_draft_is_what_was_kept(target, oracle):
    """Crop and copy in one step: the copy must take the crop along."""
    target.feed(0, TEXT[:30])
    target.score([0], [chain([*TEXT[30:32], 9, 9, 9, 9])])
    target.commit(0, range(2))
    target.share(0, 1, 32)
    length = target.length(1)
    assert length == (32 if target.llama.rollback else 30)  # its last checkpoint
    [scores] = target.score([1], [chain(TEXT[length:36])])
    assert near(scores.logits, oracle(TEXT[:36])[length - 36 :])


@pytest.mark.parametrize("kind", sorted(ROLL_BACK))
def test_it_still_applies_llama_cpp_copies_a_state_without_its_crop(folder, kind):
    """Of two drafts in two sequences the second wins: copied first and cropped then it is right.

    The other way round llama.cpp reports no error, and goes on behind the refused rows.
    """
    file = family_gguf(folder / f"{kind}-copied.gguf", kind)
    plain = _after_the_better_of_two_drafts(file, [])
    copied_first = _after_the_better_of_two_drafts(file, ["copy", "crop"])
    cropped_first = _after_the_better_of_two_drafts(file, ["crop", "copy"])
    assert np.abs(copied_first - plain).max() < TOLERANCE
    assert np.abs(cropped_first - plain).max() > 10 * TOLERANCE


def _after_the_better_of_two_drafts(file, order):
    """Logits [1, V] of a token after 30 and two drafted ones, from sequence 0."""
    llama = load(spec(file)).llama
    api = llama._api
    memory = api.llama_get_memory(llama._context)

    def read(tokens, start, sequence):
        rows = [BatchRow(token, at, (sequence,)) for at, token in enumerate(tokens, start)]
        llama.decode(rows)

    read(TEXT[:30], 0, 0)
    if not order:
        read(TEXT[30:32], 30, 0)
    else:
        api.llama_memory_seq_cp(memory, 0, 1, -1, -1)
        read([9, 8, 7, 6, 5], 30, 0)
        read([*TEXT[30:32], 9, 9, 9], 30, 1)
        for step in order:
            if step == "copy":
                api.llama_memory_seq_cp(memory, 1, 0, -1, -1)
            else:
                assert llama.cache.take_back(0 if order[0] == "copy" else 1, 32)
    return llama.decode_one(TEXT[32], 32, 0).copy()


# Memory.


def test_the_header_tells_what_llama_cpp_takes(file):
    """By its own log: the cache of attention, and the states with those of the last rows."""
    (predicted,) = forms("m", file, "llama_cpp")
    logged: list[str] = []
    with llama_library().listening(lambda _, words: logged.append(words)):
        target = load(spec(file, kv_type="f16"))
    found = re.findall(r"(KV|RS) buffer size = +([0-9.]+) MiB", "".join(logged))
    taken = sum(float(size) * 2**20 for _, size in found)
    shape = target.llama.shape
    assert predicted.aside == (1 + CHECKPOINTS) * shape.state
    assert taken == pytest.approx(predicted.cache(512, 0, SLOTS), rel=0.05, abs=0.02 * 2**20)


def test_a_pass_takes_of_each_conversation_what_the_plan_says(folder):
    """One layer's state behind each of the last rows, of all conversations at once."""
    wide = family_gguf(folder / "states.gguf", "qwen35", made=qwen35(states=128))
    (predicted,) = forms("m", wide, "llama_cpp")
    taken = {slots: _pass_buffers(wide, slots) for slots in (1, 4)}
    more = predicted.working(512, 0, 4) - predicted.working(512, 0, 1)
    assert taken[4] - taken[1] == pytest.approx(more, rel=0.05)
    assert taken[4] == pytest.approx(predicted.working(512, 0, 4), rel=0.1, abs=2 * 2**20)


def _pass_buffers(file, slots):
    """Bytes, by llama.cpp's own log."""
    logged: list[str] = []
    with llama_library().listening(lambda _, words: logged.append(words)):
        load(spec(file, slots=slots, flash_attention=True))
    found = re.findall(r"compute buffer size = +([0-9.]+) MiB", "".join(logged))
    return sum(float(size) * 2**20 for size in found)


def test_a_checkpoint_takes_what_the_header_says(target):
    target.feed(0, TEXT[:10])
    target.decode(0, [5])
    held = target.llama.cache.save(0, 11, whole=False)
    assert len(held) == pytest.approx(target.llama.shape.state, rel=0.05, abs=600)
    assert target.swap_fixed == (1 + CHECKPOINTS) * target.llama.shape.state


def test_a_file_without_a_running_state_is_loaded_as_before(pocket_gguf):
    assert isinstance(load(spec(pocket_gguf)), LlamaCppTarget)


# Files that are wrong.


@pytest.mark.parametrize(
    ("kind", "without"),
    [
        ("qwen35", "blk.1.ssm_conv1d.weight"), ("lfm2", "blk.0.shortconv.conv.weight"),
        ("mamba2", "blk.2.ssm_in.weight"), ("rwkv7", "blk.1.time_mix_w1.weight"),
        ("granitehybrid", "blk.2.attn_k.weight"),
    ],
)  # fmt: skip
def test_a_missing_tensor_is_named(folder, kind, without):
    broken = family_gguf(folder / f"{kind}-without.gguf", kind, without)
    with pytest.raises(ModelUnusable, match=re.escape(without)):
        load(spec(broken))


@pytest.mark.parametrize(
    ("kind", "key", "value", "says"),
    [
        *((kind, key, 0, f"{key} is 0") for kind, key in (
            ("qwen35", "full_attention_interval"), ("qwen35", "ssm.group_count"), ("lfm2", "shortconv.l_cache"),
            ("mamba2", "ssm.time_step_rank"), ("rwkv7", "wkv.head_size"),
        )),
        ("qwen35", "ssm.group_count", 3, "no multiple of ssm.group_count, 3"),
        ("mamba2", "ssm.time_step_rank", 5, "no multiple of ssm.time_step_rank, 5"),
        ("rwkv7", "wkv.head_size", 48, "no multiple of wkv.head_size, 48"),
        # its kernel takes 64 numbers at once, whatever the size of a head: all logits are NaN
        ("rwkv7", "wkv.head_size", 32, "only multiples of 64"),
    ],
)  # fmt: skip
def test_numbers_that_llama_cpp_does_not_survive_or_computes_wrongly_are_found(
    folder, kind, key, value, says
):
    broken = family_gguf(folder / f"{kind}-{key}-{value}.gguf", kind, **{key: value})
    with pytest.raises(ModelUnusable, match=re.escape(says)):
        check_consistent(read_parts(broken))


@pytest.mark.parametrize("words", [VOCAB - 1, VOCAB + 5])
def test_a_vocabulary_that_does_not_fit_is_refused(file, folder, words):
    check_consistent(read_parts(file))
    broken = family_gguf(folder / f"{file.stem}-{words}.gguf", file.stem, words=words)
    with pytest.raises(ModelUnusable, match=f"token_embd.weight has shape .*{words}"):
        check_consistent(read_parts(broken))


def test_a_draft_model_with_another_vocabulary_is_left_out_and_said(file, folder):
    draft = random_gguf(folder / "draft.gguf", vocab=VOCAB + 32)
    engine = build(spec(file, draft_folder=str(draft), draft_backend="llama_cpp"))
    [(ids, _)] = run_all(engine, [GenerationRequest(tuple(TEXT[:20]), 8)])
    assert len(ids) == 8
    assert "the draft model" in dict(engine.facts.refused)["chain"]


@pytest.mark.parametrize("weight", ["output.weight", "token_embd.weight"])
def test_weights_that_are_no_numbers_are_told_at_load(file, folder, weight):
    broken = family_gguf(folder / f"{file.stem}-nan.gguf", file.stem, spoiled=weight)
    with pytest.raises(ModelUnusable, match="give logits that are not finite"):
        build(spec(broken))


def test_a_wrong_interval_is_refused(folder):
    broken = family_gguf(folder / "interval.gguf", "qwen35", full_attention_interval=3)
    check_consistent(read_parts(broken))
    with pytest.raises(ModelUnusable, match="cannot be loaded"):
        load(spec(broken))


def test_without_states_of_earlier_rows_drafts_go_back_to_a_checkpoint(
    folder, oracle, file, monkeypatch
):
    """As where a later llama.cpp cannot keep them any more."""
    monkeypatch.setattr("engine.models.gguf.state_shape.MOST_ROLLBACK", 0)
    target = load(spec(file))
    assert target.llama.rollback == 0
    target.feed(0, TEXT[:30])
    for at in range(30, 60, 2):
        target.score([0], [chain([*TEXT[at : at + 2], 9, 9, 9])])
        target.commit(0, range(2))
    [scores] = target.score([0], [chain(TEXT[60:64])])
    assert near(scores.logits, oracle(TEXT[:64])[-4:])
