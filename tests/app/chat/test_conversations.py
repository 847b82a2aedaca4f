"""Stored conversations: ask, ask again, edit, continue, stop, crash; a fake engine, all else real."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.chat.assistant import Assistant
from app.chat.reply import SAVE_SECONDS
from app.errors import AppError, UnknownConversation, UnknownModel
from app.history.store import History
from app.request import Completion, ReplyOptions
from app.settings import Settings
from app.text.chat_text import ChatText
from app.worker.child import Entry
from engine.errors import ContextOverflow, EngineError, InvalidRequest
from engine.request import FinishReason
from tests.app import fake_engine
from tests.app.assisted import PLAIN, POCKET, assisted, begun, ended, kill, report_of, said
from tests.app.asynchronous import asynchronous


@asynccontextmanager
async def talking(
    folder: Path, entry: Entry = fake_engine.parrot
) -> AsyncIterator[tuple[Assistant, str]]:
    """An assistant with a fake engine, and an empty conversation."""
    async with assisted(folder, entry) as assistant:
        yield assistant, assistant.history.create_conversation("test").id


async def ask(assistant: Assistant, chat: str, text: str) -> Completion:
    return await ended(await assistant.send(chat, text, PLAIN))


def messages(assistant: Assistant, chat: str) -> list[tuple[str, str]]:
    return [(one.role, one.content) for one in assistant.history.messages(chat)]


class TestConversation:
    @asynchronous
    async def test_messages_and_answers_are_stored_in_turn_read_again_and_measured(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            first, second = [await ask(assistant, chat, text) for text in ("first", "second")]
            path = assistant.history.messages(chat)
            facts = assistant.history.facts(chat)[path[-1].id]
            standing = await assistant.context_use("", path)
        assert [one.content for one in path] == ["first", "first", "second", "second"]
        assert [one.finish_reason for one in path] == [None, FinishReason.STOP] * 2
        assert (facts.drafter, facts.emitted) == ("lookup", second.stats.emitted)
        assert facts.speedup == second.speedup == 2.0
        assert facts.first_token_seconds == second.first_token_seconds > 0
        assert second.stats.prompt_tokens > first.stats.prompt_tokens + first.stats.emitted
        assert standing.used > second.stats.prompt_tokens
        assert standing.unseen == 0

    @asynchronous
    async def test_one_that_outgrows_the_context_continues_without_its_oldest(self, tmp_path):
        """Under a context of 256; what is left out goes in steps, so that few prompts begin again."""
        async with talking(tmp_path) as (assistant, chat):
            begins = []
            assistant.history.instruct(chat, "Be brief.")
            for turn in range(24):
                report = await ask(assistant, chat, f"{turn} " + "some words " * 6)
                assert report.stats.prompt_tokens < 256 - 32
                standing = await assistant.context_use(
                    "Be brief.", assistant.history.messages(chat)
                )
                begins.append(standing.unseen)
            again = await ended(await assistant.regenerate(chat, PLAIN))
            more = await ended(await assistant.extend(chat, PLAIN))
        assert begins[0] == 0 < begins[-1] < 2 * 24
        assert begins == sorted(begins)
        assert len(set(begins)) <= 24 // 2
        assert all(begin % 2 == 0 for begin in begins)  # a question
        assert again.stats.prompt_tokens == report.stats.prompt_tokens
        assert more.error is None

    @asynchronous
    async def test_a_system_prompt_comes_first(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            plain = await ask(assistant, chat, "hello")
            assistant.history.instruct(chat, "You are brief and kind.")
            again = await ended(await assistant.regenerate(chat, PLAIN))
        assert again.stats.prompt_tokens > plain.stats.prompt_tokens
        assert again.text == plain.text

    @asynchronous
    async def test_regenerate_adds_a_version(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            await ask(assistant, chat, "one two")
            short = await ended(await assistant.regenerate(chat, ReplyOptions(max_tokens=1)))
            path = assistant.history.messages(chat)
            tree = assistant.history.tree(chat)
        assert [one.content for one in tree[-2:]] == ["one two", short.text]
        assert tree[-1] == path[-1]

    @asynchronous
    async def test_an_earlier_answer_can_be_asked_for_again(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            for text in ("first", "second"):
                await ask(assistant, chat, text)
            early = assistant.history.messages(chat)[1]
            await ended(await assistant.regenerate(chat, PLAIN, early.id))
            assert messages(assistant, chat) == [("user", "first"), ("assistant", "first")]
            assistant.history.show(chat, early.id)
            assert len(messages(assistant, chat)) == 4

    @asynchronous
    async def test_an_edited_message_begins_a_branch(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            await ask(assistant, chat, "one")
            await ask(assistant, chat, "two")
            old = assistant.history.messages(chat)[2]
            await ended(await assistant.send(chat, "three", PLAIN, edits=old.id))
            assert [text for _, text in messages(assistant, chat)] == [
                "one",
                "one",
                "three",
                "three",
            ]
            assert len(assistant.history.siblings(chat)[old.parent]) == 2

    @asynchronous
    async def test_continue_extends_the_same_message(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            reply = await assistant.send(chat, "one two three", ReplyOptions(max_tokens=2))
            first = await ended(reply)
            more = await ended(await assistant.extend(chat, ReplyOptions(max_tokens=3)))
            [_, answer] = assistant.history.messages(chat)
        assert more.text.startswith(first.text)
        assert answer.content == more.text
        assert all(0 <= start < end <= len(more.text) for start, end in more.spans)

    @asynchronous
    async def test_nothing_is_stored_of_what_cannot_be_answered(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            for text, error in (("", InvalidRequest), ("word " * 300, ContextOverflow)):
                with pytest.raises(error):
                    await assistant.send(chat, text, PLAIN)
            assert messages(assistant, chat) == []

    @asynchronous
    async def test_conversations_and_messages_that_are_not_there(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            refused: list[Callable[[], Awaitable[object]]] = [
                lambda: assistant.send("nowhere", "hello", PLAIN),
                lambda: assistant.send(chat, "hello", PLAIN, edits="nothing"),
                lambda: assistant.regenerate("nowhere", PLAIN),
                lambda: assistant.extend(chat, PLAIN),
            ]
            for call in refused:
                with pytest.raises(UnknownConversation):
                    await call()

    @asynchronous
    async def test_two_at_once_are_answered_one_after_the_other(self, tmp_path):
        async with talking(tmp_path) as (assistant, chat):
            await asyncio.gather(*(ask(assistant, chat, text) for text in ("a", "b", "c")))
            path = messages(assistant, chat)
        assert [role for role, _ in path] == ["user", "assistant"] * 3
        assert path[0][1] == path[1][1]


class TestRunning:
    @asynchronous
    async def test_an_answer_continues_without_a_watcher(self, tmp_path):
        async with talking(tmp_path, fake_engine.endless) as (assistant, chat):
            reply = await assistant.send(chat, "count", ReplyOptions(max_tokens=40))
            await begun(reply)
            seen = reply.written.text
            running = assistant.running(chat)
            assert running is not None
            report = await ended(running.reply)  # another page
            assert assistant.running(chat) is None
        assert report.text.startswith(seen)
        assert report.finish_reason is FinishReason.LENGTH

    @asynchronous
    async def test_a_running_answer_is_on_disk_within_a_second(self, tmp_path):
        async with talking(tmp_path, fake_engine.endless) as (assistant, chat):
            reply = await assistant.send(chat, "count", PLAIN)
            await begun(reply)
            await asyncio.sleep(0.2)
            before = reply.written.text
            await asyncio.sleep(SAVE_SECONDS + 0.3)
            with sqlite3.connect(tmp_path / "history.db") as other:
                sql = "SELECT content, finish_reason FROM messages WHERE role = 'assistant'"
                [(content, reason)] = other.execute(sql).fetchall()
            other.close()
        assert content.startswith(before)
        assert reason is None

    @asynchronous
    async def test_stop_keeps_what_was_written_for_the_next_turn(self, tmp_path):
        async with talking(tmp_path, fake_engine.endless) as (assistant, chat):
            reply = await assistant.send(chat, "count", PLAIN)
            await begun(reply)
            seen = reply.written.text
            assistant.stop(chat)
            report = await ended(reply)
            assistant.stop(chat)  # nothing is running: nothing happens
            answer = assistant.history.messages(chat)[-1]
            await ended(await assistant.send(chat, "again", ReplyOptions(max_tokens=3)))
            assert [role for role, _ in messages(assistant, chat)] == ["user", "assistant"] * 2
        assert report.finish_reason is answer.finish_reason is FinishReason.CANCELLED
        assert answer.content == report.text
        assert report.text.startswith(seen)

    @asynchronous
    async def test_closing_the_assistant_stores_running_answers(self, tmp_path):
        async with talking(tmp_path, fake_engine.endless) as (assistant, chat):
            await begun(await assistant.send(chat, "count", PLAIN))
        history = History.open(tmp_path / "history.db")
        assert history.messages(chat)[-1].finish_reason is FinishReason.CANCELLED
        history.close()

    @asynchronous
    async def test_crash_keeps_the_partial_answer_and_the_next_one_works(self, tmp_path):
        async with talking(tmp_path, fake_engine.endless) as (assistant, chat):
            reply = await assistant.send(chat, "count", PLAIN)
            await begun(reply)
            kill(assistant)
            report = await ended(reply)
            stored = assistant.history.messages(chat)[-1]
            again = await ended(await assistant.regenerate(chat, ReplyOptions(max_tokens=4)))
        assert report.finish_reason is stored.finish_reason is FinishReason.ERROR
        assert "SIGKILL" in (report.error or "")
        assert report.text == stored.content
        assert report.stats.emitted == report.stats.passes == len(report.token_ids)
        assert again.error is None


class TestSwitch:
    @asynchronous
    async def test_another_model_answers_and_a_wrong_name_changes_nothing(self, tmp_path):
        assistant = await Assistant.open(Settings(home=tmp_path), "pocket-draft")
        try:
            with pytest.raises(UnknownModel):
                await assistant.switch("nobody")
            assert assistant.entry.name == "pocket-draft"
            await assistant.switch("pocket")
            assert assistant.entry.name == assistant.facts.name == "pocket"
            report = await report_of(assistant.reply(said("Hello!", max_tokens=4)))
            assert report.error is None
        finally:
            await assistant.close()

    @asynchronous
    async def test_what_is_asked_meanwhile_is_answered_by_the_new_model(self, tmp_path):
        assistant = await Assistant.open(Settings(home=tmp_path), "pocket-draft")
        seen: list[str] = []
        assistant.current.on_switch.append(lambda: seen.append(assistant.loading))
        try:
            switching = asyncio.create_task(assistant.switch("pocket"))
            await asyncio.sleep(0)
            assert assistant.loading == "pocket"
            report = await report_of(assistant.reply(said("Hello!", max_tokens=4)))
            await switching
        finally:
            await assistant.close()
        assert report.error is None
        assert report.stats.emitted > 0
        assert assistant.entry.name == "pocket"
        assert list(dict.fromkeys(seen)) == ["pocket", ""]  # and how far it is

    @asynchronous
    async def test_after_files_that_cannot_be_loaded_the_model_before_answers(self, tmp_path):
        broken = tmp_path / "broken"
        shutil.copytree(POCKET, broken)
        weights = broken / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:1000])
        assistant = await Assistant.open(Settings(home=tmp_path), "pocket-draft")
        plan: Any = object()
        object.__setattr__(assistant.current.here(), "plan", plan)
        try:
            with pytest.raises((AppError, EngineError)):
                await assistant.switch(str(broken))
            report = await report_of(assistant.reply(said("Hello!", max_tokens=4)))
        finally:
            await assistant.close()
        assert report.error is None
        assert assistant.entry.name == "pocket-draft"
        assert assistant.current.plan is plan
        assert assistant.loading == ""


class TestABaseModel:
    @asynchronous
    async def test_a_conversation_is_one_text_that_it_continues(self, tmp_path):
        folder = tmp_path / "base"
        shutil.copytree(POCKET, folder)
        (folder / "chat_template.jinja").unlink()
        async with assisted(tmp_path, text=ChatText.load(folder)) as assistant:
            chat = assistant.history.create_conversation("test").id
            await ask(assistant, chat, "Once upon")
            second = await ask(assistant, chat, " a time")
            path = assistant.history.messages(chat)
            standing = await assistant.context_use("", path)
            again = await ended(await assistant.regenerate(chat, PLAIN))
            more = await ended(await assistant.extend(chat, PLAIN))
        assert [one.role for one in path] == ["user", "assistant"] * 2
        assert second.stats.prompt_tokens > 1
        assert standing.used > 0
        assert again.text == second.text
        assert more.text.startswith(again.text)

    @asynchronous
    async def test_it_chats_with_a_template_that_a_person_chose(self, tmp_path):
        async with assisted(tmp_path) as assistant:
            await assistant.use_template("chatml")
            assert assistant.loaded.template == "chatml"
            assert not assistant.loaded.text.borrows, "pocket has a template of its own"
