"""Where passes of many rows round unlike passes of one, near ties are plain decoding's all the same."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.request import FinishReason, GenerationRequest, Penalties, SamplingParams
from tests.engine.rounding import NOISE, Rounding
from tests.engine.tiny import SlowMachine, Words, engine_over, run_all, tiny_target
from tests.laws.by_hand import PAIRS, WORDS

SPECULATIVE = tuple(name for name in DRAFTERS if name != "none")
PENALTIES = Penalties(presence=0.4, frequency=0.3, bias=((2, 0.7),))
SAMPLINGS = {
    "greedy": SamplingParams(),
    "with penalties": SamplingParams(penalties=PENALTIES),
    "seeded": SamplingParams(0.8, seed=5),
    "filtered": SamplingParams(0.9, top_k=6, top_p=0.9, seed=6),
    "least": SamplingParams(1.2, min_p=0.1, seed=7, penalties=PENALTIES),
}


def requests(drafter, sampling, **fields):
    generator = torch.Generator().manual_seed(11)
    prompts = [torch.randint(0, 13, (n,), generator=generator).tolist() for n in (2, 9, 30)]
    return [
        GenerationRequest(
            tuple(prompt), 24, sampling, frozenset({0}), drafter=drafter, length="fixed", **fields
        )
        for prompt in prompts
    ]


@cache
def plain(kind, grammar=None):
    asked = [replace(one, grammar=grammar) for one in requests("none", SAMPLINGS[kind])]
    engine = engine_over(tiny_target(kind=Rounding), speller=Words(WORDS))
    return [run_all(engine, [one])[0][0] for one in asked]  # each alone in its passes


@cache
def drafted(name, kind, margin, *, together, grammar=None):
    engine = engine_over(
        tiny_target(kind=Rounding), tiny_target(1), cost=SlowMachine(), speller=Words(WORDS),
        margin=margin,
    )  # fmt: skip
    asked = requests(name, SAMPLINGS[kind], draft_nodes=12, grammar=grammar)
    if together:
        return run_all(engine, asked)
    return [run_all(engine, [one])[0] for one in asked]


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("kind", SAMPLINGS)
@pytest.mark.parametrize("name", SPECULATIVE)
def test_within_the_margin_every_drafter_equals_plain(name, kind, together):
    found = drafted(name, kind, NOISE, together=together)
    assert [ids for ids, _ in found] == plain(kind)


@pytest.mark.parametrize("kind", ["greedy", "seeded"])
@pytest.mark.parametrize("name", SPECULATIVE)
def test_with_a_grammar_too(name, kind):
    found = drafted(name, kind, NOISE, together=True, grammar=PAIRS)
    assert [ids for ids, _ in found] == plain(kind, PAIRS)


@pytest.mark.parametrize("kind", SAMPLINGS)
def test_near_ties_are_counted_and_without_a_margin_they_part(kind):
    found = [drafted(name, kind, NOISE, together=True) for name in SPECULATIVE]
    again = sum(done.stats.near_ties for answers in found for _, done in answers)
    assert 0 < again < sum(done.stats.emitted for answers in found for _, done in answers)
    unsafe = [drafted(name, kind, 0.0, together=True) for name in SPECULATIVE]
    assert any([ids for ids, _ in answers] != plain(kind) for answers in unsafe)
    assert not any(done.stats.near_ties for answers in unsafe for _, done in answers)


def test_plain_decoding_alone_has_no_near_ties():
    engine = engine_over(tiny_target(kind=Rounding), margin=NOISE)
    [(ids, done)] = run_all(engine, requests("none", SAMPLINGS["greedy"])[:1])
    assert ids == plain("greedy")[0]
    assert done.stats.near_ties == 0


def test_a_narrow_margin_decodes_next_to_nothing_again():
    engine = engine_over(tiny_target(), tiny_target(1), cost=SlowMachine(), margin=1e-5)
    found = run_all(engine, requests("chain", SAMPLINGS["greedy"]))
    assert sum(done.stats.near_ties for _, done in found) == 0


def test_an_answer_that_is_cancelled_meanwhile_leaves_its_slot_in_order():
    """All rows since the last plain one run again at a near tie, which may take a while."""
    target = tiny_target(kind=Rounding)
    engine = engine_over(target, tiny_target(1), cost=SlowMachine(), margin=NOISE)
    [asked] = requests("chain", SAMPLINGS["greedy"])[:1]
    number, ids = engine.submit(asked), list(asked.prompt)
    listened = 0

    def listen():
        nonlocal listened
        listened += 1
        engine.cancel(number)

    while engine.busy:
        for _, event in engine.step():
            ids += getattr(event, "ids", ())
            reason = getattr(event, "reason", None)
        engine.listen = listen
    assert listened
    assert reason is FinishReason.CANCELLED
    assert list(target.tokens(0)) == ids[: target.length(0)]
