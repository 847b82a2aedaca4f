"""Turns over a real process, a real database and the bundled tokenizer."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.assistant import Assistant
from app.errors import UnknownDrafter, UnknownModel
from app.request import ChatRequest, Message, PredictionUsage
from app.settings import Settings
from app.text.chat_text import ChatText, Prompt
from engine.drafters import DRAFTERS
from engine.errors import ContextOverflow, InvalidRequest, ModelUnusable
from engine.request import AUTO, DepthCount, FinishReason, SamplingParams
from tests.app import fake_engine
from tests.app.assisted import (
    PLAIN,
    POCKET,
    TEXT,
    all_of,
    assisted,
    begun,
    ended,
    kill,
    report_of,
    said,
)
from tests.app.asynchronous import asynchronous

EMOJI = "👩‍🚀 naïve ☃"


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
    async def test_a_prediction_is_compared_with_the_answer_and_is_no_part_of_the_prompt(
        self, tmp_path: Path
    ) -> None:
        async with assisted(tmp_path) as assistant:
            plain = await report_of(assistant.reply(said("one two three")))
            right = await report_of(assistant.reply(said("one two three", prediction=plain.text)))
            part = await report_of(assistant.reply(said("one two three", prediction="one three")))
        assert plain.foretold is None
        assert right.foretold == PredictionUsage(len(right.token_ids), 0)
        assert part.foretold is not None
        assert 0 < part.foretold.accepted < len(plain.token_ids)
        assert right.stats.prompt_tokens == plain.stats.prompt_tokens

    @asynchronous
    async def test_log_probabilities_come_with_every_token_when_asked_for(
        self, tmp_path: Path
    ) -> None:
        async with assisted(tmp_path) as assistant:
            plain = await report_of(assistant.reply(said("one two three")))
            pieces, told = await all_of(assistant.reply(said("one two three", logprobs=0)))
            spelt = b"".join(map(assistant.token_bytes, told.token_ids))
        assert plain.logprobs == ()
        assert tuple(one for piece in pieces for one in piece.logprobs) == told.logprobs
        assert tuple(one.token for one in told.logprobs) == told.token_ids
        assert spelt.decode() == told.text

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
                (await ended(await assistant.send(made.id, "what about cats", PLAIN))).stats.why,
                (await ended(await assistant.regenerate(made.id, PLAIN))).stats.why,
            ]
            assert remembered(assistant) == [("chat", "greedy", 3)]
        assert whys == [f"chat: the fake was told of {n}" for n in ("nothing", "lookup", "lookup")]

    @asynchronous
    async def test_a_closed_and_opened_assistant_still_knows(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            await report_of(assistant.reply(said("tell me a story")))
        async with assisted(tmp_path) as assistant:
            report = await report_of(assistant.reply(said("tell me another")))
        assert report.stats.why == "chat: the fake was told of lookup"

    @asynchronous
    async def test_what_lives_beside_it_ends_before_its_history(self, tmp_path: Path) -> None:
        written = []
        async with assisted(tmp_path) as assistant:

            async def end() -> None:
                written.append(assistant.history.create_conversation("the last one").title)

            assistant.before_close(end)
            assert not written
        assert written == ["the last one"]

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
        assert first.stats.why == second.stats.why == "maths: the fake was told of nothing"

    @asynchronous
    async def test_a_stopped_answer_counts_too(self, tmp_path: Path) -> None:
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            reply = await assistant.send(made.id, "count", PLAIN)
            await begun(reply)
            assistant.stop(made.id)
            report = await ended(reply)
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
            (ChatRequest(()), InvalidRequest, "prompt is empty"),
            (said("  \n"), InvalidRequest, "prompt is empty"),
            (said("\ud83d"), InvalidRequest, r"half a character \(U\+D83D\) at position 0"),
            (said("a", stop=("\udc00",)), InvalidRequest, "a stop text holds half a character"),
            (said("a", stop=("",)), InvalidRequest, "a stop text is empty"),
            (said("a", max_tokens=0), InvalidRequest, "max_tokens is 0"),
            (said("a", drafter="magic"), UnknownDrafter, "no drafter named 'magic'; choose from"),
            (said("a", drafter="chain"), InvalidRequest, "chain cannot run with fake: it has no"),
            (said("word " * 300), ContextOverflow, "the model holds 256"),
            (ChatRequest((Message("root", "a"),)), InvalidRequest, "no role 'root'"),
        ],
    )
    @asynchronous
    async def test_come_before_the_first_piece(
        self, turn: ChatRequest, error: type[Exception], sentence: str, tmp_path: Path
    ) -> None:
        async with assisted(tmp_path) as assistant:
            with pytest.raises(error, match=sentence):
                await anext(assistant.reply(turn))

    @asynchronous
    async def test_of_its_length_keep_no_prompt_from_being_counted(self, tmp_path: Path) -> None:
        """Programs count to learn whether a prompt fits, and were refused where it did not."""
        async with assisted(tmp_path) as assistant:
            short, long = said("word"), said("word " * 300)
            assert await assistant.prompt_tokens(short) < 256
            assert await assistant.prompt_tokens(long) > 256
            with pytest.raises(InvalidRequest, match="no role 'root'"):
                await assistant.prompt_tokens(ChatRequest((Message("root", "a"),)))

    @asynchronous
    async def test_of_the_engine_come_before_the_first_piece_too(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            assistant._model = replace(assistant._model, text=ChatTextThatIsPoison())
            with pytest.raises(InvalidRequest, match="poison"):
                await anext(assistant.reply(said("a")))
            assert assistant.history.measurements.acceptance("fake", "auto") is None


class ChatTextThatIsPoison(ChatText):
    def __init__(self) -> None:
        vars(self).update(vars(TEXT))

    def prompt(self, messages: object, *more: object, **other: object) -> Prompt:
        return Prompt((fake_engine.POISON, 2, 4), "")


class TestStorage:
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
                asked = ChatRequest(turn.messages, max_tokens=24, drafter=drafter)
                answers[drafter] = (await report_of(assistant.reply(asked))).token_ids
            assert {*answers, AUTO} == {*DRAFTERS, AUTO}
            assert set(answers.values()) == {answers["none"]}
            assert assistant.entry.name == "pocket"
        finally:
            await assistant.close()

    @asynchronous
    async def test_a_text_that_is_a_chats_prompt_is_gone_on_with_as_that_chat(
        self, tmp_path: Path
    ) -> None:
        assistant = await Assistant.open(Settings(home=tmp_path), "pocket")
        try:
            answer = await report_of(assistant.reply(said("What is 17 + 25?", max_tokens=24)))
            text = "<|bos|><|user|>What is 17 + 25?<|end|><|assistant|>"
            going_on = ChatRequest((), max_tokens=24, text=text)
            assert (await report_of(assistant.reply(going_on))).token_ids == answer.token_ids
            half = answer.text[:10]
            rest = await report_of(assistant.reply(replace(going_on, text=text + half)))
            assert half + rest.text == answer.text
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
