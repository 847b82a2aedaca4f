"""A row gets the bits that plain decoding gives it, whatever passes came before and run beside it."""

import random

import pytest
import torch

from engine.interfaces.target import UNLIMITED, Capability
from engine.models.gguf.target import load
from engine.models.hf.load import load as load_hf
from engine.models.own.target import load as load_own
from engine.platform.instructions import multiplies_bfloat16
from engine.request import ModelSpec
from engine.runtime.profiling import profile
from engine.speculation.tree import DraftTree, chain
from engine.statistics.pass_cost import PassCost
from tests.bundled import BUNDLED
from tests.engine.models.gguf.files import exported, quantized, random_gguf

PROMPT, ANSWER = 90, 32
TOKENS = [(37 * i * i + 11 * i) % 4000 + 6 for i in range(PROMPT + ANSWER)]
OTHERS = [(53 * i) % 4000 + 6 for i in range(400)]


def own(dtype, weights="full"):
    return lambda _: load_own(
        ModelSpec("p", str(BUNDLED / "pocket"), dtype=dtype, weights=weights, exact=True)
    )


def hf(dtype):
    spec = ModelSpec("p", str(BUNDLED / "pocket"), dtype=dtype, backend="hf", exact=True)
    return lambda _: load_hf(spec)


def gguf(kind, *, wide=False, **settings):
    """``wide``: a random model whose rows have whole blocks of K-quants, which pocket's have not.

    Two threads for one kind of weights each: floats, blocks of 32, and blocks of 256.
    """

    def made(folder):
        if wide:
            file = random_gguf(
                folder / "f32.gguf", vocab=4100, hidden=512, layers=3, context=1024, head=64
            )
        else:
            file = exported(BUNDLED / "pocket", folder / "f32.gguf")
        if kind != "f32":
            file = quantized(file, folder / f"{kind}.gguf", kind)
        spec = ModelSpec(
            "p", str(file), backend="llama_cpp", slots=3, context=1024, exact=True, **settings
        )
        return load(spec)

    return made


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(own("float32"), id="own-float32"),
        pytest.param(own("bfloat16"), id="own-bfloat16"),
        pytest.param(own("float32", "int8"), id="own-int8"),
        pytest.param(own("bfloat16", "int8"), id="own-int8-bfloat16"),
        pytest.param(hf("bfloat16"), id="transformers-bfloat16"),
        pytest.param(gguf("f32", threads=2), id="gguf-f32"),
        pytest.param(gguf("Q8_0"), id="gguf-q8_0"),
        pytest.param(gguf("Q4_0", kv_type="bf16", threads=2), id="gguf-q4_0-bf16"),
        pytest.param(gguf("Q4_1"), id="gguf-q4_1"),
        pytest.param(gguf("Q4_K_M", wide=True, threads=2), id="gguf-q4_k"),
        pytest.param(gguf("Q5_K_M", wide=True), id="gguf-q5_k"),
        pytest.param(gguf("Q6_K", wide=True), id="gguf-q6_k"),
        pytest.param(gguf("Q3_K_M", wide=True), id="gguf-q3_k"),
        pytest.param(gguf("IQ4_XS", wide=True), id="gguf-iq4_xs"),
    ],
)
def loaded(request, tmp_path_factory):
    """A target as it serves, limited to passes whose rows round alike; how many rows these have."""
    made = request.param(tmp_path_factory.mktemp("bits"))
    rows = profile(made, PassCost())
    if rows < UNLIMITED:
        if not made.limits_rows:
            pytest.skip(
                f"this processor rounds {rows + 1} rows differently, and the engine says so"
            )
        made.limit_rows(rows)
    return made, rows


@pytest.fixture(scope="module")
def target(loaded):
    return loaded[0]


@pytest.fixture(scope="module")
def plain(target):
    """Logits [ANSWER, V] of one row at a time, in an empty cache."""
    target.feed(0, TOKENS[:PROMPT])
    found = []
    for token in TOKENS[PROMPT:]:
        found.append(target.score([0], [chain([token])])[0].logits[0].clone())
        target.commit(0, [0])
    target.crop(0, 0)
    return torch.stack(found)


def narrow(target):
    """Whether its rows are of 16 bits between the layers, which some processors have to widen."""
    weights = getattr(target, "weights", None)
    return weights is not None and weights.computes_in != torch.float32


def around(chance, at):
    """A tree with the next few tokens as one of its paths, refused siblings before and after them."""
    tokens, parents, right = [TOKENS[at]], [-1], [0]
    for token in TOKENS[at + 1 : at + chance.randrange(1, 6)]:
        above = right[-1]
        for child in chance.sample([token, -1, -1], 3)[: 2 + (token % 2)]:
            if child == token:
                right.append(len(tokens))
            tokens.append(child if child == token else chance.randrange(4000))
            parents.append(above if chance.random() < 0.7 or child == token else len(tokens) - 2)
        if right[-1] == above:  # the token was not among the children
            break
    return DraftTree(tuple(tokens), tuple(parents)), right


def answered(target, chance, slot, beside=None):
    """The answer's logits [ANSWER, V] from passes of any shape."""
    found, at = [], PROMPT
    while at < len(TOKENS):
        if chance.random() < 0.5 or Capability.TREE not in target.offers:
            part = TOKENS[at : at + chance.randrange(1, 20)]
            tree, right = chain(part), list(range(len(part)))
        else:
            tree, right = around(chance, at)
        trees = [tree] if beside is None else [chain(OTHERS[:3]), tree]
        scores = target.score([slot] if beside is None else [beside, slot], trees)[-1]
        kept = right[: chance.randrange(1, len(right) + 1)]
        found += [scores.logits[row].clone() for row in kept]
        target.commit(slot, kept)
        if beside is not None:
            target.commit(beside, [0])
        at += len(kept)
    return torch.stack(found)


@pytest.mark.parametrize("seed", range(4))
def test_drafted_rows_are_plains(target, plain, seed):
    chance = random.Random(seed)
    target.crop(1, 0)
    target.feed(1, TOKENS[:PROMPT])
    assert torch.equal(answered(target, chance, 1), plain)


@pytest.mark.parametrize("seed", range(3))
def test_other_conversations_change_nothing(target, plain, seed):
    """Some lie before this one in a shared cache, end below it, and begin again behind it."""
    chance = random.Random(seed)
    target.feed(2, OTHERS[: chance.randrange(20, 300)])
    target.crop(1, 0)
    target.feed(1, TOKENS[:PROMPT])
    target.crop(2, chance.randrange(20))
    assert torch.equal(answered(target, chance, 1, beside=2), plain)
    target.crop(2, 0)
    target.crop(1, PROMPT)
    assert torch.equal(answered(target, chance, 1), plain)


def test_a_shared_prefix_changes_nothing(target, plain):
    target.crop(1, 0)
    target.feed(1, TOKENS[:PROMPT])
    answered(target, random.Random(1), 1)
    target.share(1, 2, PROMPT)
    target.crop(1, 10)
    assert torch.equal(answered(target, random.Random(2), 2), plain)
    target.crop(2, 0)


def test_a_conversation_that_was_swapped_out_goes_on(target, plain):
    if not target.swap_bytes:
        pytest.skip("nothing is swapped out here")
    target.crop(1, 0)
    target.feed(1, TOKENS[:PROMPT])
    target.swap_out(1)
    target.feed(2, OTHERS)
    target.swap_in(1)
    assert torch.equal(answered(target, random.Random(3), 1, beside=2), plain)
    target.crop(2, 0)


@pytest.mark.parametrize("cut", [1, 5, 64, 89])
def test_where_a_prompt_was_cut_changes_nothing(loaded, plain, cut):
    target, rows = loaded
    if rows < UNLIMITED or (narrow(target) and not multiplies_bfloat16()):
        pytest.skip("prompts are read in wide passes, whose rows round differently")
    target.crop(1, 0)
    target.feed(1, TOKENS[:cut])
    target.feed(1, TOKENS[cut:PROMPT])
    assert torch.equal(answered(target, random.Random(cut), 1), plain)


@pytest.mark.parametrize("cut", [0, 5, 88])
def test_the_row_that_ends_a_prompt_is_plains(target, plain, cut):
    if not target.reads_alike:
        pytest.skip("its last token is read in a pass of its own")
    target.crop(1, 0)
    target.feed(1, TOKENS[:cut])
    row = target.decode(1, TOKENS[cut : PROMPT + 1])
    assert torch.equal(torch.from_numpy(row[0].copy()), plain[0])
    target.crop(1, PROMPT)
    assert torch.equal(answered(target, random.Random(cut), 1), plain)
