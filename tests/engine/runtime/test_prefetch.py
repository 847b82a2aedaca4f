"""Reading ahead: it spares the next question its reading, makes way for everybody, and changes no token."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.engine import Engine
from engine.errors import OutOfMemory
from engine.request import Done, FinishReason, GenerationRequest, SamplingParams
from engine.runtime.memory_backoff import PROMPT_CHUNK
from tests.engine.runtime.fed import fed_from_now_on, text
from tests.engine.tiny import Markov, SlowMachine, engine_over, run_all, tiny_target

CONTEXT = 1024


def engine(**options) -> Engine:
    draft = tiny_target(4, context=CONTEXT)
    return engine_over(tiny_target(context=CONTEXT), draft, cost=SlowMachine(), **options)


def ahead(prompt, **fields):
    return GenerationRequest(tuple(prompt), 1, ahead=True, **fields)


def ask(held, prompt, **fields):
    """(ids, Stats) of an answer."""
    [(ids, done)] = run_all(held, [GenerationRequest(tuple(prompt), 6, **fields)])
    return ids, done.stats


def ended(held):
    """Reasons of everything that ends, until the engine is idle; no token may come."""
    events = []
    while held.busy:
        events += held.step()
    assert all(isinstance(event, Done) for _, event in events)
    return [event.reason for _, event in events]


def test_the_next_question_finds_all_of_it_read():
    held, told = engine(), text(5, 700)
    held.submit(ahead(told))
    assert ended(held) == [FinishReason.LENGTH]
    ids, stats = ask(held, [*told, 3, 4])
    assert stats.cached_tokens == len(told) - 1
    assert ids == ask(engine(), [*told, 3, 4])[0]


@pytest.mark.parametrize("drafter", ["chain", "auto"])
def test_the_draft_model_has_read_it_too(drafter):
    held, told = engine(), text(5, 700)
    held.submit(ahead(told, drafter=drafter))
    assert ended(held) == [FinishReason.LENGTH]
    assert held.components.draft_model.length(0) == len(told) - 1
    fed = fed_from_now_on(held.components.draft_model)
    assert ask(held, [*told, 3, 4], drafter="chain")[1].drafted > 0
    assert not fed


def test_a_draft_model_with_a_shorter_context_reads_nothing():
    draft = tiny_target(4, context=300)
    held = engine_over(tiny_target(context=CONTEXT), draft, cost=SlowMachine())
    held.submit(ahead(text(5, 700), drafter="chain"))
    assert ended(held) == [FinishReason.LENGTH]
    assert draft.length(0) == 0


def test_it_makes_way_for_a_question_and_what_was_read_of_it_stays():
    held, told = engine(), text(5, 900)
    reading = held.submit(ahead(told))
    held.step()
    question = held.submit(GenerationRequest((*told, 7), 4))
    [(first, done), *_] = held.step()
    assert (first, done.reason) == (reading, FinishReason.CANCELLED)
    while held.busy:
        events = held.step()
    assert events[-1][0] == question
    assert events[-1][1].stats.cached_tokens == PROMPT_CHUNK


def test_it_does_not_start_while_an_answer_runs():
    held = engine()
    answer = held.submit(GenerationRequest(text(3, 20), 8, drafter="none"))
    held.step()
    fed = fed_from_now_on(held.components.target)
    reading = held.submit(ahead(text(5, 700)))
    done = [(number, event) for number, event in held.step() if isinstance(event, Done)]
    assert [(number, event.reason) for number, event in done] == [(reading, FinishReason.CANCELLED)]
    while held.busy:
        events = held.step()
    assert events[-1][0] == answer
    assert not fed


def test_of_two_the_newer_one_is_read():
    held, told = engine(), text(3, 700)
    held.submit(ahead(text(5, 700)))
    held.step()
    held.submit(ahead(told))
    assert ended(held) == [FinishReason.CANCELLED, FinishReason.LENGTH]
    assert ask(held, [*told, 3, 4])[1].cached_tokens == len(told) - 1


def test_it_is_read_after_an_answer_that_was_just_cancelled():
    held = engine()
    answer = held.submit(GenerationRequest(text(3, 20), 8, drafter="none"))
    held.step()
    held.cancel(answer)
    held.submit(ahead(text(5, 700)))
    assert ended(held) == [FinishReason.CANCELLED, FinishReason.LENGTH]


def test_a_chunk_of_it_ends_in_the_middle_of_a_pass():
    held = engine()
    number = held.submit(ahead(text(5, 700)))
    asked = []
    held.listen = lambda: asked.append(len(asked)) or (len(asked) == 2 and held.cancel(number))
    assert held.step() == []
    assert held.components.target.length(0) == held.components.target.pending(0) == 0
    assert len(asked) == 2  # of three layers
    assert ended(held) == [FinishReason.CANCELLED]


def test_a_draft_model_breaks_off_in_the_middle_of_a_pass_too():
    held = engine()
    number = held.submit(ahead(text(5, 200), drafter="chain"))
    held.step()  # all that the target reads
    draft = held.components.draft_model
    held.listen = lambda: held.cancel(number)
    draft.crop(0, 0)
    assert held.step() == []
    assert draft.length(0) == 0
    assert ended(held) == [FinishReason.CANCELLED]


def test_what_fails_while_it_is_cancelled_breaks_off_nothing_else():
    held = engine()
    number = held.submit(ahead(text(5, 200), drafter="chain"))
    held.step()
    draft = held.components.draft_model

    def full(*_):
        held.cancel(number)
        raise OutOfMemory(2, 1, 1)

    draft.feed = full
    assert ended(held) == [FinishReason.ERROR]
    assert ask(held, text(3, 600), drafter="none")[1].prompt_tokens == 600


def test_nothing_is_read_where_a_pass_cannot_be_broken_off():
    target = Markov(torch.ones(3, 3) / 3)
    assert not target.abort_when(bool)
    held = engine_over(target)
    held.submit(ahead([0, 1, 2, 1]))
    assert ended(held) == [FinishReason.CANCELLED]
    assert target.length(0) == 0


@given(
    seed=st.integers(1, 9),
    length=st.integers(1, 600),
    steps=st.integers(0, 6),
    more=st.lists(st.integers(0, 12), max_size=8),
    drafter=st.sampled_from(["none", "lookup", "chain", "sequoia", "auto"]),
    sampling=st.sampled_from([SamplingParams(), SamplingParams(0.8, seed=3)]),
)
def test_no_token_depends_on_what_was_read_ahead(seed, length, steps, more, drafter, sampling):
    """Whole or broken off after any step, and whether the question goes on behind it or not."""
    told = text(seed, length)
    held, question = engine(), (*told[: length - length // 5], *more, 1)
    held.submit(ahead(told, drafter=drafter))
    for _ in range(steps):
        held.step()
    number = held.submit(GenerationRequest(question, 6, sampling, drafter=drafter))
    ids = []
    while held.busy:
        events = [event for n, event in held.step() if n == number]
        ids += [token for event in events for token in getattr(event, "ids", ())]
    alone = engine_over(tiny_target(context=CONTEXT))
    assert ids == ask(alone, question, sampling=sampling, drafter="none")[0]
