"""The laws of lossless decoding on GGUF files with sliding windows and with experts, behind their windows."""

import pytest

from engine.build import build
from engine.models.gguf.target import load
from engine.request import GenerationRequest, ModelSpec, SamplingParams
from engine.runtime.profiling import profile
from engine.speculation.tree import chain
from engine.statistics.pass_cost import PassCost
from tests.engine.models.gguf.files import random_gguf
from tests.engine.models.gguf.windowed import CONTEXT, KINDS, VOCAB, WITH_WINDOWS, windowed_gguf
from tests.engine.tiny import run_all

TOKENS = 200
PROMPTS = ((7, 30, 41, 62, 13) * 12, tuple(range(10, 70)) * 2)
SEEDED = SamplingParams(0.7, top_p=0.9, seed=5)
KEPT = [(kind, False) for kind in KINDS] + [(kind, True) for kind in WITH_WINDOWS]
NAMES = [f"{kind}-{'windowed' if windowed else 'full'}" for kind, windowed in KEPT]


@pytest.fixture(scope="module", params=KEPT, ids=NAMES)
def file(request, tmp_path_factory):
    """(file, whether only windows are kept)."""
    kind, windowed = request.param
    return windowed_gguf(tmp_path_factory.mktemp(kind) / f"{kind}.gguf", kind), windowed


@pytest.fixture(scope="module")
def engine(file, tmp_path_factory):
    """With a draft model of another family, most of whose drafts are refused."""
    draft = random_gguf(
        tmp_path_factory.mktemp("draft") / "draft.gguf", vocab=VOCAB, context=CONTEXT
    )
    return build(
        ModelSpec(
            "model", str(file[0]), backend="llama_cpp", slots=2, threads=1, context=512, exact=False,
            batch=64, draft_folder=str(draft), draft_backend="llama_cpp", windowed=file[1],
        )
    )  # fmt: skip


def asked(drafter, sampling, prompt, **fields):
    shape = {} if drafter == "auto" else {"length": "fixed", "draft_depth": 6}
    return GenerationRequest(prompt, TOKENS, sampling, drafter=drafter, **shape, **fields)


@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED])
def test_drafted_answers_are_plains(engine, sampling):
    """Cold, warm, and two at once; 200 tokens, token by token."""
    plain = [asked("none", sampling, prompt, cold=True) for prompt in PROMPTS]
    wanted = [run_all(engine, [request])[0][0] for request in plain]
    for drafter in ("lookup", "chain", "auto"):
        for prompt, ids in zip(PROMPTS, wanted, strict=True):
            for cold in (True, False):
                [(found, done)] = run_all(engine, [asked(drafter, sampling, prompt, cold=cold)])
                assert found == ids
                assert cold or done.stats.cached_tokens == len(prompt) - 1
        both = run_all(engine, [asked(drafter, sampling, prompt) for prompt in PROMPTS])
        assert [ids for ids, _ in both] == wanted


def test_drafts_are_made_accepted_and_refused(engine):
    """Or the law above says nothing."""
    counts = []
    for drafter in ("lookup", "chain"):
        for prompt in PROMPTS:
            [(_, done)] = run_all(engine, [asked(drafter, SEEDED, prompt)])
            counts.append((done.stats.drafted, done.stats.accepted))
    assert sum(accepted for _, accepted in counts) > 0
    assert sum(drafted - accepted for drafted, accepted in counts) > 0


def test_windows_alone_draft_chains_and_the_engine_says_why(file, engine):
    assert ("specexec" in dict(engine.facts.refused)) == file[1]
    assert any("chains, never trees" in note for note in engine.facts.notes) == file[1]


TEXT = [(37 * i * i + 11 * i) % 90 + 2 for i in range(520)]
PROMPT = 180


def test_a_refused_draft_leaves_no_trace(file):
    """Logits are plain's, bit for bit, over more than the cells of a window: cold and warm, alone and beside another."""
    spec = ModelSpec(
        "model", str(file[0]), backend="llama_cpp", slots=3, threads=1, context=600, exact=True,
        batch=64, windowed=file[1],
    )  # fmt: skip
    target = load(spec)
    rows = profile(target, PassCost())
    if rows < target.llama.batch:
        target.limit_rows(rows)
    plain = _answered(target, drafts=False)
    assert plain == _answered(target, drafts=True)
    assert plain == _answered(target, drafts=True, warm=True)
    assert plain == _answered(target, drafts=True, beside=True)


def _answered(target, *, drafts, beside=False, warm=False):
    """Bytes of every row of logits of a text of which most is drafted wrongly."""
    if not warm:
        target.crop(0, 0)
        target.feed(0, TEXT[:PROMPT])
    else:
        target.crop(0, PROMPT)
    if (known := target.length(0)) < PROMPT:
        target.feed(0, TEXT[known:PROMPT])
    target.crop(1, 0)
    if beside:
        target.feed(1, TEXT[5:35])
    rows, at = [], PROMPT
    while at < len(TEXT):
        kept = 1 + at % 3 if drafts else 1
        tokens = TEXT[at : at + kept]
        if drafts:
            tokens = [*tokens, *[(token + 1) % 90 for token in TEXT[at : at + at % 5]]]
        slots = [1, 0] if beside else [0]
        trees = [chain(TEXT[at - 9 : at - 9 + len(tokens)]), chain(tokens)][-len(slots) :]
        logits = target.score(slots, trees)[-1].logits
        kept = min(kept, len(TEXT) - at)
        rows += [row.numpy().tobytes() for row in logits[:kept]]
        target.commit(0, range(kept))
        if beside:
            target.commit(1, range(1))
        at += kept
    return rows
