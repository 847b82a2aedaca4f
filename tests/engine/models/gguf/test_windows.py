"""The target contract on random files with sliding windows; one long pass over a text is the oracle."""

import random

import pytest

from engine.models.gguf.target import load
from engine.request import ModelSpec
from engine.speculation.tree import chain
from tests.engine.models.gguf.windowed import VOCAB, WINDOW, WITH_WINDOWS, windowed_gguf

SLOTS = 3
TOLERANCE = 2e-3  # of logits that reach 10; another order of summation gives 3e-5
TEXT = random.Random(7).choices(range(2, VOCAB), k=400)


@pytest.fixture(scope="module", params=WITH_WINDOWS)
def file(request, tmp_path_factory):
    return windowed_gguf(tmp_path_factory.mktemp("windows") / "model.gguf", request.param)


def spec(file, **changes):
    given = {"slots": SLOTS, "warm": 3, "threads": 1, "context": 512, "kv_type": "f32"}
    given |= {"exact": False, "flash_attention": False} | changes
    return ModelSpec(file.stem, str(file), backend="llama_cpp", **given)


@pytest.fixture
def target(file):
    return load(spec(file))


@pytest.fixture
def oracle(file):
    """Logits [n, V] of a text, read in one pass."""
    reader = load(spec(file, slots=1))

    def logits(text):
        reader.crop(0, 0)
        return reader.score([0], [chain(text)])[0].logits

    return logits


def near(found, wanted):
    return (found - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize("kept", [3, WINDOW - 1, WINDOW, 100, 200])
def test_a_conversation_that_was_put_away_can_go_back_behind_its_window(target, oracle, kept):
    """Here and in one that takes over its beginning."""
    target.feed(0, TEXT[:250])
    target.swap_out(0)
    target.share(0, 1, kept)
    target.swap_in(0)
    target.crop(0, kept)
    wanted = oracle(TEXT[: target.length(0) + 5])[-5:]
    for slot in (0, 1):
        assert list(target.tokens(slot)) == TEXT[: target.length(0)]
        [scores] = target.score([slot], [chain(TEXT[target.length(slot) :][:5])])
        assert near(scores.logits, wanted)


def test_a_conversation_whose_cells_were_moved_can_go_back_behind_its_window(target, oracle):
    """Cells that another one gave back below it are taken away when there are as many as are used."""
    target.feed(1, TEXT[::-1])
    target.feed(0, TEXT[:300])
    target.crop(1, 0)
    target.feed(0, TEXT[300:310])
    target.crop(0, 120)
    [scores] = target.score([0], [chain(TEXT[target.length(0) :][:5])])
    assert near(scores.logits, oracle(TEXT[: target.length(0) + 5])[-5:])
