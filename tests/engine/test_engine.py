"""The engine's promises: events, limits, warm prefixes, neighbours, cancellation, failures."""

import math
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.draft_length.fixed import Fixed
from engine.drafters import DRAFTERS
from engine.errors import ContextOverflow, InvalidRequest
from engine.request import (
    Done,
    FinishReason,
    GenerationRequest,
    Penalties,
    SamplingParams,
    Tokens,
    tokens_per_pass,
)
from engine.speculation.tree import chain, single
from engine.statistics.pass_cost import PassCost
from tests.engine.tiny import drafter_of, engine_over, run_all, tiny_target

PROMPT = (1, 2, 3, 1, 2, 3, 1)


def request(prompt=PROMPT, max_tokens=12, **fields):
    return GenerationRequest(prompt, max_tokens, **fields)


def engine(**options):
    return engine_over(tiny_target(), tiny_target(4), **options)


@pytest.mark.parametrize("name", DRAFTERS)
def test_done_comes_once_and_last_and_counts_what_was_emitted(name):
    held = engine()
    number = held.submit(request(drafter=name))
    events = []
    while held.busy:
        events += held.step()
    assert {n for n, _ in events} == {number}
    *tokens, done = [event for _, event in events]
    assert isinstance(done, Done)
    assert all(isinstance(event, Tokens) for event in tokens)
    assert done.stats.emitted == sum(len(event.ids) for event in tokens)
    assert done.stats.drafted == sum(event.drafted for event in tokens)
    assert done.stats.accepted == sum(event.accepted for event in tokens)
    assert done.stats.passes == len(tokens)
    assert done.stats.accepted == sum(d.accepted for d in done.stats.depths)
    assert held.step() == []


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", DRAFTERS)
def test_tokens_do_not_depend_on_neighbours(name, temperature):
    sampling = SamplingParams(temperature, seed=5)
    wanted = request(drafter=name, sampling=sampling, length="fixed")
    others = [request((5, 4), 9, drafter=d, sampling=SamplingParams(1.0, seed=9)) for d in DRAFTERS]
    [alone] = run_all(engine(), [wanted])
    together = run_all(engine(), [others[0], wanted, *others[1:]])
    assert together[1][0] == alone[0]


def test_drafters_get_the_kind_of_task():
    held, seen = engine(), []
    number = held.submit(request(drafter="lookup", task="edit"))
    drafter = held.requests[number].drafter
    drafter.draft = lambda batch, budgets: [
        seen.append(context.task) or single(context.ids[-1]) for context in batch
    ]
    held.step()
    held.step()
    assert set(seen) == {"edit"}


def test_more_requests_than_slots_wait_their_turn():
    found = run_all(engine(slots=1), [request(max_tokens=n) for n in (3, 4, 5)])
    assert [len(ids) for ids, _ in found] == [3, 4, 5]


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_second_turn_reuses_the_cached_prefix_and_changes_nothing(name):
    held = engine()
    [(first, _)] = run_all(held, [request(session="talk", drafter=name)])
    longer = (*PROMPT, *first, 5, 6)
    [(warm, done)] = run_all(held, [request(longer, session="talk", drafter=name)])
    [(cold, fresh)] = run_all(engine(), [request(longer, drafter=name)])
    assert warm == cold
    assert fresh.stats.cached_tokens == 0
    assert done.stats.cached_tokens >= len(PROMPT) + len(first) - 1
    [(again, done)] = run_all(held, [request(longer, session="talk", drafter=name)])
    assert again == warm  # the whole prompt is in the cache: its last token is scored again
    assert done.stats.cached_tokens == len(longer) - 1


def test_an_edited_turn_keeps_only_the_common_prefix():
    held = engine()
    run_all(held, [request((1, 2, 3, 4, 5, 6), session="talk")])
    [(edited, done)] = run_all(held, [request((1, 2, 3, 9, 5, 6), session="talk")])
    assert done.stats.cached_tokens == 3
    assert edited == run_all(engine(), [request((1, 2, 3, 9, 5, 6))])[0][0]


def test_cancel_ends_within_a_step_and_frees_the_slot():
    held = engine(slots=1)
    number = held.submit(request(max_tokens=80))
    held.step()
    held.cancel(number)
    [(ended, done)] = held.step()
    assert (ended, done.reason) == (number, FinishReason.CANCELLED)
    assert not held.busy
    assert len(run_all(held, [request(max_tokens=3)])[0][0]) == 3


def test_cancelling_a_waiting_or_an_unknown_request_is_fine():
    held = engine(slots=1)
    held.submit(request(max_tokens=4))
    waiting = held.submit(request())
    held.cancel(waiting)
    held.cancel(999)
    assert (waiting, FinishReason.CANCELLED) in [
        (n, e.reason) for n, e in held.step() if isinstance(e, Done)
    ]


def test_a_long_prompt_is_fed_in_chunks_and_can_be_cancelled_between_them():
    long = engine_over(tiny_target(context=2000))
    number = long.submit(request(tuple(i % 13 for i in range(1500)), 4))
    assert long.step() == []
    long.cancel(number)
    [(_, done)] = long.step()
    assert done.reason is FinishReason.CANCELLED


def test_a_stop_token_ends_the_answer_and_is_not_part_of_it():
    [(plain, _)] = run_all(engine(), [request()])
    stop = plain[5]
    [(ids, done)] = run_all(engine(), [request(stop_tokens=frozenset({stop}))])
    assert ids == plain[: plain.index(stop)]
    assert done.reason is FinishReason.STOP


def test_plain_decoding_counts_as_fast_as_itself_on_a_busy_machine():
    """A curve measured on an idle machine, and a pass for the stop token, once made it 0.8 times."""
    held = engine(cost=PassCost({1: 1e-7}))  # so all its passes take thousands of times as long
    [(ids, _)] = run_all(held, [request(drafter="none")])
    stop = frozenset({next(token for token in ids if token != ids[0])})
    [(ids, done)] = run_all(held, [request(drafter="none", stop_tokens=stop)])
    [run] = done.stats.runs
    assert run.passes == len(ids) + 1
    assert 0.8 * run.seconds < run.plain_seconds <= run.seconds


def test_times_plain_is_what_drafts_bring_on_a_busy_machine():
    """Where more rows cost nothing, that is the tokens of a pass; what drafting took is taken off."""
    held = engine(cost=PassCost({1: 1e-7, 64: 1e-7}))
    [(_, done)] = run_all(held, [request(max_tokens=40, drafter="lookup")])
    [run] = done.stats.runs
    bring = run.emitted / run.passes
    assert bring > 1
    assert 0.5 * bring < run.plain_seconds / run.seconds <= bring


def test_what_a_draft_takes_is_part_of_what_its_tokens_took():
    held = engine()
    session = held.requests[held.submit(request(drafter="lookup"))]
    drafter = session.drafter
    draft = drafter.draft
    drafter.draft = lambda batch, budgets: time.sleep(0.02) or draft(batch, budgets)
    done = None
    while held.busy:
        *_, (_, done) = held.step() or [(0, done)]
    [run] = done.stats.runs
    assert run.seconds >= 0.02 * run.passes
    assert done.stats.decode_seconds >= 0.02 * run.passes


def test_of_several_drafters_the_one_that_brought_most_tokens_is_named_first():
    held = engine()
    session = held.requests[held.submit(request(drafter="auto"))]
    for name, emitted in (("lookup", 2), ("chain", 9), ("none", 5)):
        session.usage_of(name).emitted = emitted
    runs = tuple(run.stats(name, (), 0.0, 1.0) for name, run in session.usage.items())
    assert [run.drafter for run in session.stats(runs).runs] == ["chain", "none", "lookup"]


def test_margins_tell_how_close_each_choice_was():
    held = engine()
    held.submit(request(max_tokens=4, margins=True, drafter="none"))
    target = tiny_target()
    ids = list(PROMPT)
    while held.busy:
        for _, event in held.step():
            if isinstance(event, Tokens):
                target.crop(0, 0)
                best = target.score([0], [chain(ids)])[0].logits[-1].topk(2).values
                assert event.margins[0] == pytest.approx(float(best[0] - best[1]), abs=1e-3)
                ids += event.ids


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"prompt": ()}, "empty"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"prompt": (1, 13)}, r"0\.\.12"),
        ({"prompt": (-1,)}, r"0\.\.12"),
        ({"sampling": SamplingParams(penalties=Penalties(bias=((13, 1.0),)))}, r"0\.\.12"),
        ({"drafter": "medusa"}, "there is no drafter 'medusa'; known: none, lookup"),
        ({"length": "magic"}, "there is no draft length 'magic'"),
        ({"drafter": "lookpu"}, "did you mean 'lookup'"),
        ({"drafter": "chain", "options": (("dpeth", 4.0),)}, "has no option 'dpeth'"),
        ({"drafter": "suffix", "options": (("histroy", 4.0),)}, "did you mean 'history'"),
        ({"drafter": "suffix", "options": (("history", -1.0),)}, "history is -1; choose 0 to"),
        ({"sampling": SamplingParams(math.nan)}, "temperature is nan"),
        ({"draft_depth": -1}, "negative"),
    ],
)
def test_bad_requests_are_refused_with_one_sentence(fields, match):
    with pytest.raises(InvalidRequest, match=match):
        engine().submit(request(**fields))


def test_a_prompt_past_the_context_is_refused_with_both_numbers():
    with pytest.raises(ContextOverflow, match="needs 97 tokens, the model holds 96"):
        engine().submit(request(tuple([1] * 96)))
    [(ids, _)] = run_all(engine(), [request(tuple([1] * 95))])
    assert len(ids) == 1


def test_a_drafter_that_cannot_run_says_why():
    alone = engine_over(tiny_target())
    assert dict(alone.facts.refused)["chain"] == "no draft model"
    with pytest.raises(InvalidRequest, match="cannot run here: no draft model"):
        alone.submit(request(drafter="chain"))


def test_broken_weights_end_the_request_with_a_sentence_and_not_the_engine():
    target = tiny_target()
    held = engine_over(target)
    sound = target.weights.norm.clone()
    with torch.inference_mode():
        target.weights.norm.fill_(math.nan)
    [(ids, done)] = run_all(held, [request()])
    assert ids == []
    assert done.reason is FinishReason.ERROR
    assert "not finite" in done.error
    with torch.inference_mode():
        target.weights.norm.copy_(sound)
    assert run_all(held, [request()])[0][1].reason is FinishReason.LENGTH


@pytest.mark.parametrize("kind", ["options", "drafter_state"])
def test_drafters_that_no_request_uses_any_more_are_dropped(monkeypatch, kind):
    monkeypatch.setattr("engine.runtime.drafter_pool.KEPT_SETS", 3)
    held = engine()

    def fields(n):
        return {kind: (("history", float(n)),) if kind == "options" else str(n)}

    running = held.submit(request(max_tokens=80, drafter="suffix", **fields(100)))
    usual, first = drafter_of(held, "suffix"), drafter_of(held, "suffix", **fields(0))
    assert drafter_of(held, "suffix", **fields(0)) is first is not usual
    held.cancel(running)
    for n in range(1, 8):
        drafter_of(held, "suffix", **fields(n))
    assert drafter_of(held, "suffix", **fields(7)) is not first
    assert drafter_of(held, "suffix", **fields(0)) is not first
    assert drafter_of(held, "suffix") is usual


def test_a_chain_is_never_asked_for_more_nodes_than_levels(monkeypatch):
    """With more it would look like a tree to the draft length: near an answer's end, for one."""
    asked = []

    class Noting(Fixed):
        def budgets(self, batch, longest):
            asked.extend((budget.depth, budget.nodes) for budget in longest)
            return super().budgets(batch, longest)

    monkeypatch.setattr("engine.draft_length.fixed.Fixed", Noting)
    run_all(engine(), [request(drafter="chain", length="fixed")])
    assert asked[0] == (11, 11)
    assert all(depth == nodes for depth, nodes in asked)
    asked.clear()
    run_all(engine(), [request(drafter="chain", length="fixed", draft_depth=8, draft_nodes=3)])
    assert asked[0] == (3, 3)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1), st.booleans())
def test_law_tokens_per_pass_count_what_ended_the_answer_too(rounds, drafted):
    accepted = [min(pair) for pair in rounds]
    said = sum(accepted) + len(rounds)
    past_the_end = int(drafted and accepted[-1] > 0)
    emitted = said - 1 - past_the_end
    assert tokens_per_pass(len(rounds), sum(accepted), emitted) == (emitted + 1) / len(rounds)
    assert tokens_per_pass(len(rounds), sum(accepted), said) == said / len(rounds)
    assert tokens_per_pass(len(rounds), 0, len(rounds) - 1) == 1
