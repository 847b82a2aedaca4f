"""Never a token that the plain model would not have produced, also with a large vocabulary.

Filters and sampling have other code paths there: engine/speculation/sampling.py and rng.py.
"""

from collections import Counter
from functools import cache

import numpy as np
import pytest
import torch

from engine.drafters import DRAFTERS
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.rng import SHORT, SeededRandom
from engine.speculation.sampling import filter_batched
from engine.speculation.tree import chain
from tests.engine.enumeration import follows
from tests.engine.tiny import SlowMachine, engine_over, run_all, tiny_target

VOCAB = SHORT + 1000
SPECULATIVE = tuple(name for name in DRAFTERS if name != "none")
KINDS = (
    "chain",
    "sequoia",
    "specexec",
    "suffix",
)  # sampled: a chain, a tree; chosen: a tree, copies
NAMED = 12  # tokens that are counted singly
RUNS, TOGETHER = 500, 20


def wide_target():
    return tiny_target(vocab=VOCAB, sharpness=4.0)


def wide_draft():
    """The target with flatter probabilities."""
    return tiny_target(vocab=VOCAB, sharpness=2.0)


def exact_probs(ids, sampling):
    """The next token's probabilities by definition, over all tokens at once."""
    rows = wide_target().score([0], [chain(list(ids))])[0].logits
    return filter_batched(rows[-1:].double(), sampling)[0].numpy()


@cache
def lively_prompt(sampling):
    """A repeating prompt whose continuation is neither certain nor impossible."""
    random = np.random.default_rng(1)
    while True:
        begin = random.integers(0, VOCAB, 3).tolist()
        likely = int(exact_probs([*begin, 0, *begin], sampling).argmax())
        prompt = (*begin, likely, *begin)
        if 0.2 < exact_probs(prompt, sampling)[likely] < 0.8:
            return prompt


@cache
def joint_law(prompt, sampling):
    """Cells of the first two tokens: the most likely ones by token, -1 for all others."""
    first = exact_probs(prompt, sampling)
    names = np.argsort(-first)[:NAMED].tolist()
    found = {(-1, -1): 1 - first[names].sum()}
    for token in names:
        second = exact_probs((*prompt, token), sampling)
        known = np.argsort(-second)[:NAMED].tolist()
        found |= {(token, then): first[token] * second[then] for then in known}
        found[token, -1] = first[token] * (1 - second[known].sum())
    return {pair: float(share) for pair, share in found.items() if share > 1e-12}


def named(ids, laws):
    if tuple(ids) in laws:
        return tuple(ids)
    return (ids[0], -1) if any(pair[0] == ids[0] for pair in laws) else (-1, -1)


@pytest.mark.parametrize(
    "sampling", [SamplingParams(1.0), SamplingParams(0.8, top_p=0.9), SamplingParams(1.0, top_k=9)]
)
@pytest.mark.parametrize("name", KINDS)
def test_sampled_tokens_follow_the_targets_law(name, sampling):
    prompt = lively_prompt(sampling)
    laws = joint_law(prompt, sampling)
    engine = engine_over(wide_target(), wide_draft(), slots=TOGETHER, cost=SlowMachine())
    request = GenerationRequest(
        prompt, 2, sampling, drafter=name, length="fixed", draft_depth=2, draft_nodes=4
    )
    counts, accepted, refused = Counter(), 0, 0
    for begin in range(0, RUNS, TOGETHER):
        chances = [SeededRandom(seed) for seed in range(begin, begin + TOGETHER)]
        for ids, done in run_all(engine, [request] * TOGETHER, chances=chances):
            counts[named(ids, laws)] += 1
            accepted += done.stats.accepted
            refused += sum(depth.evaluated - depth.accepted for depth in done.stats.depths)
    assert min(accepted, refused) > RUNS / 100  # else the test is vacuous
    assert follows(counts, laws)


def answers(drafter, sampling):
    generator = torch.Generator().manual_seed(3)
    prompts = [tuple(torch.randint(0, VOCAB, (n,), generator=generator).tolist()) for n in (1, 5)]
    prompts.append(lively_prompt(SamplingParams(1.0)))
    engine = engine_over(wide_target(), wide_draft(), cost=SlowMachine())
    requests = [GenerationRequest(p, 30, sampling, drafter=drafter) for p in prompts]
    return [ids for ids, _ in run_all(engine, requests)]


plain_answers = cache(lambda sampling: answers("none", sampling))


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
    assert answers(name, sampling) == plain_answers(sampling)
