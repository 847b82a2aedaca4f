"""The laws of lossless decoding on GGUF files whose layers keep a running state."""

import re

import pytest
import torch

from engine.build import build
from engine.models.gguf.library import compiled_parts, llama_library
from engine.models.gguf.target import load
from engine.platform.toolchain import OWN_KERNELS
from engine.request import GenerationRequest, ModelSpec, SamplingParams
from engine.runtime.profiling import profile
from engine.runtime.rounding import RowComparison
from engine.speculation.tree import chain
from engine.statistics.pass_cost import PassCost
from tests.engine.models.gguf.families import CONTEXT, RUNNING, VOCAB, family_gguf
from tests.engine.models.gguf.files import quantized, random_gguf
from tests.engine.models.walks import asked, drafted_answers, plain_answers, scored
from tests.engine.tiny import run_all

DRAFTERS = ("lookup", "suffix", "chain", "auto")
PROMPTS = ((7, 30, 41) * 8, tuple(range(10, 40)) * 2)
WIDTHS = (2, 3, 5, 8, 16, 33, 64, 128)
SEEDED = SamplingParams(0.7, top_p=0.9, seed=5)


@pytest.fixture(scope="module", params=RUNNING)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def engine(kind, tmp_path_factory):
    """With a draft model of another family, most of whose drafts are refused."""
    folder = tmp_path_factory.mktemp(kind)
    file = family_gguf(folder / f"{kind}.gguf", kind)
    draft = random_gguf(folder / "draft.gguf", vocab=VOCAB, context=CONTEXT)
    return build(
        ModelSpec(
            kind, str(file), backend="llama_cpp", slots=2, threads=1, context=512, exact=False,
            draft_folder=str(draft), draft_backend="llama_cpp",
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain(engine):
    """(sampling) -> the plain answers, each alone and cold."""
    known = {}

    def answers(sampling):
        if sampling not in known:
            known[sampling] = plain_answers(engine, sampling, PROMPTS)
        return known[sampling]

    return answers


@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_drafted_answers_are_plains(engine, plain, drafter, sampling):
    """Cold, warm, and two at once; 96 tokens, token by token."""
    drafted_answers(engine, drafter, sampling, PROMPTS, plain(sampling))


def test_drafts_are_made_accepted_and_refused(engine):
    """Or the law above says nothing."""
    counts = []
    for drafter in ("lookup", "chain"):
        [(_, done)] = run_all(engine, [asked(drafter, SamplingParams(), PROMPTS[1])])
        counts.append((done.stats.drafted, done.stats.accepted))
    assert sum(accepted for _, accepted in counts) > 0
    assert sum(drafted - accepted for drafted, accepted in counts) > 0


def test_a_conversation_goes_on_warm_as_it_does_cold(engine):
    prompt, answers = PROMPTS[1], []
    for _ in range(3):
        [(ids, _)] = run_all(engine, [GenerationRequest(prompt, 20, drafter="lookup")])
        answers.append(ids)
        prompt = (*prompt, *ids, 9, 11)
        [(warm, done)] = run_all(engine, [GenerationRequest(prompt, 20, drafter="none")])
        assert done.stats.cached_tokens >= len(prompt) - 4
        [(cold, _)] = run_all(engine, [GenerationRequest(prompt, 20, drafter="none", cold=True)])
        assert warm == cold


def test_trees_are_refused_and_the_engine_says_why(engine):
    assert "no branches" in dict(engine.facts.refused)["specexec"]
    assert any("chains, never trees" in note for note in engine.facts.notes)


# Bits.


def weights(folder, kind, bits):
    """A file of this architecture as people download them, or as it was written."""
    file = family_gguf(folder / f"{kind}.gguf", kind)
    return file if bits == "F32" else quantized(file, folder / f"{bits}.gguf", bits)


@pytest.fixture(scope="module", params=["F32", "Q8_0"])
def measured(kind, request, tmp_path_factory):
    """A target limited to passes whose rows round alike, as it serves; and how many these have."""
    file = weights(tmp_path_factory.mktemp(kind), kind, request.param)
    target = load(
        ModelSpec(kind, str(file), backend="llama_cpp", slots=3, threads=1, context=512, exact=True)
    )
    rows = profile(target, PassCost())
    if rows < target.llama.batch:
        target.limit_rows(rows)
    return target, rows


@pytest.fixture(scope="module")
def exact(measured):
    return measured[0]


def has_our_kernels(parts, bits, kind):
    """Whether set-up compiled llama.cpp here; RWKV's small maps stay of 32 bits in every file."""
    floats = bits in ("F32", "F16", "BF16") or kind == "rwkv7"
    mark = re.search(rb'"(slipstream: one row of float[^"]*)"', OWN_KERNELS[0].read_bytes())
    found = b"slipstream: one row of K-quants" if not floats else mark[1]
    return any(found in part for part in parts)


@pytest.mark.parametrize("bits", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_rows_of_every_width_round_as_one_does(kind, bits, library_parts, tmp_path):
    """So that drafts are verified in wide passes, and the answers stay plain's."""
    if not has_our_kernels(library_parts, bits, kind):
        pytest.skip("this llama.cpp was not compiled by set-up, or by an older one")
    file = weights(tmp_path, kind, bits)
    target = load(
        ModelSpec(kind, str(file), backend="llama_cpp", slots=1, threads=1, context=512, exact=True)
    )
    with RowComparison(target) as comparison:
        assert [rows for rows in WIDTHS if not comparison.equal(rows)] == []


@pytest.fixture(scope="module")
def library_parts():
    llama_library()
    return list(compiled_parts())


@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED])
def test_exact_answers_are_drafted_for_and_are_plains(kind, sampling, library_parts, tmp_path):
    """Where ``exact`` is on, as it is by default."""
    if not has_our_kernels(library_parts, "Q8_0", kind):
        pytest.skip("this llama.cpp was not compiled by set-up, or by an older one")
    engine = build(
        ModelSpec(
            kind, str(weights(tmp_path, kind, "Q8_0")), backend="llama_cpp", slots=2, threads=1,
            context=512, exact=True,
        )
    )  # fmt: skip
    drafted = 0
    for prompt in PROMPTS:
        [(wanted, _)] = run_all(engine, [asked("none", sampling, prompt, cold=True)])
        for drafter in ("lookup", "auto"):
            [(found, done)] = run_all(engine, [asked(drafter, sampling, prompt)])
            assert found == wanted
            drafted += done.stats.drafted
    assert drafted > 0


TEXT = [(37 * i * i + 11 * i) % 90 + 2 for i in range(130)]
PROMPT = 70


def test_a_refused_draft_leaves_no_trace(exact):
    """State and logits are plain's, bit for bit: cold and warm, alone and beside another."""
    plain = _answered(exact, drafts=False)
    assert plain == _answered(exact, drafts=False, beside=True)
    for beside in (False, True):
        for warm in (False, True):
            assert plain == _answered(exact, drafts=True, beside=beside, warm=warm)


def _answered(target, *, drafts, beside=False, warm=False):
    """(bytes of every row of logits, bytes of the state at the end) after it."""
    rows = scored(target, TEXT, PROMPT, drafts=drafts, beside=beside, warm=warm)
    rows.append(target.decode(0, [3]).tobytes())  # also reads again what was accepted
    target.swap_out(0)
    state = target._slots[0].swapped.data.tobytes()
    target.swap_in(0)
    return rows, state


def test_passes_of_several_rows_round_alike_where_the_engine_says_so(exact):
    """What a checkpoint brings back is what it saved."""
    exact.crop(0, 0)
    exact.feed(0, TEXT[:PROMPT])
    first = exact.score([0], [chain(TEXT[PROMPT : PROMPT + 5])])[0].logits
    exact.commit(0, range(5))
    exact.crop(0, PROMPT)
    again = exact.score([0], [chain(TEXT[PROMPT : PROMPT + 5])])[0].logits
    assert torch.equal(first, again)
