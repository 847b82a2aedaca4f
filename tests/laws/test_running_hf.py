"""The laws of lossless decoding on models of the transformers library that keep a running state."""

import pytest
import torch

from engine.build import build
from engine.models.hf.load import load
from engine.models.hf.running_target import ExactRunningTarget
from engine.request import ModelSpec, SamplingParams
from engine.speculation.tree import chain
from tests.engine.models.checkpoints import HYBRIDS, saved, spec
from tests.engine.models.walks import asked, drafted_answers, plain_answers
from tests.engine.tiny import run_all

PROMPTS = ((7, 30, 41) * 6, tuple(range(10, 30)) * 2)
SEEDED = SamplingParams(0.7, top_p=0.9, seed=5)
SERVED = [("qwen3_5_text", "bfloat16"), ("mamba2", "bfloat16"), ("lfm2", "float32")]


@pytest.fixture(scope="module", params=SERVED, ids="-".join)
def engine(request, tmp_path_factory):
    family, dtype = request.param
    folder = tmp_path_factory.mktemp(family)
    saved(HYBRIDS[family], folder)
    return build(ModelSpec("tiny", str(folder), backend="hf", dtype=dtype, exact=True, slots=2))


@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED], ids=["greedy", "seeded"])
def test_drafted_answers_are_plains(engine, sampling):
    """Cold, warm, and two at once; 96 tokens, token by token."""
    wanted = plain_answers(engine, sampling, PROMPTS)
    drafted, accepted = drafted_answers(engine, "lookup", sampling, PROMPTS, wanted, draft_depth=3)
    assert 0 < accepted < drafted  # or nothing is shown


def test_a_conversation_goes_on_warm_as_it_does_cold(engine):
    prompt = PROMPTS[1]
    for _ in range(2):
        [(ids, _)] = run_all(engine, [asked("lookup", SamplingParams(), prompt, 20)])
        prompt = (*prompt, *ids, 9, 11)
        [(warm, done)] = run_all(engine, [asked("none", SamplingParams(), prompt, 12)])
        assert done.stats.cached_tokens >= len(prompt) - 4
        [(cold, _)] = run_all(engine, [asked("none", SamplingParams(), prompt, 12, cold=True)])
        assert warm == cold


# Bits.


@pytest.fixture(scope="module", params=HYBRIDS)
def exact(request, tmp_path_factory):
    """A target whose rows have plain ones' bits, as it serves."""
    folder = tmp_path_factory.mktemp(request.param)
    saved(HYBRIDS[request.param], folder)
    target = load(spec(folder, dtype="bfloat16", exact=True))
    assert isinstance(target, ExactRunningTarget)
    return target


TEXT = [(37 * i * i + 11 * i) % 57 + 3 for i in range(100)]
PROMPT = 70


def test_a_refused_draft_leaves_no_trace(exact):
    """States, keys, values and logits are plain's, bit for bit: cold and warm, however a prompt was cut."""
    plain = _answered(exact, drafts=False)
    for warm in (False, True):
        assert plain == _answered(exact, drafts=True, warm=warm)
    assert plain == _answered(exact, drafts=True, cut=33)
    exact.crop(1, 0)
    exact.share(0, 1, PROMPT)
    assert exact.length(1) == PROMPT
    assert plain == _answered(exact, drafts=True, warm=True, slot=1)


def _answered(target, *, drafts, warm=False, cut=PROMPT, slot=0, begun=0):
    """Bytes of every row of logits and of the end's cache, of a text of which most is drafted wrongly."""
    target.crop(slot, PROMPT if warm else begun)
    if not warm:
        target.feed(slot, TEXT[begun:cut])
        if cut < PROMPT:
            target.feed(slot, TEXT[cut:PROMPT])
    assert target.length(slot) == PROMPT
    rows, at = [], PROMPT
    while at < len(TEXT):
        kept = min(1 + at % 3, len(TEXT) - at) if drafts else 1
        tokens = TEXT[at : at + kept]
        if drafts:
            tokens = [
                *tokens,
                *[(token + 1) % 57 + 3 for token in TEXT[at - 12 : at - 12 + at % 11]],
            ]
        logits = target.score([slot], [chain(tokens)])[0].logits
        rows += [_bytes(row) for row in logits[:kept]]
        target.commit(slot, range(kept))
        at += kept
    return rows, [_bytes(tensor) for tensor in held(target.cache(slot))]


def held(cache):
    """All tensors of a cache: states, keys and values."""
    for state in cache.states:
        yield from (one for one in (*state.convolved, *state.recurrent) if one is not None)
    for layer in cache.layers:
        if getattr(layer, "keys", None) is not None:
            yield from (layer.keys, layer.values)


def _bytes(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def test_a_perfect_draft_takes_fewer_passes_and_copies_nothing_twice(exact):
    """As many passes as there are drafts, each with one more token than was drafted."""
    exact.crop(0, 0)
    exact.feed(0, TEXT[:PROMPT])
    passes = []
    handle = exact.model.module.register_forward_pre_hook(lambda *_: passes.append(1))
    for at in range(PROMPT, PROMPT + 30, 5):
        exact.score([0], [chain(TEXT[at : at + 5])])
        exact.commit(0, range(5))
    handle.remove()
    assert len(passes) == 6


def test_an_aborted_chunk_leaves_no_trace(exact):
    """A block that was read in part may have to be read again."""
    plain = _answered(exact, drafts=False)
    exact.crop(0, 0)
    exact.feed(0, TEXT[:33])
    asked = []
    exact.abort_when(lambda: asked.append(1) or len(asked) > 2)
    exact.feed(0, TEXT[33:PROMPT])
    exact.abort_when(bool)
    assert exact.length(0) in (0, 33)
    assert exact.pending(0) == 0
    assert plain == _answered(exact, drafts=True, begun=exact.length(0))
