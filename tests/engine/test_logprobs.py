"""Log probabilities: the model's own, with any drafter and any number of tokens a pass."""

from dataclasses import replace

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.errors import InvalidRequest
from engine.request import Echo, GenerationRequest, SamplingParams, Tokens
from engine.runtime.registry import drafter_class
from engine.speculation.tree import chain
from tests.engine.tiny import SlowMachine, engine_over, tiny_target

PROMPT = (1, 2, 3, 1, 2, 3)


def answered(request):
    """Ids, their log probabilities, and the most tokens of a pass."""
    engine = engine_over(tiny_target(), tiny_target(), cost=SlowMachine())
    engine.submit(request)
    ids, found, widest = [], [], 0
    while engine.busy:
        for _, event in engine.step():
            if isinstance(event, Tokens):
                assert len(event.logprobs) in {0, len(event.ids)}
                ids += event.ids
                found += event.logprobs
                widest = max(widest, len(event.ids))
    return ids, found, widest


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.7, top_k=4, seed=2)])
@pytest.mark.parametrize("drafter", [*DRAFTERS, "auto"])
def test_they_are_the_models_before_temperature_and_filters(drafter, sampling):
    ids, found, widest = answered(
        GenerationRequest(PROMPT, 24, sampling, drafter=drafter, logprobs=3)
    )
    assert [one.token for one in found] == ids
    assert drafter == "none" or drafter_class(drafter).needs_grammar or widest > 1
    whole = tiny_target().score([0], [chain([*PROMPT, *ids])])[0].logits
    law = whole[len(PROMPT) - 1 : -1].double().log_softmax(-1)
    for row, one in zip(law, found, strict=True):
        assert one.value == pytest.approx(float(row[one.token]), abs=1e-4)
        best = row.topk(3)
        assert [token for token, _ in one.likeliest] == best.indices.tolist()
        assert [value for _, value in one.likeliest] == pytest.approx(
            best.values.tolist(), abs=1e-4
        )
    if sampling.greedy:
        assert all(one.likeliest[0][0] == one.token for one in found)


@pytest.mark.parametrize(("logprobs", "likeliest"), [(0, 0), (20, 13)])
def test_there_are_no_more_than_asked_for_and_than_the_vocabulary_has(logprobs, likeliest):
    assert answered(GenerationRequest(PROMPT, 8))[1] == []
    _, found, _ = answered(GenerationRequest(PROMPT, 8, logprobs=logprobs))
    assert [len(one.likeliest) for one in found] == [likeliest] * 8
    if likeliest:
        total = torch.tensor([[value for _, value in one.likeliest] for one in found]).exp().sum(1)
        assert total.tolist() == pytest.approx([1.0] * 8, abs=1e-5)


@pytest.mark.parametrize("drafter", ["none", "suffix", "specexec"])
def test_what_ends_an_answer_is_not_among_them(drafter):
    plain, _, _ = answered(GenerationRequest(PROMPT, 20))
    stops = frozenset({plain[6]})
    wanted = plain[: plain.index(plain[6])]
    request = GenerationRequest(PROMPT, 20, stop_tokens=stops, drafter=drafter, logprobs=1)
    ids, found, _ = answered(request)
    assert ids == wanted
    assert [one.token for one in found] == wanted
    ids, found, _ = answered(replace(request, max_tokens=2, stop_tokens=frozenset()))
    assert [one.token for one in found] == ids == plain[:2]


@pytest.mark.parametrize("many", [-1, 21])
def test_more_than_twenty_are_refused(many):
    with pytest.raises(InvalidRequest, match="0 to 20"):
        answered(GenerationRequest(PROMPT, 2, logprobs=many))


def echoed(engine, request):
    """Log probabilities of a prompt, and the ids of its answer."""
    engine.submit(request)
    echoes, ids, order = [], [], []
    while engine.busy:
        for _, event in engine.step():
            order.append(type(event))
            if isinstance(event, Echo):
                echoes.append(event.logprobs)
            elif isinstance(event, Tokens):
                ids += event.ids
    assert order[0] is Echo or not echoes  # before the first token
    return echoes, ids


@pytest.mark.parametrize("drafter", ["none", "chain", "auto"])
@pytest.mark.parametrize("length", [2, 33, 70])
def test_a_prompts_are_those_of_one_long_pass(drafter, length):
    engine = engine_over(tiny_target(), tiny_target(), cost=SlowMachine())
    prompt = tuple(place * 7 % 11 + 1 for place in range(length))
    plain = GenerationRequest(prompt, 6, drafter=drafter)
    wanted = answered(plain)[0]
    for _ in range(2):  # the second time all of it is cached
        [found], ids = echoed(engine, replace(plain, logprobs=2, echo=True))
        assert ids == wanted
        assert [one.token for one in found] == list(prompt[1:])
        law = tiny_target().score([0], [chain(list(prompt))])[0].logits.double().log_softmax(-1)
        values = [float(row[token]) for row, token in zip(law, prompt[1:], strict=False)]
        assert [one.value for one in found] == pytest.approx(values, abs=1e-4)
        assert all(len(one.likeliest) == 2 for one in found)
    assert echoed(engine, replace(plain, prompt=prompt[:1], logprobs=2, echo=True))[0] == []
    assert echoed(engine, plain) == ([], wanted)
