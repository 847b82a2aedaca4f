"""The use cases over a real process, a real database and the bundled tokenizer."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from app.assistant import Assistant, Parts
from app.catalog import CatalogEntry
from app.child import Entry
from app.errors import UnknownConversation, UnknownDrafter, UnknownModel
from app.history.store import History
from app.settings import Settings
from app.text import ChatText
from app.turn import AUTO, Delta, Message, Piece, ReplyOptions, Report, Turn
from app.worker import EngineWorker
from engine.drafters import DRAFTERS
from engine.errors import ContextOverflow, InvalidRequest, ModelUnusable
from engine.request import DepthCount, FinishReason, ModelSpec, SamplingParams
from tests.app import fake_engine
from tests.app.asynchronous import asynchronous

POCKET = Path(__file__).parents[2] / "engine" / "bundled" / "pocket"
TEXT = ChatText.load(POCKET)
PLAIN = ReplyOptions()
EMOJI = "👩‍🚀 naïve ☃"


@asynccontextmanager
async def assisted(folder: Path, entry: Entry = fake_engine.parrot) -> AsyncIterator[Assistant]:
    """An assistant whose engine is a fake; all else is real."""
    spec = ModelSpec("fake", str(POCKET))
    worker = EngineWorker(spec, entry)
    parts = Parts(
        settings=Settings(home=folder),
        entry=CatalogEntry("fake", "a fake", POCKET),
        spec=spec,
        facts=await worker.start(),
        worker=worker,
        text=TEXT,
        history=History.open(folder / "history.db"),
    )
    assistant = Assistant(parts)
    try:
        yield assistant
    finally:
        await assistant.close()


def said(text: str, **more: object) -> Turn:
    return Turn((Message("user", text),), **more)


async def all_of(deltas: AsyncIterator[Delta]) -> tuple[list[Piece], Report]:
    """Pieces and the report; checks that the report is last and alone."""
    got = [delta async for delta in deltas]
    assert [isinstance(delta, Report) for delta in got] == [False] * (len(got) - 1) + [True]
    return got[:-1], got[-1]


async def report_of(deltas: AsyncIterator[Delta]) -> Report:
    return (await all_of(deltas))[1]


def kill(assistant: Assistant) -> None:
    os.kill(assistant._worker.pid, signal.SIGKILL)


class TestReply:
    @asynchronous
    async def test_pieces_joined_are_the_report(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            pieces, report = await all_of(assistant.reply(said(EMOJI)))
        assert report.text == "".join(piece.text for piece in pieces) == EMOJI
        assert report.token_ids == tuple(token for p in pieces for token in p.token_ids)
        assert report.finish_reason is FinishReason.STOP
        assert report.error is None

    @asynchronous
    async def test_figures_of_the_report(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            report = await report_of(assistant.reply(said("abc")))
        assert report.seconds == 0.75
        assert report.tokens_per_second == report.stats.emitted / 0.5
        assert report.tokens_per_pass == 1.0

    @asynchronous
    async def test_a_stop_text_ends_the_answer_and_never_shows(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            turn = said("one two three four", stop=("o th", "never"))
            pieces, report = await all_of(assistant.reply(turn))
        assert report.text == "".join(piece.text for piece in pieces) == "one tw"
        assert report.finish_reason is FinishReason.STOP

    @asynchronous
    async def test_what_was_held_back_comes_at_the_end(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            report = await report_of(assistant.reply(said("a b stop", stop=("stopped",))))
        assert report.text == "a b stop"

    @asynchronous
    async def test_max_tokens(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            report = await report_of(assistant.reply(said("one two three", max_tokens=2)))
        assert len(report.token_ids) == 2
        assert report.finish_reason is FinishReason.LENGTH

    @asynchronous
    async def test_without_max_tokens_the_context_is_the_limit(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.counting) as assistant:
            report = await report_of(assistant.reply(said("a")))
        assert report.finish_reason is FinishReason.LENGTH
        assert report.stats.prompt_tokens + report.stats.emitted == fake_engine.CONTEXT

    @asynchronous
    async def test_answers_at_the_same_time_keep_apart(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            texts = ["red", "green", "blue", EMOJI]
            reports = await asyncio.gather(
                *(report_of(assistant.reply(said(text))) for text in texts)
            )
        assert [report.text for report in reports] == texts

    @asynchronous
    async def test_measured_acceptance_is_kept(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            await report_of(assistant.reply(said("abc")))
            kept = assistant.history.measurements.acceptance("fake", "lookup")
        assert kept.replies == 1
        assert kept.depths == (DepthCount(2, 1),)


def remembered(assistant: Assistant) -> list[tuple[str, str, int]]:
    """Task, temperature and replies of everything that was measured."""
    rows = assistant.history.measurements.remembered()
    return [(row.origin.task, row.origin.temperature, row.replies) for row in rows]


class TestGuidance:
    """What one reply measures reaches the next request of the same kind."""

    @asynchronous
    async def test_turns_and_conversations_learn_from_each_other(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            made = assistant.history.create_conversation("test")
            whys = [
                (await report_of(assistant.reply(said("tell me a story")))).stats.why,
                (await report_of(assistant.send(made.id, "and what about cats", PLAIN))).stats.why,
                (await report_of(assistant.regenerate(made.id, PLAIN))).stats.why,
            ]
            assert remembered(assistant) == [("chat", "greedy", 3)]
        assert whys == [f"the fake was told of {n}" for n in ("nothing", "lookup", "lookup")]

    @asynchronous
    async def test_a_closed_and_opened_assistant_still_knows(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            await report_of(assistant.reply(said("tell me a story")))
        async with assisted(tmp_path) as assistant:
            report = await report_of(assistant.reply(said("tell me another")))
        assert report.stats.why == "the fake was told of lookup"

    @asynchronous
    async def test_each_turn_is_filed_under_its_kind(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            hot = SamplingParams(temperature=1.0)
            first = await report_of(assistant.reply(said("What is 17 + 25?")))
            second = await report_of(assistant.reply(said("What is 18 + 25?", sampling=hot)))
            assert remembered(assistant) == [("maths", "greedy", 1), ("maths", "hot", 1)]
            (origin, _) = (row.origin for row in assistant.history.measurements.remembered())
        assert (origin.model, origin.draft) == ("fake", "")
        assert origin.machine.endswith(", cpu, float32")
        assert first.stats.why == second.stats.why == "the fake was told of nothing"

    @asynchronous
    async def test_a_stopped_answer_counts_too(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            deltas = assistant.send(made.id, "count", PLAIN)
            await anext(deltas)
            assistant.stop(made.id)
            report = await report_of(deltas)
            assert report.finish_reason is FinishReason.CANCELLED
            assert remembered(assistant) == [("chat", "greedy", 1)]

    @asynchronous
    async def test_a_crash_measures_nothing(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            deltas = assistant.reply(said("count"))
            await anext(deltas)
            kill(assistant)
            await report_of(deltas)
            assert remembered(assistant) == []

    @asynchronous
    async def test_a_history_that_cannot_be_read_costs_no_answer(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with assisted(tmp_path) as assistant:
            assistant.history.close()
            report = await report_of(assistant.reply(said("abc")))
        assert report.text == "abc"
        assert "starts without what earlier ones measured" in caplog.text


class TestRefusals:
    @pytest.mark.parametrize(
        ("turn", "error", "sentence"),
        [
            (Turn(()), InvalidRequest, "prompt is empty"),
            (said("  \n"), InvalidRequest, "prompt is empty"),
            (said("\ud83d"), InvalidRequest, r"half a character \(U\+D83D\) at position 0"),
            (said("a", stop=("\udc00",)), InvalidRequest, "a stop text holds half a character"),
            (said("a", stop=("",)), InvalidRequest, "a stop text is empty"),
            (said("a", max_tokens=0), InvalidRequest, "max_tokens is 0"),
            (said("a", drafter="magic"), UnknownDrafter, "no drafter named 'magic'; choose from"),
            (said("a", drafter="chain"), InvalidRequest, "chain cannot run with fake: it has no"),
            (said("word " * 300), ContextOverflow, "the model holds 256"),
            (Turn((Message("root", "a"),)), InvalidRequest, "no role 'root'"),
        ],
    )
    @asynchronous
    async def test_come_before_the_first_piece(
        self, turn: Turn, error: type[Exception], sentence: str, tmp_path: Path
    ) -> None:
        async with assisted(tmp_path) as assistant:
            with pytest.raises(error, match=sentence):
                await anext(assistant.reply(turn))

    @asynchronous
    async def test_of_the_engine_come_before_the_first_piece_too(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            assistant._text = ChatTextThatIsPoison()
            with pytest.raises(InvalidRequest, match="poison"):
                await anext(assistant.reply(said("a")))
            assert assistant.history.measurements.acceptance("fake", "auto") is None


class ChatTextThatIsPoison(ChatText):
    def __init__(self) -> None:
        vars(self).update(vars(TEXT))

    def encode_chat(self, messages: object) -> tuple[int, ...]:
        return (fake_engine.POISON, 2, 4)


class TestConversation:
    @asynchronous
    async def test_messages_and_answers_are_stored_in_turn(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            made = assistant.history.create_conversation("test")
            for text in ("first", "second"):
                assert (await report_of(assistant.send(made.id, text, PLAIN))).text == text
            path = assistant.history.messages(made.id)
        assert [(one.role, one.content) for one in path] == [
            ("user", "first"),
            ("assistant", "first"),
            ("user", "second"),
            ("assistant", "second"),
        ]
        assert [one.finish_reason for one in path] == [None, FinishReason.STOP] * 2

    @asynchronous
    async def test_the_model_reads_the_whole_conversation(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            made = assistant.history.create_conversation("test")
            first = await report_of(assistant.send(made.id, "first", PLAIN))
            second = await report_of(assistant.send(made.id, "second", PLAIN))
        assert second.stats.prompt_tokens > first.stats.prompt_tokens + first.stats.emitted

    @asynchronous
    async def test_regenerate_adds_a_version(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            made = assistant.history.create_conversation("test")
            await report_of(assistant.send(made.id, "one two", PLAIN))
            short = await report_of(assistant.regenerate(made.id, ReplyOptions(max_tokens=1)))
            path = assistant.history.messages(made.id)
            versions = assistant.history.versions(path[-1].id)
        assert [one.role for one in path] == ["user", "assistant"]
        assert [one.content for one in versions] == ["one two", short.text]

    @asynchronous
    async def test_nothing_is_stored_of_what_cannot_be_answered(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            made = assistant.history.create_conversation("test")
            for text, error in (("", InvalidRequest), ("word " * 300, ContextOverflow)):
                with pytest.raises(error):
                    await anext(assistant.send(made.id, text, PLAIN))
            assert assistant.history.messages(made.id) == []

    @asynchronous
    async def test_conversations_that_are_not_there(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            with pytest.raises(UnknownConversation):
                await anext(assistant.send("nowhere", "hello", PLAIN))
            with pytest.raises(UnknownConversation, match="holds no question yet"):
                await anext(assistant.regenerate("nowhere", PLAIN))

    @asynchronous
    async def test_two_at_once_are_answered_one_after_the_other(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            made = assistant.history.create_conversation("test")
            sends = [assistant.send(made.id, text, PLAIN) for text in ("a", "b", "c")]
            await asyncio.gather(*map(report_of, sends))
            path = assistant.history.messages(made.id)
        assert [one.role for one in path] == ["user", "assistant"] * 3
        assert [one.content for one in path][::2] == [one.content for one in path][1::2]

    @asynchronous
    async def test_options_reach_the_request(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            sampling = ReplyOptions(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, seed=7).sampling
        assert sampling == SamplingParams(0.5, 3, 0.9, 0.1, 7)
        assert assistant.models()[0].name == "pocket"


class TestStopping:
    @asynchronous
    async def test_closing_the_stream_stores_the_partial_answer(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            shown = ""
            async with aclosing(assistant.send(made.id, "count", PLAIN)) as deltas:
                while len(shown) < 3:
                    shown += (await anext(deltas)).text
            await assistant._settled(made.id)
            answer = assistant.history.messages(made.id)[-1]
        assert answer.finish_reason is FinishReason.CANCELLED
        assert answer.content.startswith(shown)

    @asynchronous
    async def test_the_next_turn_finds_the_partial_answer(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            async with aclosing(assistant.send(made.id, "count", PLAIN)) as deltas:
                await anext(deltas)
            await report_of(assistant.send(made.id, "again", ReplyOptions(max_tokens=3)))
            roles = [one.role for one in assistant.history.messages(made.id)]
        assert roles == ["user", "assistant"] * 2

    @asynchronous
    async def test_stop_ends_the_stream_with_a_report(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            deltas = assistant.send(made.id, "count", PLAIN)
            await anext(deltas)
            assistant.stop(made.id)
            report = await report_of(deltas)
            assistant.stop(made.id)  # nothing is running: nothing happens
        assert report.finish_reason is FinishReason.CANCELLED
        assert report.stats.drafter == "lookup"

    @asynchronous
    async def test_closing_the_assistant_stores_running_answers(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            deltas = assistant.send(made.id, "count", PLAIN)
            await anext(deltas)
        history = History.open(tmp_path / "history.db")
        assert history.messages(made.id)[-1].finish_reason is FinishReason.CANCELLED
        history.close()
        assert (await report_of(deltas)).finish_reason is FinishReason.CANCELLED


class TestCrash:
    @asynchronous
    async def test_keeps_the_partial_answer_and_the_next_one_works(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            deltas = assistant.send(made.id, "count", PLAIN)
            first = [await anext(deltas) for _ in range(5)]
            kill(assistant)
            pieces, report = await all_of(deltas)
            stored = assistant.history.messages(made.id)[-1]
            again = await report_of(assistant.regenerate(made.id, ReplyOptions(max_tokens=4)))
        assert report.finish_reason is stored.finish_reason is FinishReason.ERROR
        assert "SIGKILL" in report.error
        assert report.text == stored.content == "".join(p.text for p in first + pieces)
        assert report.stats.emitted == report.stats.passes == len(report.token_ids)
        assert again.error is None
        assert len(again.token_ids) == 4

    @asynchronous
    async def test_an_answer_that_cannot_be_stored_is_still_given(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            assistant.history.close()
            report = await report_of(assistant.reply(said("abc")))
        assert report.text == "abc"
        assert report.error.startswith("this answer was not stored: the history")


class TestOpen:
    @asynchronous
    async def test_the_bundled_model_answers_the_same_with_every_drafter(
        self, tmp_path: Path
    ) -> None:
        assistant = await Assistant.open(Settings(home=tmp_path), "pocket")
        try:
            turn = said("Say hello and list the numbers from 1 to 5.", max_tokens=24)
            answers = {}
            for drafter in assistant.facts.drafters:
                asked = Turn(turn.messages, max_tokens=24, drafter=drafter)
                answers[drafter] = (await report_of(assistant.reply(asked))).token_ids
            assert {*answers, AUTO} == {*DRAFTERS, AUTO}
            assert set(answers.values()) == {answers["none"]}
            assert assistant.entry.name == "pocket"
        finally:
            await assistant.close()

    @asynchronous
    async def test_a_model_that_nobody_knows(self, tmp_path: Path) -> None:
        with pytest.raises(UnknownModel, match="known models: pocket"):
            await Assistant.open(Settings(home=tmp_path), "nobody")

    @asynchronous
    async def test_a_damaged_model_leaves_nothing_behind(self, tmp_path: Path) -> None:
        folder = tmp_path / "damaged"
        folder.mkdir()
        for file in POCKET.iterdir():
            content = b"" if file.suffix == ".safetensors" else file.read_bytes()
            (folder / file.name).write_bytes(content)
        with pytest.raises(ModelUnusable):
            await Assistant.open(Settings(home=tmp_path), str(folder))
