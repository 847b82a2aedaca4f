"""The proof itself: agreement is counted right, and a difference is found where it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.verify import Bench, Difference, choose_drafters, find_difference, verify
from app.errors import RequestFailed
from app.text.chat_text import ChatText
from app.worker.child import Entry
from app.worker.worker import EngineWorker
from engine.errors import InvalidRequest
from engine.request import Done, Event, FinishReason, GenerationRequest, ModelFacts, ModelSpec
from tests.app import fake_engine
from tests.app.asynchronous import asynchronous

POCKET = Path(__file__).parents[3] / "engine" / "bundled" / "pocket"
TEXT = ChatText.load(POCKET)
FACTS = ModelFacts("m", 64, 4096, 2, 9, ("none", "lookup", "specexec"), (("chain", "no draft"),))

ids = st.lists(st.integers(0, 3), max_size=6)


@asynccontextmanager
async def bench(entry: Entry, max_tokens: int = 6) -> AsyncIterator[Bench]:
    worker = EngineWorker(ModelSpec("fake", str(POCKET)), entry)
    try:
        yield Bench(worker, await worker.start(), TEXT, max_tokens)
    finally:
        await worker.close()


class TestDifference:
    @given(ids, ids)
    def test_is_none_exactly_for_equal_answers(self, plain: list[int], other: list[int]) -> None:
        assert (find_difference(1, plain, other, []) is None) == (plain == other)

    @given(ids, ids)
    def test_all_before_it_is_equal(self, plain: list[int], other: list[int]) -> None:
        found = find_difference(1, plain, other, [])
        if found is not None:
            assert plain[: found.token] == other[: found.token]
            assert found.plain != found.drafted

    def test_has_the_gap_where_it_is_known(self) -> None:
        found = find_difference(7, [1, 2, 3], [1, 9, 3], [0.5, 0.25, 4.0])
        assert found == Difference(7, 1, 2, 9, 0.25)

    def test_an_answer_that_ends_early_differs_at_its_end(self) -> None:
        assert find_difference(1, [1, 2], [1], [0.5]) == Difference(1, 1, 2, None, None)
        assert find_difference(1, [1], [1, 2], [0.5]) == Difference(1, 1, None, 2, None)


class TestVerify:
    @asynchronous
    async def test_a_drafter_that_agrees_and_one_that_does_not(self) -> None:
        async with bench(fake_engine.mistaken) as made:
            outcome = await verify(made, [("a",), ("b",)], ["lookup", "specexec"])
        plain, lookup, specexec = outcome.results
        assert not outcome.agrees
        assert (lookup.agreeing_prompts, lookup.agreeing_tokens) == (0, 6)
        assert lookup.first == Difference(1, 3, 103, 999, 103 / 8)
        assert (specexec.agreeing_prompts, specexec.agreeing_tokens) == (2, 12)
        assert specexec.first is None
        assert plain.tokens == lookup.tokens == 12
        assert specexec.tokens_per_pass == 2.0

    @asynchronous
    async def test_later_turns_follow_the_plain_answers(self) -> None:
        async with bench(fake_engine.parrot) as made:
            outcome = await verify(made, [("abc", "de")], ["lookup"])
        assert outcome.agrees
        assert outcome.results[0].prompts == 2

    @asynchronous
    async def test_prompts_past_the_context_are_skipped_with_what_follows(self) -> None:
        async with bench(fake_engine.mistaken) as made:
            outcome = await verify(made, [("word " * 99, "b"), ("c",)], ["specexec"])
        assert outcome.skipped == 2
        assert outcome.results[0].prompts == 1
        assert outcome.agrees

    @asynchronous
    async def test_without_a_run_there_is_no_proof(self) -> None:
        async with bench(fake_engine.mistaken) as made:
            outcome = await verify(made, [("word " * 99,)], ["specexec"])
        assert not outcome.agrees

    @asynchronous
    async def test_an_engine_that_fails_is_not_an_agreement(self) -> None:
        class Failing:
            async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
                yield Done(FinishReason.ERROR, fake_engine.STATS, "logits are not finite")

        with pytest.raises(RequestFailed, match="with the drafter none: logits are not finite"):
            await verify(Bench(Failing(), FACTS, TEXT, 6), [("a",)], ["lookup"])


class TestDrafters:
    def test_all_are_those_that_can_run(self) -> None:
        assert choose_drafters(("all",), FACTS) == ("lookup", "specexec")

    def test_names_stay_in_their_order(self) -> None:
        assert choose_drafters(("specexec", "auto"), FACTS) == ("specexec", "auto")

    def test_one_that_cannot_run_is_refused_with_the_reason(self) -> None:
        with pytest.raises(InvalidRequest, match="chain cannot run with m: no draft"):
            choose_drafters(("chain",), FACTS)
