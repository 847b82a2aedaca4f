"""Slots share what they have read: a prompt is read once, and no answer depends on it."""

from pathlib import Path

import pytest

from engine.build import assemble, load
from engine.drafters import DRAFTERS
from engine.errors import OutOfMemory
from engine.interfaces.target import SHARED
from engine.request import GenerationRequest, ModelSpec, SamplingParams
from tests.engine.models.gguf.files import exported
from tests.engine.tiny import engine_over, run_all, tiny_target

LONG = tuple((5 * i + i * i // 7) % 13 for i in range(300))  # more than one chunk


def request(prompt=LONG, max_tokens=8, **fields):
    return GenerationRequest(tuple(prompt), max_tokens, **fields)


def engine(**options):
    return engine_over(tiny_target(context=500), tiny_target(4, context=500), **options)


def counted(held):
    """What the target is fed from now on, by slot."""
    target, fed = held.components.target, []
    feed = target.feed
    target.feed = lambda slot, tokens, trace=0: fed.extend(tokens) or feed(slot, tokens, trace)
    return fed


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_to_one_question_are_those_of_each_alone(name, temperature):
    asked = [
        request(drafter=name, sampling=SamplingParams(temperature, seed=seed)) for seed in (1, 2, 3)
    ]
    held = engine()
    fed = counted(held)
    found = run_all(held, asked)
    assert fed == list(LONG[:-1])  # once
    assert [done.stats.cached_tokens for _, done in found] == [0, len(LONG) - 1, len(LONG) - 1]
    for one, (ids, _) in zip(asked, found, strict=True):
        assert run_all(engine(), [one])[0][0] == ids


def test_a_preface_is_taken_over_from_a_running_answer_with_all_that_it_said():
    held = engine()
    first = held.submit(request(max_tokens=60, drafter="none"))
    while not held.requests[first].emitted:
        held.step()
    said = list(held.requests[first].ids)
    fed = counted(held)
    second = (*said[:-1], 7, 8, 9)
    held.submit(request(second, 4))
    while len(held.requests) > 1:
        held.step()
    assert fed == [*said[-2:-1], 7, 8][-len(fed) :]
    assert len(fed) <= 3
    [(alone, _)] = run_all(engine(), [request(second, 4)])
    assert len(alone) == 4


def test_few_tokens_are_read():
    held = engine()
    fed = counted(held)
    near = [*LONG[: SHARED - 1], 12, 11, 10]
    run_all(held, [request(LONG[:40]), request(near)])
    assert len(fed) == 39 + len(near) - 1


def test_a_slot_that_was_given_away_is_no_donor():
    held = engine(slots=2)
    run_all(held, [request(LONG[:100])])
    held.components.target.crop(0, 5)  # as a GGUF target takes cells from an idle conversation
    fed = counted(held)
    run_all(held, [request([3, 3, 3]), request(LONG[:100])])
    assert len(fed) >= 2 + 99 - 5


def test_without_memory_for_a_copy_the_prompt_is_read():
    held = engine()

    def full(source, slot, length):
        raise OutOfMemory(2**20, 0, 2**30)

    held.components.target.share = full
    fed = counted(held)
    found = run_all(held, [request(), request()])
    assert fed == 2 * list(LONG[:-1])
    assert found[0][0] == found[1][0]
    assert found[1][1].stats.cached_tokens == 0


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    bundled = Path(__file__).parents[3] / "engine/bundled"
    file = exported(bundled / "pocket", tmp_path_factory.mktemp("gguf") / "pocket.gguf")
    return ModelSpec("p", str(file), backend="llama_cpp", slots=3, threads=1, context=1024)


@pytest.mark.parametrize("drafter", ["none", "lookup", "auto"])
def test_a_gguf_file_too(gguf, drafter):
    loaded = load(gguf)
    prompt = [(37 * i) % 4000 + 10 for i in range(200)]
    asked = [
        request(prompt, drafter=drafter, sampling=SamplingParams(1.0, seed=seed)) for seed in (1, 2)
    ]
    held = assemble(gguf, *loaded)
    fed = counted(held)
    together = [ids for ids, _ in run_all(held, asked)]
    assert len(fed) == len(prompt) - 1
    assert together == [run_all(assemble(gguf, *loaded), [one])[0][0] for one in asked]
