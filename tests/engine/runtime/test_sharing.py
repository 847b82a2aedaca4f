"""Slots share what they have read and the store it lies in; no answer depends on it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.build import assemble, build, load
from engine.drafters import DRAFTERS
from engine.errors import OutOfMemory
from engine.interfaces.target import SHARED
from engine.models.gguf import context
from engine.request import FinishReason, GenerationRequest, SamplingParams
from tests.engine.runtime.fed import fed_from_now_on, gguf_text, text
from tests.engine.tiny import SlowMachine, engine_over, run_all, tiny_target

LONG = text(5, 300)  # more than one chunk


def request(prompt=LONG, max_tokens=8, **fields):
    return GenerationRequest(tuple(prompt), max_tokens, **fields)


def engine(**options):
    return engine_over(tiny_target(context=500), tiny_target(4, context=500), **options)


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_to_one_question_are_those_of_each_alone(name, temperature):
    asked = [
        request(drafter=name, sampling=SamplingParams(temperature, seed=seed)) for seed in (1, 2, 3)
    ]
    held = engine()
    fed = fed_from_now_on(held.components.target)
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
    fed = fed_from_now_on(held.components.target)
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
    fed = fed_from_now_on(held.components.target)
    near = [*LONG[: SHARED - 1], 12, 11, 10]
    run_all(held, [request(LONG[:40]), request(near)])
    assert len(fed) == 39 + len(near) - 1


def test_a_slot_that_was_given_away_is_no_donor():
    held = engine(slots=2)
    run_all(held, [request(LONG[:100])])
    held.components.target.crop(0, 5)  # as a GGUF target takes cells from an idle conversation
    fed = fed_from_now_on(held.components.target)
    run_all(held, [request([3, 3, 3]), request(LONG[:100])])
    assert len(fed) >= 2 + 99 - 5


def test_without_memory_for_a_copy_the_prompt_is_read():
    held = engine()

    def full(source, slot, length):
        raise OutOfMemory(2**20, 0, 2**30)

    held.components.target.share = full
    fed = fed_from_now_on(held.components.target)
    found = run_all(held, [request(), request()])
    assert fed == 2 * list(LONG[:-1])
    assert found[0][0] == found[1][0]
    assert found[1][1].stats.cached_tokens == 0


@pytest.mark.parametrize("drafter", ["none", "auto"])
def test_a_gguf_file_too(pocket, drafter):
    loaded = load(pocket)
    prompt = gguf_text(0, 200)
    asked = [
        request(prompt, drafter=drafter, sampling=SamplingParams(1.0, seed=seed)) for seed in (1, 2)
    ]
    held = assemble(pocket, *loaded)
    fed = fed_from_now_on(held.components.target)
    together = [ids for ids, _ in run_all(held, asked)]
    assert len(fed) == len(prompt) - 1
    assert together == [run_all(assemble(pocket, *loaded), [one])[0][0] for one in asked]


# A store that does not hold all contexts: what does not fit waits or is read again.


ROOM, TREES = 110, 40  # trees stand behind what is committed, as in a GGUF target


def bounded(room=ROOM, slots=3):
    """An engine whose three slots hold fewer tokens together than two whole contexts."""
    target = tiny_target()
    target.shared_rows, target.clear = room, tuple  # as a GGUF target says it
    return engine_over(target, tiny_target(4), slots=slots, cost=SlowMachine())


def alone(request):
    return run_all(engine_over(tiny_target()), [replace(request, drafter="none")])[0][0]


def held(engine, slots=3):
    return sum(engine.components.target.length(slot) for slot in range(slots))


def finish(engine, numbers, room=ROOM):
    """Tokens of all answers; what slots hold never exceeds their room."""
    found, most = {number: [] for number in numbers}, 0
    while engine.busy:
        for number, event in engine.step():
            found[number] += getattr(event, "ids", ())
            assert getattr(event, "error", None) is None
        most = max(most, held(engine))
    assert most <= room + TREES
    return [found[number] for number in numbers]


ASKED = st.lists(
    st.tuples(st.integers(1, 80), st.integers(1, 40), st.integers(0, 9), st.sampled_from(list(DRAFTERS))),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=15)
@given(asked=ASKED, wait=st.integers(0, 12))
def test_answers_are_those_of_each_alone_whatever_fits(asked, wait):
    engine, numbers, early = bounded(), [], {}
    requests = [
        GenerationRequest(text(seed, length), most, SamplingParams(0.8, seed=seed), drafter=name)
        for length, most, seed, name in asked
    ]
    for request in requests:
        numbers.append(engine.submit(request))
        early[numbers[-1]] = []
        for _ in range(wait):
            for number, event in engine.step():
                early[number] += getattr(event, "ids", ())
            assert held(engine) <= ROOM + TREES
    late = finish(engine, numbers)
    for number, request, rest in zip(numbers, requests, late, strict=True):
        assert early[number] + rest == alone(request)


def test_the_latest_waits_and_continues_where_it_was():
    engine = bounded()
    requests = [GenerationRequest(text(n, 50), 40, drafter="none") for n in (1, 2)]
    numbers = [engine.submit(request) for request in requests]
    order = []
    while engine.busy:
        order += [number for number, event in engine.step() if getattr(event, "ids", ())]
    first, second = ([place for place, n in enumerate(order) if n == number] for number in numbers)
    assert len(first) == len(second) == 40
    assert second[0] < first[5] < first[-1] < second[10]  # side by side, then one after the other
    assert first[-1] - first[20] == 19  # alone


def test_a_warm_conversation_goes_before_a_request_waits_and_the_oldest_first():
    engine = bounded()
    for seed in (1, 2):
        run_all(engine, [GenerationRequest(text(seed, 40), 1, drafter="none")])
    run_all(engine, [GenerationRequest(text(3, 40), 10, drafter="none")])
    again = [GenerationRequest(text(seed, 40), 1, drafter="none") for seed in (2, 1)]
    [(_, kept), (_, gone)] = [run_all(engine, [request])[0] for request in again]
    assert (kept.stats.cached_tokens, gone.stats.cached_tokens) == (39, 0)


def test_a_request_that_waits_can_be_cancelled():
    engine = bounded()
    first, second = (engine.submit(GenerationRequest(text(n, 50), 40)) for n in (1, 2))
    while not engine.requests[second].paused:
        engine.step()
    engine.cancel(second)
    ended = {number: event.reason for number, event in engine.step() if hasattr(event, "reason")}
    assert ended == {second: FinishReason.CANCELLED}
    assert finish(engine, [first])


@pytest.mark.parametrize(("drafter", "share"), [("none", 0.25), ("auto", 0)])
def test_a_gguf_file_whose_cells_do_not_suffice(pocket, drafter, share, monkeypatch):
    """One is decoding when another's prompt takes all the room that there is.

    What waits is put away where there is memory for it, else it is read again.
    """
    lengths = ((60, 150), (300, 100), (450, 62))
    asked = [
        GenerationRequest(gguf_text(seed, length), most, drafter=drafter)
        for seed, (length, most) in enumerate(lengths)
    ]
    wanted = [ids for ids, _ in run_all(build(pocket), asked)]
    monkeypatch.setattr(context, "CACHE_BYTES", 0)
    monkeypatch.setattr("engine.build.SWAP_SHARE", share)
    engine = build(pocket)
    assert engine.components.target.shared_rows < sum(len(one.prompt) for one in asked)
    fed = fed_from_now_on(engine.components.target)
    found = run_all(engine, asked)
    assert [ids for ids, _ in found] == wanted
    assert [done.error for _, done in found] == [None] * 3
    assert (len(fed) == sum(len(one.prompt) - 1 for one in asked)) == (share > 0)
