"""Turns over a real process, a real database and the bundled tokenizer."""

import asyncio
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from app.chat.assistant import Assistant
from app.errors import UnknownDrafter
from app.request import (
    CallDelta,
    ChatRequest,
    Completion,
    Delta,
    Message,
    PredictionUsage,
    combined,
)
from app.settings import Settings
from app.text.chat_text import ChatText, RenderedChat
from engine.drafters import DRAFTERS
from engine.errors import ContextOverflow, InvalidRequest
from engine.request import AUTO, FinishReason, SamplingParams
from engine.runtime.registry import drafter_class
from tests.app import fake_engine
from tests.app.assisted import (
    PLAIN,
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
    @pytest.mark.parametrize(
        ("turn", "text", "reason"),
        [
            (said(EMOJI), EMOJI, FinishReason.STOP),
            (said("one two three four", stop=("o th", "never")), "one tw", FinishReason.STOP),
            (said("a b stop", stop=("stopped",)), "a b stop", FinishReason.STOP),
            (said(EMOJI, max_tokens=1), None, FinishReason.LENGTH),
        ],
    )
    @asynchronous
    async def test_pieces_joined_are_the_report(self, tmp_path, turn, text, reason):
        async with assisted(tmp_path) as assistant:
            pieces, report = await all_of(assistant.reply(turn))
        assert report.text == "".join(piece.text for piece in pieces)
        assert report.token_ids == tuple(token for p in pieces for token in p.token_ids)
        assert text in (report.text, None)
        assert len(report.token_ids) == turn.max_tokens or reason is FinishReason.STOP
        assert (report.finish_reason, report.error) == (reason, None)

    @asynchronous
    async def test_a_prediction_is_compared_with_the_answer_and_is_no_part_of_the_prompt(
        self, tmp_path
    ):
        async with assisted(tmp_path) as assistant:
            plain = await report_of(assistant.reply(said("one two three")))
            right = await report_of(assistant.reply(said("one two three", prediction=plain.text)))
            part = await report_of(assistant.reply(said("one two three", prediction="one three")))
        assert plain.prediction is None
        assert right.prediction == PredictionUsage(len(right.token_ids), 0)
        assert part.prediction is not None
        assert 0 < part.prediction.accepted < len(plain.token_ids)
        assert right.stats.prompt_tokens == plain.stats.prompt_tokens

    @asynchronous
    async def test_log_probabilities_come_with_every_token_when_asked_for(self, tmp_path):
        async with assisted(tmp_path) as assistant:
            plain = await report_of(assistant.reply(said("one two three")))
            pieces, told = await all_of(assistant.reply(said("one two three", logprobs=0)))
            spelt = b"".join(map(assistant.loaded.text.token_bytes, told.token_ids))
        assert plain.logprobs == ()
        assert tuple(one for piece in pieces for one in piece.logprobs) == told.logprobs
        assert tuple(one.token for one in told.logprobs) == told.token_ids
        assert spelt.decode() == told.text

    @asynchronous
    async def test_without_max_tokens_the_context_is_the_limit(self, tmp_path):
        async with assisted(tmp_path, fake_engine.counting) as assistant:
            report = await report_of(assistant.reply(said("a")))
        assert report.finish_reason is FinishReason.LENGTH
        assert report.stats.prompt_tokens + report.stats.emitted == fake_engine.CONTEXT

    @asynchronous
    async def test_answers_at_the_same_time_keep_apart(self, tmp_path):
        async with assisted(tmp_path) as assistant:
            texts = ["red", "green", "blue", EMOJI]
            reports = await asyncio.gather(
                *(report_of(assistant.reply(said(text))) for text in texts)
            )
        assert [report.text for report in reports] == texts

    @asynchronous
    async def test_measured_acceptance_is_kept(self, tmp_path):
        async with assisted(tmp_path) as assistant:
            await report_of(assistant.reply(said("abc")))
            (kept,) = assistant.history.measurements.remembered("fake")
        assert (kept.origin.drafter, kept.replies) == ("lookup", 1)
        assert kept.depths == fake_engine.RUN.depths


class CountedRenders(ChatText):
    def __init__(self) -> None:
        vars(self).update(vars(TEXT))
        self.renders = 0

    def render(self, *given: Any) -> RenderedChat:
        self.renders += 1
        return super().render(*given)


class TestPassesThatCameTogether:
    @asynchronous
    async def test_are_one_delta_with_all_of_them(self, tmp_path):
        async with assisted(tmp_path, fake_engine.counting) as assistant:
            deltas, completion = await all_of(assistant.reply(said("a", max_tokens=30)))
        assert completion.stats.passes == 15
        assert len(deltas) < 15
        assert tuple(token for one in deltas for token in one.token_ids) == completion.token_ids
        assert "".join(one.tagged for one in deltas) == completion.text
        assert sum(one.accepted for one in deltas) == completion.stats.accepted

    def test_stay_apart_where_one_would_change_their_order(self):
        text, call = Delta("", "a", (), "a", (1,)), Delta("", "", (CallDelta(0, "{}"),), "b", (2,))
        arrived = [text, text, call, text]
        found = [combined([*alike]) for _, alike in groupby(arrived, Delta.parts)]
        assert [(one.text, len(one.calls)) for one in found] == [("aa", 0), ("", 1), ("a", 0)]


class TestSeveralAnswers:
    @asynchronous
    async def test_share_one_rendered_prompt(self, tmp_path):
        """Each of them was rendered and encoded again, up to 16 times."""
        text = CountedRenders()
        async with assisted(tmp_path, text=text) as assistant:
            found = [
                arrived
                async for arrived in assistant.answers(
                    [await assistant.prepare(said("one two"))], 3
                )
            ]
        ends = {at: event.text for at, event in found if isinstance(event, Completion)}
        assert ends == dict.fromkeys(range(3), "one two")
        assert text.renders == 1

    @asynchronous
    async def test_report_silence(self, tmp_path):
        async with assisted(tmp_path, fake_engine.slow_reader) as assistant:
            found = [
                one
                async for one in assistant.answers(
                    [await assistant.prepare(said("a b c d e"))], 1, 0.0005
                )
            ]
        assert None in found
        assert isinstance(found[-1][1], Completion)


def remembered(assistant: Assistant) -> list[tuple[str, str, int]]:
    """Task, temperature and replies of everything that was measured."""
    rows = assistant.history.measurements.remembered()
    return [(row.origin.task, row.origin.temperature, row.replies) for row in rows]


class TestGuidance:
    """What one reply measures reaches the next request of the same kind."""

    @asynchronous
    async def test_turns_and_conversations_learn_from_each_other(self, tmp_path):
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
    async def test_a_closed_and_opened_assistant_still_knows(self, tmp_path):
        async with assisted(tmp_path) as assistant:
            await report_of(assistant.reply(said("tell me a story")))
        async with assisted(tmp_path) as assistant:
            report = await report_of(assistant.reply(said("tell me another")))
        assert report.stats.why == "chat: the fake was told of lookup"

    @asynchronous
    async def test_what_runs_next_to_it_ends_before_its_history(self, tmp_path):
        written = []
        async with assisted(tmp_path) as assistant:

            async def end() -> None:
                written.append(assistant.history.create_conversation("the last one").title)

            assistant.before_close(end)
            assert not written
        assert written == ["the last one"]

    @asynchronous
    async def test_each_turn_is_filed_under_its_kind(self, tmp_path):
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
    async def test_a_stopped_answer_counts_too(self, tmp_path):
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            made = assistant.history.create_conversation("test")
            reply = await assistant.send(made.id, "count", PLAIN)
            await begun(reply)
            assistant.stop(made.id)
            report = await ended(reply)
            assert report.finish_reason is FinishReason.CANCELLED
            assert remembered(assistant) == [("chat", "greedy", 1)]

    @asynchronous
    async def test_a_crash_measures_nothing(self, tmp_path):
        async with assisted(tmp_path, fake_engine.endless) as assistant:
            deltas = assistant.reply(said("count"))
            await anext(deltas)
            kill(assistant)
            await report_of(deltas)
            assert remembered(assistant) == []

    @asynchronous
    async def test_a_history_that_is_closed_costs_no_answer(self, tmp_path, caplog):
        async with assisted(tmp_path) as assistant:
            assistant.history.close()
            report = await report_of(assistant.reply(said("abc")))
        assert report.text == "abc"
        assert "starts without the measurements" in caplog.text
        assert report.error is None, "a program keeps its own answers"
        assert "what an answer measured is not kept" in caplog.text


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
    async def test_come_before_the_first_piece(self, turn, error, sentence, tmp_path):
        async with assisted(tmp_path) as assistant:
            with pytest.raises(error, match=sentence):
                await anext(assistant.reply(turn))

    @asynchronous
    async def test_of_its_length_keep_no_prompt_from_being_counted(self, tmp_path):
        """Programs count to learn whether a prompt fits, and were refused where it did not."""
        async with assisted(tmp_path) as assistant:
            short, long = said("word"), said("word " * 300)
            assert await assistant.prompt_tokens(short) < 256
            assert await assistant.prompt_tokens(long) > 256
            with pytest.raises(InvalidRequest, match="no role 'root'"):
                await assistant.prompt_tokens(ChatRequest((Message("root", "a"),)))


@asynchronous
async def test_the_bundled_model_answers_the_same_with_every_drafter_and_from_a_text(tmp_path):
    assistant = await Assistant.open(Settings(home=tmp_path), "pocket")
    try:
        turn = said("What is 17 + 25? Then list the numbers from 1 to 5.", max_tokens=24)
        answers = {}
        for drafter in assistant.facts.drafters:
            answers[drafter] = await report_of(assistant.reply(replace(turn, drafter=drafter)))
        listed = {name for name in DRAFTERS if name == AUTO or drafter_class(name).listed}
        assert {*answers, AUTO} == listed
        plain = answers["none"]
        assert {answer.token_ids for answer in answers.values()} == {plain.token_ids}
        assert assistant.entry.name == "pocket"

        text = f"<|bos|><|user|>{turn.messages[0].content}<|end|><|assistant|>"
        written = ChatRequest((), max_tokens=24, text=text)
        assert (await report_of(assistant.reply(written))).token_ids == plain.token_ids
        half = plain.text[:10]
        rest = await report_of(assistant.reply(replace(written, text=text + half)))
        assert (half + rest.text).startswith(plain.text)
    finally:
        await assistant.close()
