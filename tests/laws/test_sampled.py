"""Sampled tokens have the target's distribution through the whole engine, also of a large vocabulary.

Filters and sampling have other code paths there: engine/speculation/sampling.py and rng.py.
"""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch

from engine.drafters import DRAFTERS
from engine.request import GenerationRequest, SamplingParams
from engine.runtime.registry import drafter_class
from engine.speculation.rng import SHORT, SeededRandom
from engine.speculation.sampling import filter_batched
from engine.speculation.tree import chain
from tests.engine.enumeration import follows
from tests.engine.tiny import SlowMachine, engine_over, run_all, tiny_target

WIDE = SHORT + 1000
SPECULATIVE = tuple(name for name in DRAFTERS if name != "none")
TOGETHER = 20  # answers in one pass, each with randomness of its own
NAMED = 12  # tokens that are counted singly
MODELS = {  # size -> (target, draft model, tokens of an answer, answers); an exit needs two layers
    "small": (
        lambda: tiny_target(vocab=8, layers=2, sharpness=1.0),
        lambda: tiny_target(4, vocab=8, layers=1, sharpness=1.0),
        3, 2500,
    ),
    "wide": (  # the draft model is the target with flatter probabilities
        lambda: tiny_target(vocab=WIDE, layers=2, sharpness=4.0),
        lambda: tiny_target(vocab=WIDE, layers=2, sharpness=2.0),
        2, 500,
    ),
}  # fmt: skip
CASES = [
    *(
        (name, "small", sampling)
        for name in SPECULATIVE
        if not drafter_class(name).needs_grammar
        for sampling in (
            SamplingParams(0.3), SamplingParams(1.0), SamplingParams(1.5, top_p=0.9),
            SamplingParams(1.0, top_k=3),
        )
    ),
    *(
        (name, "wide", sampling)
        # sampled: a chain, a tree; chosen: a tree, copies
        for name in ("chain", "sequoia", "specexec", "suffix")
        for sampling in (
            SamplingParams(1.0), SamplingParams(0.8, top_p=0.9), SamplingParams(1.0, top_k=9)
        )
    ),
]  # fmt: skip


@cache
def reference(size):
    return MODELS[size][0]()


def exact_probs(size, ids, sampling):
    """The next token's probabilities by definition, over all tokens at once."""
    reference(size).crop(0, 0)
    rows = reference(size).score([0], [chain(list(ids))])[0].logits
    return filter_batched(rows[-1:].double(), sampling)[0].numpy()


@cache
def lively_prompt(size, sampling):
    """A repeating prompt whose looked-up continuation is neither certain nor impossible."""
    random = np.random.default_rng(1)
    while True:
        begin = random.integers(0, reference(size).vocab, 3).tolist()
        likely = int(exact_probs(size, [*begin, 0, *begin], sampling).argmax())
        prompt = (*begin, likely, *begin)
        if 0.3 < exact_probs(size, prompt, sampling)[likely] < 0.7:
            return prompt


@cache
def joint_law(size, prompt, sampling, length):
    """Cells of the first tokens: the most likely ones by token, -1 for all others and what follows."""
    if length == 0:
        return {(): 1.0}
    probs = exact_probs(size, prompt, sampling)
    names = [token for token in np.argsort(-probs)[:NAMED].tolist() if probs[token] > 0]
    found = {(-1,): float(1 - probs[names].sum())}
    for token in names:
        after = joint_law(size, (*prompt, token), sampling, length - 1)
        found |= {(token, *rest): float(probs[token]) * share for rest, share in after.items()}
    return {cell: share for cell, share in found.items() if share > 1e-12}


def cell_of(ids, laws):
    cells = (tuple(ids), *((*ids[:at], -1) for at in reversed(range(len(ids)))))
    return next((cell for cell in cells if cell in laws), tuple(ids))


@pytest.mark.parametrize(("name", "size", "sampling"), CASES)
def test_sampled_tokens_follow_the_targets_law(name, size, sampling):
    target, draft, length, runs = MODELS[size]
    prompt = lively_prompt(size, sampling)
    laws = joint_law(size, prompt, sampling, length)
    engine = engine_over(target(), draft(), slots=TOGETHER, cost=SlowMachine())  # or auto is plain
    request = GenerationRequest(
        prompt, length, sampling, drafter=name, length="fixed", draft_depth=2, draft_nodes=4
    )
    counts, accepted, refused = Counter(), 0, 0
    for begin in range(0, runs, TOGETHER):
        chances = [SeededRandom(seed) for seed in range(begin, begin + TOGETHER)]
        for ids, done in run_all(engine, [request] * TOGETHER, chances=chances):
            counts[cell_of(ids, laws)] += 1
            accepted += done.stats.accepted
            refused += sum(depth.evaluated - depth.accepted for depth in done.stats.depths)
    assert min(accepted, refused) > runs / 100  # else the test is vacuous
    assert follows(counts, laws)


@cache
def answers(drafter, sampling):
    generator = torch.Generator().manual_seed(3)
    prompts = [tuple(torch.randint(0, WIDE, (n,), generator=generator).tolist()) for n in (1, 5)]
    prompts.append(lively_prompt("wide", SamplingParams(1.0)))
    engine = engine_over(*(make() for make in MODELS["wide"][:2]), cost=SlowMachine())
    requests = [GenerationRequest(p, 30, sampling, drafter=drafter) for p in prompts]
    return [ids for ids, _ in run_all(engine, requests)]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingParams(1.0, seed=5),
        SamplingParams(1.5, top_p=0.9, seed=6),
        SamplingParams(0.8, top_k=20, top_p=0.95, min_p=0.01, seed=7),
    ],
)
@pytest.mark.parametrize("name", SPECULATIVE)
def test_a_seeded_request_equals_plain_token_by_token(name, sampling):
    assert answers(name, sampling) == answers("none", sampling)
