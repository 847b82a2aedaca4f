"""The laws of lossless decoding on GGUF files with sliding windows and with experts, behind their windows."""

import pytest

from engine.build import build
from engine.models.gguf.target import load
from engine.request import ModelSpec, SamplingParams
from engine.runtime.profiling import profile
from engine.statistics.pass_cost import PassCost
from tests.engine.models.gguf.families import CONTEXT, KINDS, RUNNING, VOCAB, WINDOWED, family_gguf
from tests.engine.models.gguf.files import random_gguf
from tests.engine.models.walks import asked, drafted_answers, plain_answers, scored
from tests.engine.tiny import run_all

PROMPTS = ((7, 30, 41, 62, 13) * 12, tuple(range(10, 70)) * 2)
SEEDED = SamplingParams(0.7, top_p=0.9, seed=5)
KEPT = [(kind, False) for kind in KINDS if kind not in RUNNING] + [
    (kind, True) for kind in WINDOWED
]
NAMES = [f"{kind}-{'windowed' if windowed else 'full'}" for kind, windowed in KEPT]


@pytest.fixture(scope="module", params=KEPT, ids=NAMES)
def file(request, tmp_path_factory):
    """(file, whether only windows are kept)."""
    kind, windowed = request.param
    return family_gguf(tmp_path_factory.mktemp(kind) / f"{kind}.gguf", kind), windowed


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


@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED])
def test_drafted_answers_are_plains(engine, sampling):
    """Cold, warm, and two at once; 96 tokens, token by token."""
    wanted = plain_answers(engine, sampling, PROMPTS)
    for drafter in ("lookup", "chain", "auto"):
        drafted_answers(engine, drafter, sampling, PROMPTS, wanted)


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
    plain = scored(target, TEXT, PROMPT, drafts=False)
    assert plain == scored(target, TEXT, PROMPT, drafts=True)
    assert plain == scored(target, TEXT, PROMPT, drafts=True, warm=True)
    assert plain == scored(target, TEXT, PROMPT, drafts=True, beside=True)
