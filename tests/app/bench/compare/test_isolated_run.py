"""One measured answer: undisturbed, and never in the way of somebody who asks."""

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from app.bench.compare.isolated_run import IsolatedRequest, IsolatedRunner, Pass
from app.chat.assistant import Assistant
from app.request import ChatRequest, Completion, Message
from app.text.chat_text import ChatText
from app.text.template import ChatTemplate
from app.text.vocabulary import FolderVocabulary
from engine.errors import ContextOverflow
from tests.app.assisted import POCKET
from tests.app.asynchronous import asynchronous

TEXT = "Repeat this text exactly:\n" + "Anna has a red hat and Ben has a blue boat. " * 8
MESSAGES = (Message("user", TEXT),)


def track_of(assistant: Assistant) -> IsolatedRunner:
    return IsolatedRunner(assistant, assistant.loaded, lambda: None)


async def ask(assistant: Assistant, log: list[str]) -> Completion:
    """What a person asks in the chat meanwhile."""
    turn = ChatRequest((Message("user", "What is 12 + 30?"),), max_tokens=16, drafter="none")
    async with aclosing(assistant.reply(turn)) as deltas:
        async for delta in deltas:
            log.append("answer")
            if isinstance(delta, Completion):
                return delta
    raise AssertionError("a reply ends with its report")


def test_an_answer_asked_meanwhile_goes_first(assistant: Assistant):
    log: list[str] = []
    asked: list[asyncio.Task[Completion]] = []

    @asynchronous
    async def drive() -> None:
        track = track_of(assistant)
        question = track.asked(MESSAGES, 96)

        def follow(one: Pass | None) -> None:
            log.append("begin" if one is None else "pass")
            if log.count("pass") == 3 and not asked:
                asked.append(asyncio.create_task(ask(assistant, log)))

        run = await track.run(question, "none", "a", follow)
        assert asked[0].done()
        assert asked[0].result().text
        alone = await track.run(question, "none", "b")
        assert run.ids == alone.ids
        assert run.stats.passes == alone.stats.passes

    drive()
    assert log.count("begin") == 2  # broken off once, and from the start again
    first, last = log.index("answer"), len(log) - log[::-1].index("answer")
    assert log[first:last].count("begin") == 0
    # the engine may have been in a pass when the answer was asked; no run goes on beside it
    assert log[first:last].count("pass") <= 2
    assert log[last] == "begin"


def test_a_run_waits_for_the_answer_that_is_being_written(assistant: Assistant):
    log: list[str] = []

    @asynchronous
    async def drive() -> None:
        asking = asyncio.create_task(ask(assistant, log))
        while not log:
            await asyncio.sleep(0)
        track = track_of(assistant)
        run = await track.run(track.asked(MESSAGES, 4), "none", "a", lambda _: log.append("run"))
        assert asking.done()
        assert len(run.ids) == 4

    drive()
    assert log.index("run") == log.count("answer")


def test_runs_of_one_key_share_drafters_that_remember(assistant: Assistant):
    """What a drafter learnt in one run may serve the next of its key, and no other."""

    @asynchronous
    async def drive() -> None:
        track = track_of(assistant)
        prompt = (Message("user", "A farmer has 12 hens. Each lays 5 eggs. How many eggs?"),)
        asked = IsolatedRequest(replace(track.asked(prompt, 32).request, length="fixed"))
        first = await track.run(asked, "suffix", "one")
        again = await track.run(asked, "suffix", "one")
        other = await track.run(asked, "suffix", "two")
        assert first.ids == again.ids == other.ids
        assert again.stats.passes < first.stats.passes == other.stats.passes

    drive()


def test_margins_come_with_every_token_when_asked_for(assistant: Assistant):
    @asynchronous
    async def drive() -> None:
        track = track_of(assistant)
        asked = track.asked(MESSAGES, 8)
        plain = await track.run(asked, "none", "a")
        margins = IsolatedRequest(replace(asked.request, margins=True))
        told = await track.run(margins, "none", "b")
        assert plain.margins == ()
        assert told.ids == plain.ids
        assert len(told.margins) == len(told.ids)

    drive()


def test_a_prompt_past_the_context_is_refused(assistant: Assistant):
    with pytest.raises(ContextOverflow):
        track_of(assistant).asked((Message("user", "word " * 5000),), 8)


def test_a_thought_that_the_prompt_opens_is_shown_with_its_beginning(assistant: Assistant):
    template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    opens = ChatText(FolderVocabulary.load(POCKET), ChatTemplate(template + "<think>", {}), ())
    track = IsolatedRunner(assistant, replace(assistant.loaded, text=opens), lambda: None)

    @asynchronous
    async def drive() -> None:
        run = await track.run(track.asked(MESSAGES, 8), "none", "a")
        told = [one.text for one in run.passes]
        assert told[0].startswith("<think>")
        assert "".join(told) == "<think>" + opens.decode(run.ids)

    drive()
