"""Conversations stay warm beside those that answer, as many as have room, and nobody's answer changes."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.build import SWAP_SHARE, assemble, build
from engine.hardware.candidates import SCORED_ROWS
from engine.hardware.footprint import grown_rows
from engine.hardware.profile import Ram
from engine.interfaces.drafter import DrafterResources
from engine.request import GenerationRequest, ModelSpec, SamplingParams
from tests.engine.models.gguf.files import random_gguf
from tests.engine.runtime.fed import fed_from_now_on, gguf_text, text
from tests.engine.tiny import SlowMachine, run_all, tiny_target

CONTEXT = 2048


def engine(slots=2, **options):
    spec = ModelSpec("tiny", "", slots=slots, **options)
    target, draft = tiny_target(context=CONTEXT), tiny_target(4, context=CONTEXT)
    return assemble(spec, DrafterResources(target, draft, cost=SlowMachine()), "no draft model")


def ask(held, prompt, max_tokens=2, **fields):
    """(ids, Stats) of an answer with a draft model."""
    fields = {"drafter": "chain", **fields}
    [(ids, done)] = run_all(held, [GenerationRequest(tuple(prompt), max_tokens, **fields)])
    return ids, done.stats


def allocated(cache):
    """Rows that all slots of a cache take."""
    return sum(row.keys[0].shape[1] for row in cache._slots.values() if row.keys)


def test_more_conversations_stay_warm_than_answer_at_once():
    held = engine()
    talks = [[*text(seed, 60)] for seed in range(1, 9)]
    for talk in talks:
        talk.extend(ask(held, talk)[0])
    fed = fed_from_now_on(held.components.target)
    for talk in talks:
        _, stats = ask(held, [*talk, 3, 4, 5])
        assert stats.cached_tokens >= len(talk) - 1
    assert len(fed) <= 4 * len(talks)


def test_the_conversation_that_was_left_longest_goes_first():
    held = engine(slots=1, warm=1)
    first, second, third = ([*text(seed, 60)] for seed in (2, 3, 5))
    ask(held, first)
    ask(held, second)
    first += ask(held, [*first, 1])[0]
    ask(held, third)
    assert ask(held, [*first, 1, 2])[1].cached_tokens >= 60


def test_what_only_begins_alike_stays_where_it_is():
    held = engine()
    preface = text(5, 100)
    first, second = [*preface, *text(2, 300)], [*preface, *text(3, 40)]
    ask(held, first)
    _, stats = ask(held, second)
    assert stats.cached_tokens == 100  # copied
    assert ask(held, [*first, 1, 2])[1].cached_tokens >= len(first) - 1
    assert ask(held, [*second, 1, 2])[1].cached_tokens >= len(second) - 1


def test_an_edited_conversation_keeps_its_slot():
    held = engine(slots=1, warm=3)
    talk = [*text(2, 200)]
    for round_ in range(20):
        talk[-1 - round_ :] = text(round_, 10)
        ask(held, talk, session="one")
    assert sum(bool(slot.ids) for slot in held._scheduler._slots) == 1


def test_a_cold_request_finds_nothing_and_leaves_nothing_of_others():
    held = engine()
    ask(held, text(2, 100))
    for _ in range(2):
        ids, stats = ask(held, text(2, 100), cold=True)
        assert stats.cached_tokens == 0
    assert ids == ask(engine(), text(2, 100))[0]
    draft = held.components.draft_model
    assert sum(bool(held.components.target.length(slot)) for slot in range(14)) == 1
    assert sum(bool(draft.length(slot)) for slot in range(14)) == 1


TALK = st.tuples(st.integers(0, 5), st.integers(1, 700), st.integers(1, 6), st.booleans())


@settings(max_examples=12)
@given(talks=st.lists(TALK, min_size=1, max_size=14))
def test_whatever_was_asked_caches_stay_within_what_was_planned_and_answers_are_right(talks):
    """Of prompts that are beginnings of one another, changed in the middle, and of others."""
    held, slots = engine(slots=1), 1
    for seed, length, many, changed in talks:
        prompt = [*text(seed, length)]
        if changed:
            prompt[length // 2] = 12 - prompt[length // 2]
        sampling = SamplingParams(1.0, seed=seed)
        ids, _ = ask(held, prompt, many, sampling=sampling, drafter="auto")
        assert ids == ask(engine(), prompt, many, sampling=sampling, drafter="none")[0]
        for model in (held.components.target, held.components.draft_model):
            assert allocated(model.cache) <= slots * grown_rows(CONTEXT + SCORED_ROWS)


def test_no_request_waits_where_all_are_at_the_end_of_their_context():
    """Trees reach behind it, for which caches double."""
    target, draft = tiny_target(context=512), tiny_target(4, context=512)
    parts = DrafterResources(target, draft, cost=SlowMachine())
    held = assemble(ModelSpec("tiny", "", slots=3), parts, "no draft model")
    fed = fed_from_now_on(target)
    asked = [
        GenerationRequest(text(seed, 480), 40, drafter="specexec", length="fixed", draft_nodes=48)
        for seed in (2, 3, 4)
    ]
    run_all(held, asked)
    assert allocated(target.cache) > 3 * 512
    assert len(fed) == 3 * 479


@pytest.fixture
def one_slot(pocket):
    return replace(pocket, slots=1)


def with_memory(monkeypatch, spec, tokens):
    """An engine on a machine with memory for so many tokens besides."""
    each = build(spec)._target.swap_bytes
    free = Path(spec.folder).stat().st_size + tokens * each / SWAP_SHARE
    monkeypatch.setattr("engine.build.ram", lambda: Ram(10**12, int(free) + 1))
    return build(spec)


def cells(held):
    """Slots that take cells of a GGUF file's cache."""
    target = held.components.target
    return [slot for slot in range(target.max_slots) if target.llama.cache.cells.of(slot)]


def test_conversations_with_a_gguf_file_rest_while_others_run(one_slot):
    """Its passes look at the cells of all conversations."""
    held = build(one_slot)
    talks = [gguf_text(seed, 90) for seed in range(6)]
    for talk in talks:
        ask(held, talk, drafter="none")
    assert len(cells(held)) == 1
    for talk in talks:
        number = held.submit(GenerationRequest((*talk, 20, 21), 4, drafter="none"))
        events = held.step()
        assert cells(held) == [held.requests[number].slot]
        while held.busy:
            events += held.step()
        assert events[-1][1].stats.cached_tokens >= len(talk) - 1


def test_where_no_memory_is_left_slots_of_a_gguf_file_are_those_that_run(one_slot, monkeypatch):
    held = with_memory(monkeypatch, one_slot, 300)  # less than one context
    talks = [gguf_text(seed, 90) for seed in range(5)]
    for talk in talks:
        ask(held, talk, drafter="none")
    assert ask(held, (*talks[-1], 20, 21), drafter="none")[1].cached_tokens >= len(talks[-1]) - 1
    assert ask(held, (*talks[0], 20, 21), drafter="none")[1].cached_tokens == 0
    assert not held.components.target.swapped


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory):
    file = random_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")
    return ModelSpec(
        "t", str(file), backend="llama_cpp", slots=2, threads=1, context=256, kv_type="f32",
        flash_attention=False,
    )  # fmt: skip


ASKED = st.tuples(st.integers(0, 4), st.integers(1, 200), st.integers(1, 6), st.booleans(), st.booleans())  # fmt: skip


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(ASKED, min_size=1, max_size=12))
def test_what_rests_stays_within_its_memory_and_answers_are_right(asked, tiny_file, monkeypatch):
    """One after the other or two at once, of texts that begin alike, were changed, or are new."""
    held, plain = with_memory(monkeypatch, tiny_file, 400), build(tiny_file)
    waiting = []
    for seed, length, many, changed, alone in asked:
        prompt = [*text(seed, length)]
        if changed:
            prompt[length // 2] = 12 - prompt[length // 2]
        law = SamplingParams(1.0, seed=seed)
        waiting.append(GenerationRequest(tuple(prompt), many, law, drafter="auto"))
        if alone or len(waiting) == 2:
            for (ids, _), request in zip(run_all(held, waiting), waiting, strict=True):
                again = replace(request, drafter="none", cold=True)
                assert ids == run_all(plain, [again])[0][0]
            waiting = []
            target = held.components.target
            away = sum(target.length(slot) for slot in target.swapped)
            assert away <= 400
            assert sum(target.swapped.values()) <= away * target.swap_bytes * 1.2
