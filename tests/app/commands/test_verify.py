"""The command ``verify``: agreement is counted right, and a difference is found where it is."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app.bench.lanes import Lane
from app.bench.measure import Difference, Measurement
from app.bench.summary import counts_of
from app.commands.verify import (
    Verified,
    VerifyOptions,
    agreeing_tokens,
    choose_drafters,
    table,
    verify,
)
from app.errors import RequestFailed
from app.settings import Settings
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
OPTIONS = VerifyOptions(Settings(home=Path("/nowhere")), "m", ("specexec",), (("a",),), 6)


@asynccontextmanager
async def worker(entry: Entry) -> AsyncIterator[EngineWorker]:
    opened = EngineWorker(ModelSpec("fake", str(POCKET)), entry)
    try:
        yield opened
    finally:
        await opened.close()


async def verified(entry: Entry, prompts, drafters=("specexec",)) -> Verified:
    async with worker(entry) as opened:
        facts = await opened.start()
        asked = replace(OPTIONS, prompts=tuple(prompts), drafters=drafters)
        return Verified(facts, TEXT, await verify(opened, facts, TEXT, asked))


def lane(measurement: Measurement, name: str) -> Lane:
    return next(one for one in measurement.lanes if one.name == name)


@asynchronous
async def test_a_drafter_that_agrees_and_one_that_does_not() -> None:
    outcome = await verified(fake_engine.mistaken, [("a",), ("b",)], ("lookup", "specexec"))
    found = outcome.measurement
    assert not outcome.agrees
    assert agreeing_tokens(found, lane(found, "lookup")) == 6
    assert agreeing_tokens(found, lane(found, "specexec")) == 12
    assert found.differences == {"lookup": Difference(1, 3, 103, 999, 103 / 8)}
    assert counts_of(found.of(lane(found, "none"))).emitted == 12
    assert counts_of(found.of(lane(found, "specexec"))).tokens_per_pass == 2.0
    assert list(table(outcome))[-1] == "tokens differ"


@asynchronous
async def test_later_turns_follow_the_plain_answers() -> None:
    outcome = await verified(fake_engine.parrot, [("abc", "de")], ("lookup",))
    assert outcome.agrees
    assert len(outcome.measurement.samples) == 4


@asynchronous
async def test_prompts_past_the_context_are_skipped_with_what_follows() -> None:
    outcome = await verified(fake_engine.mistaken, [("word " * 99, "b"), ("c",)])
    assert outcome.measurement.skipped == 2
    assert len(outcome.measurement.samples) == 2
    assert outcome.agrees


@asynchronous
async def test_without_a_run_nothing_is_verified() -> None:
    outcome = await verified(fake_engine.mistaken, [("word " * 99,)])
    assert not outcome.agrees
    assert list(table(outcome))[-1] == "nothing was verified: no prompt fits the context"


@asynchronous
async def test_an_engine_that_fails_is_not_an_agreement() -> None:
    class Failing:
        async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
            yield Done(FinishReason.ERROR, fake_engine.STATS, "logits are not finite")

    with pytest.raises(RequestFailed, match="in the lane none: logits are not finite"):
        await verify(Failing(), FACTS, TEXT, OPTIONS)


def test_drafters_are_all_that_can_run_or_those_that_are_named() -> None:
    assert choose_drafters(("all",), FACTS) == ("lookup", "specexec")
    assert choose_drafters(("specexec", "auto"), FACTS) == ("specexec", "auto")
    with pytest.raises(InvalidRequest, match="chain cannot run with m: no draft"):
        choose_drafters(("chain",), FACTS)
