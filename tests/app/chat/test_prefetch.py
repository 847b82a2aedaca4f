"""Reading ahead for a question that is expected: what it finds read, what goes first, what breaks it off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.chat.assistant import Assistant
from app.chat.attachments import Attachment, compose
from app.chat.prefetch import ExpectedQuestion
from tests.app import fake_engine
from tests.app.assisted import PLAIN, TEXT, assisted, ended, kill, report_of, said
from tests.app.asynchronous import asynchronous

TALK = "how are you?", "very well, thank you"
BEFORE = TEXT.count("".join(TALK)) + 6  # a begin, three roles, two ends
REST = TEXT.count("good") + 2  # an end, and what begins the answer


def talk(assistant: Assistant, *texts: str) -> str:
    """A stored conversation, as of another day."""
    chat, parent = assistant.history.create_conversation("test").id, None
    for place, text in enumerate(texts):
        role = "assistant" if place % 2 else "user"
        parent = assistant.history.add_message(chat, parent, role, text).id
    return chat


@asynccontextmanager
async def expecting(folder: Path) -> AsyncIterator[tuple[Assistant, str]]:
    """A slow engine that reads for the next question of a conversation, which is given, too."""
    async with assisted(folder, fake_engine.slow_reader) as assistant:
        chat = talk(assistant, *TALK)
        assistant.expect(ExpectedQuestion(chat))
        await asyncio.sleep(0.05)
        yield assistant, chat


async def read(assistant: Assistant) -> None:
    """Wait until nothing is left to be read."""
    async with asyncio.timeout(20):
        while assistant.prefetch.expected is not None:
            await asyncio.sleep(0.005)


async def cached(assistant: Assistant, chat: str, text: str) -> tuple[int, int]:
    """Tokens of the next question's prompt that are found read, and that are not."""
    stats = (await ended(await assistant.send(chat, text, PLAIN))).stats
    return stats.cached_tokens, stats.prompt_tokens - stats.cached_tokens


@asynchronous
async def test_an_opened_conversation_is_read_before_its_next_question(tmp_path):
    async with assisted(tmp_path) as assistant:
        chat = talk(assistant, *TALK)
        assistant.expect(ExpectedQuestion(chat))
        await read(assistant)
        assert await cached(assistant, chat, "good") == (BEFORE, REST)


@asynchronous
async def test_a_file_is_read_before_it_is_asked_about(tmp_path):
    file = compose("", [Attachment("notes.txt", "milk, bread and some apples")])
    async with assisted(tmp_path) as assistant:
        assistant.expect(ExpectedQuestion(None, "Be brief.", file))
        await read(assistant)
        chat = assistant.history.create_conversation("test", "Be brief.").id
        known, rest = await cached(assistant, chat, f"{file}how many apples?")
    assert known > TEXT.count(file)
    assert rest <= TEXT.count("how many apples?") + 4


@asynchronous
async def test_an_answer_goes_first_and_the_rest_is_read_after_it(tmp_path):
    async with expecting(tmp_path) as (assistant, chat):
        assert (await report_of(assistant.reply(said("quick")))).text == "quick"
        assert assistant.prefetch.expected is not None  # not all of it was read by then
        await read(assistant)
        assert (await cached(assistant, chat, "good"))[0] == BEFORE


@asynchronous
async def test_nothing_is_read_while_an_answer_runs(tmp_path):
    async with assisted(tmp_path, fake_engine.slow_reader) as assistant:
        chat, other = talk(assistant, "how are you?", "well"), talk(assistant)
        reply = await assistant.send(other, "one two three four five six seven", PLAIN)
        assistant.expect(ExpectedQuestion(chat))
        assert not assistant.prefetch.active
        await ended(reply)
        await read(assistant)
        assert (await cached(assistant, chat, "good"))[0] > 8


@asynchronous
async def test_the_newest_expectation_counts(tmp_path):
    async with assisted(tmp_path, fake_engine.slow_reader) as assistant:
        chats = [
            talk(assistant, text, "yes") for text in ("is it red?", "or is it blue, or green?")
        ]
        for chat in chats:
            assistant.expect(ExpectedQuestion(chat))
            await asyncio.sleep(0.05)
        await read(assistant)
        assert (await cached(assistant, chats[1], "good"))[1] == REST


@asynchronous
async def test_nothing_is_expected_any_more(tmp_path):
    async with expecting(tmp_path) as (assistant, chat):
        assistant.expect(None)
        await asyncio.sleep(0.8)
        assert (await cached(assistant, chat, "good"))[0] == 0


@asynchronous
async def test_without_reading_ahead_only_questions_are_read(tmp_path):
    async with assisted(tmp_path, read_ahead=False) as assistant:
        chat = talk(assistant, "how are you?", "well")
        assistant.expect(ExpectedQuestion(chat))
        await asyncio.sleep(0.1)
        assert (await cached(assistant, chat, "good"))[0] == 0


@pytest.mark.parametrize("words", [1, 400])
@asynchronous
async def test_what_cannot_be_read_is_left(tmp_path, words):
    """A conversation that was deleted meanwhile, and a file that is too long for this model."""
    async with assisted(tmp_path) as assistant:
        chat = talk(assistant, "how are you?", "well")
        if words == 1:
            assistant.history.delete(chat)
        assistant.expect(ExpectedQuestion(chat, prefix="word " * words))
        await read(assistant)
        assert (await report_of(assistant.reply(said("hello")))).text == "hello"


@asynchronous
async def test_an_engine_that_ends_meanwhile_answers_the_next_question(tmp_path):
    async with expecting(tmp_path) as (assistant, _):
        kill(assistant)
        await read(assistant)
        assert (await report_of(assistant.reply(said("hello")))).text == "hello"


@asynchronous
async def test_the_end_waits_for_nothing_that_is_read_ahead(tmp_path):
    async with expecting(tmp_path) as (assistant, _):
        assert assistant.prefetch.active
    assert not assistant.prefetch.active
