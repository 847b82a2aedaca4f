"""Slots that share one store: what does not fit waits or is read again, and no answer depends on it."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.build import build
from engine.drafters import DRAFTERS
from engine.models.gguf import context
from engine.request import FinishReason, GenerationRequest, ModelSpec, SamplingParams
from tests.engine.models.gguf.files import exported
from tests.engine.tiny import SlowMachine, engine_over, run_all, tiny_target

ROOM, TREES = 110, 40  # trees stand behind what is committed, as in a GGUF target


def bounded(room=ROOM, slots=3):
    """An engine whose three slots hold fewer tokens together than two whole contexts."""
    target = tiny_target()
    target.shared_rows, target.clear = room, tuple  # as a GGUF target says it
    return engine_over(target, tiny_target(4), slots=slots, cost=SlowMachine())


def prompt(seed, length):
    return tuple((seed + 5 * i + i * i // 7) % 13 for i in range(length))


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


@settings(max_examples=25)
@given(asked=ASKED, wait=st.integers(0, 12))
def test_answers_are_those_of_each_alone_whatever_fits(asked, wait):
    engine, numbers, early = bounded(), [], {}
    requests = [
        GenerationRequest(prompt(seed, length), most, SamplingParams(0.8, seed=seed), drafter=name)
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


def test_the_latest_waits_and_goes_on_where_it_was():
    engine = bounded()
    requests = [GenerationRequest(prompt(n, 50), 40, drafter="none") for n in (1, 2)]
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
        run_all(engine, [GenerationRequest(prompt(seed, 40), 1, drafter="none")])
    run_all(engine, [GenerationRequest(prompt(3, 40), 10, drafter="none")])
    again = [GenerationRequest(prompt(seed, 40), 1, drafter="none") for seed in (2, 1)]
    [(_, kept), (_, gone)] = [run_all(engine, [request])[0] for request in again]
    assert (kept.stats.cached_tokens, gone.stats.cached_tokens) == (39, 0)


def test_a_request_that_waits_can_be_cancelled():
    engine = bounded()
    first, second = (engine.submit(GenerationRequest(prompt(n, 50), 40)) for n in (1, 2))
    while not engine.requests[second].paused:
        engine.step()
    engine.cancel(second)
    ended = {number: event.reason for number, event in engine.step() if hasattr(event, "reason")}
    assert ended == {second: FinishReason.CANCELLED}
    assert finish(engine, [first])


@pytest.fixture(scope="module")
def pocket(tmp_path_factory):
    bundled = Path(__file__).parents[3] / "engine/bundled"
    file = exported(bundled / "pocket", tmp_path_factory.mktemp("gguf") / "pocket.gguf")
    return ModelSpec("p", str(file), backend="llama_cpp", slots=3, threads=1, context=512)


@pytest.mark.parametrize("share", [0.25, 0])
@pytest.mark.parametrize("drafter", ["none", "auto"])
def test_a_gguf_file_whose_cells_do_not_suffice(pocket, drafter, share, monkeypatch):
    """One is decoding when another's prompt takes all the room that there is.

    What waits is put away where there is memory for it, else it is read again.
    """
    lengths = ((60, 150), (300, 100), (450, 62))
    asked = [
        GenerationRequest(
            tuple((37 * i + seed) % 4000 + 10 for i in range(length)), most, drafter=drafter
        )
        for seed, (length, most) in enumerate(lengths)
    ]
    wanted = [ids for ids, _ in run_all(build(pocket), asked)]
    monkeypatch.setattr(context, "CACHE_BYTES", 0)
    monkeypatch.setattr("engine.build.SWAP_SHARE", share)
    engine = build(pocket)
    assert engine.components.target.shared_rows < sum(len(one.prompt) for one in asked)
    fed, feed = [], engine.components.target.feed
    engine.components.target.feed = lambda slot, tokens, trace=0: (
        fed.extend(tokens) or feed(slot, tokens)
    )
    found = run_all(engine, asked)
    assert [ids for ids, _ in found] == wanted
    assert [done.error for _, done in found] == [None] * 3
    assert (len(fed) == sum(len(one.prompt) - 1 for one in asked)) == (share > 0)
