"""One measured answer: undisturbed, and never in the way of a person who asks."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from app.bench.compare.isolated_run import IsolatedRunner
from app.bench.lanes import Lane
from app.bench.measure import Prompt, RunStep, Sample, Turn
from app.chat.assistant import Assistant
from app.request import ChatRequest, Completion, Message
from app.text.chat_text import ChatText
from app.text.template import ChatTemplate
from app.text.vocabulary import FolderVocabulary
from tests.app.assisted import POCKET
from tests.app.asynchronous import asynchronous

TEXT = "Repeat this text exactly:\n" + "Anna has a red hat and Ben has a blue boat. " * 8
MESSAGES = (Message("user", TEXT),)


def runner_of(assistant: Assistant, max_tokens: int) -> IsolatedRunner:
    return IsolatedRunner(assistant, assistant.loaded, max_tokens, lambda: None)


async def answer(
    runner: IsolatedRunner,
    lane: Lane,
    repeat: int = 1,
    messages: tuple[Message, ...] = MESSAGES,
    follow: Callable[[RunStep], None] = lambda _: None,
    *,
    margins: bool = False,
) -> Sample:
    """One turn of a lane; ``follow`` gets every step."""
    steps: list[RunStep] = []
    async for step in runner.run(Turn(lane, (Prompt(1, messages),), 1, repeat, margins)):
        steps.append(step)
        follow(step)
    assert isinstance(steps[-1], Sample)
    return steps[-1]


PLAIN = Lane("none", "none")


async def ask(assistant: Assistant, log: list[str]) -> Completion:
    """What a person asks in the chat meanwhile."""
    turn = ChatRequest((Message("user", "What is 12 + 30?"),), max_tokens=16, drafter="none")
    async with aclosing(assistant.reply(turn)) as deltas:
        async for delta in deltas:
            log.append("answer")
            if isinstance(delta, Completion):
                return delta
    raise AssertionError("a reply ends with its report")


@asynchronous
async def test_an_answer_asked_meanwhile_goes_first(assistant):
    log: list[str] = []
    asked: list[asyncio.Task[Completion]] = []

    runner = runner_of(assistant, 96)

    def follow(step: RunStep) -> None:
        if isinstance(step, Sample):
            return
        log.append("begin" if step is None else "pass")
        if log.count("pass") == 3 and not asked:
            asked.append(asyncio.create_task(ask(assistant, log)))

    run = await answer(runner, PLAIN, follow=follow)
    assert asked[0].done()
    assert asked[0].result().text
    alone = await answer(runner, PLAIN, 2)
    assert run.ids == alone.ids
    assert run.stats.passes == alone.stats.passes
    assert log.count("begin") == 2  # broken off once, and from the start again
    first, last = log.index("answer"), len(log) - log[::-1].index("answer")
    assert log[first:last].count("begin") == 0
    # the engine may have been in a pass when the answer was asked; no run continues next to it
    assert log[first:last].count("pass") <= 2
    assert log[last] == "begin"


@asynchronous
async def test_a_run_waits_for_the_answer_that_is_being_written(assistant):
    log: list[str] = []

    asking = asyncio.create_task(ask(assistant, log))
    while not log:
        await asyncio.sleep(0)
    run = await answer(runner_of(assistant, 4), PLAIN, follow=lambda _: log.append("run"))
    assert asking.done()
    assert len(run.ids) == 4
    assert log.index("run") == log.count("answer")


@asynchronous
async def test_runs_of_one_lane_and_repeat_share_drafters_that_remember(assistant):
    """What a drafter learnt in one run may serve the next of its lane and repeat, and no other."""

    runner = runner_of(assistant, 32)
    prompt = (Message("user", "A farmer has 12 hens. Each lays 5 eggs. How many eggs?"),)
    suffix = Lane("suffix", "suffix", "fixed")
    first = await answer(runner, suffix, 1, prompt)
    again = await answer(runner, suffix, 1, prompt)
    other = await answer(runner, suffix, 2, prompt)
    assert first.ids == again.ids == other.ids
    assert again.stats.passes < first.stats.passes == other.stats.passes


@asynchronous
async def test_margins_come_with_every_token_when_asked_for(assistant):
    runner = runner_of(assistant, 8)
    plain = await answer(runner, PLAIN)
    found = await answer(runner, PLAIN, 2, margins=True)
    assert plain.margins == ()
    assert found.ids == plain.ids
    assert len(found.margins) == len(found.ids)


@asynchronous
async def test_a_thought_that_the_prompt_opens_is_shown_with_its_beginning(assistant):
    template = "{% for m in messages %}<|user|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    opens = ChatText(FolderVocabulary.load(POCKET), ChatTemplate(template + "<think>", {}), ())
    runner = IsolatedRunner(assistant, replace(assistant.loaded, text=opens), 8, lambda: None)

    run = await answer(runner, PLAIN)
    texts = [one.text for one in run.passes]
    assert texts[0].startswith("<think>")
    assert "".join(texts) == "<think>" + opens.decode(run.ids)
