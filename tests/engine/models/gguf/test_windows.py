"""The target contract on random files with sliding windows; one long pass over a text is the oracle."""

import random

import pytest

from engine.interfaces.target import Capability
from engine.models.gguf.asked import windows_of
from engine.models.gguf.chain_targets import WindowedTarget
from engine.models.gguf.header import read_header
from engine.models.gguf.library import llama_library
from engine.models.gguf.target import load
from engine.request import ModelSpec
from engine.speculation.tree import chain
from tests.engine.models.gguf.families import (
    LAYERS,
    SHARED,
    VOCAB,
    WIDTH,
    WINDOW,
    WINDOWED,
    family_gguf,
)
from tests.engine.models.walks import SLOTS, walk

TOLERANCE = 2e-2  # of logits that reach 10; llama.cpp rounds GELU to float16, so a little may become this much
TEXT = random.Random(7).choices(range(2, VOCAB), k=800)


@pytest.fixture(scope="module", params=WINDOWED)
def file(request, tmp_path_factory):
    return family_gguf(tmp_path_factory.mktemp("windows") / "model.gguf", request.param)


def spec(file, **changes):
    given = {"slots": SLOTS, "warm": 3, "threads": 1, "context": 900, "kv_type": "f32", "batch": 64}
    given |= {"exact": False, "flash_attention": False} | changes
    return ModelSpec(file.stem, str(file), backend="llama_cpp", **given)


@pytest.fixture(params=[False, True], ids=["full", "windowed"])
def target(request, file):
    found = load(spec(file, windowed=request.param))
    assert isinstance(found, WindowedTarget) == request.param
    return found


@pytest.fixture
def oracle(file):
    """Logits [n, V] of the last ``n`` tokens of a text that is read at once."""
    reader = load(spec(file, slots=1, batch=256))

    def logits(text, n):
        reader.crop(0, 0)
        reader.feed(0, text[:-n])
        return reader.score([0], [chain(text[-n:])])[0].logits

    return logits


def near(found, wanted):
    return (found - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize("seed", range(2))
def test_conversations_equal_one_long_pass(target, oracle, seed):
    """Whatever was drafted, refused, cropped, shared and swapped out in between, several at once."""
    walk(target, oracle, near, seed, rounds=10, most=(180, 250))


@pytest.mark.parametrize("kept", [3, WINDOW - 1, WINDOW, 100, 200])
def test_a_conversation_that_was_put_away_can_go_back_behind_its_window(target, oracle, kept):
    """Here and in one that takes over its beginning."""
    target.feed(0, TEXT[:400])
    target.swap_out(0)
    target.share(0, 1, kept)
    target.swap_in(0)
    target.crop(0, kept)
    for slot in (0, 1):
        length = target.length(slot)
        assert length <= kept
        assert list(target.tokens(slot)) == TEXT[:length]
        [scores] = target.score([slot], [chain(TEXT[length : length + 5])])
        assert near(scores.logits, oracle(TEXT[: length + 5], 5))


def test_a_conversation_whose_cells_were_moved_can_go_back_behind_its_window(target, oracle):
    """Cells that another one gave back below it are taken away when there are as many as are used."""
    target.feed(1, TEXT[::-1])
    target.feed(0, TEXT[:300])
    target.crop(1, 0)
    target.feed(0, TEXT[300:310])
    target.crop(0, 120)
    length = target.length(0)
    [scores] = target.score([0], [chain(TEXT[length : length + 5])])
    assert near(scores.logits, oracle(TEXT[: length + 5], 5))


def test_a_draft_of_a_whole_pass_is_taken_back_without_reading_anything_again(target, oracle):
    """Wherever it ends: also where the window is moved for it."""
    at = 0
    while at < 600:
        target.feed(0, TEXT[at : at + 37])
        at += 37
        target.score([0], [chain(TEXT[-40:])])
        target.crop(0, at)
        assert target.length(0) == at
    [scores] = target.score([0], [chain(TEXT[at : at + 5])])
    assert near(scores.logits, oracle(TEXT[: at + 5], 5))


def test_a_window_alone_takes_chains_and_refuses_trees_with_the_reason(file):
    target = load(spec(file, windowed=True))
    assert target.refuses(frozenset()) == ""
    assert "no branches" in target.refuses(frozenset({Capability.TREE}))


def test_the_library_tells_which_layers_have_windows(tmp_path):
    """Numbers of keys and values together: every layer's in one of both caches."""
    each = 2 * SHARED * WIDTH
    wide = {"gemma2": 3, "gemma3": 1, "gpt-oss": 3}
    for kind, layers in wide.items():
        found = windows_of(read_header(family_gguf(tmp_path / f"{kind}.gguf", kind)))
        assert (found.tokens, found.wide) == (WINDOW, layers * each)
        assert found.narrow == (LAYERS - layers) * each
    shared = windows_of(read_header(family_gguf(tmp_path / "gemma4.gguf", "gemma4")))
    assert (shared.wide, shared.narrow) == (2 * each, 3 * each)  # two layers have no cache
    assert windows_of(read_header(family_gguf(tmp_path / "all.gguf", "qwen3moe"))) is None


def test_bytes_of_a_window_are_what_the_library_saves(file):
    target = load(spec(file, windowed=True))
    target.feed(0, TEXT[:300])
    target.feed(0, TEXT[300:310])
    [last] = [one for one in target._slots[0].checkpoints if one.length == 300]
    assert len(last) == pytest.approx(target.llama.shape.state, rel=0.05)


def test_without_windows_in_the_file_the_full_cache_is_taken(tmp_path):
    file = family_gguf(tmp_path / "all.gguf", "qwen3moe")
    assert not isinstance(load(spec(file, windowed=True)), WindowedTarget)


def test_experts_in_ram_answer_as_any(tmp_path):
    """Where there is no GPU all are there; llama.cpp takes the names all the same."""
    file = family_gguf(tmp_path / "experts.gguf", "gpt-oss")
    words = []
    with llama_library().listening(lambda _, text: words.append(text)):
        found, usual = (load(spec(file, cpu_experts=n)) for n in (2, 0))
    assert (
        "".join(words).count("buffer type overridden") == 12
    )  # three maps and biases of two layers
    logits = [one.score([0], [chain(TEXT[:20])])[0].logits for one in (found, usual)]
    assert near(*logits)
