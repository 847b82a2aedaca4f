"""Prompts for models that answer in channels: thoughts stay out, answers continue in their channel."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Message, Tool, ToolCall, ToolUse
from app.text.chat_text import ChatText
from app.text.conversation import one_call_each
from app.text.reasoning.tags import joined, split_reasoning
from app.text.template import ChatTemplate
from app.text.tools.call_format import DEFAULT_FORM
from app.text.vocabulary import FolderVocabulary
from tests.app.text.harmony.channelled import (
    ANALYSIS,
    CONTROL,
    FINAL,
    TEMPLATE,
    TOKENIZER,
    files,
    ids_of,
    shown,
)
from tests.app.text.parsing import thought_and
from tests.app.text.tools import templates
from tests.engine.models.gguf import tiny

TEXT = ChatText(FolderVocabulary(TOKENIZER), ChatTemplate(TEMPLATE, {}), ())
ASKED = Message("user", "17 + 25?")
SYSTEM = "<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>"
QUESTION = "<|start|>user<|message|>17 + 25?<|end|>"
OPEN = "<|start|>assistant"
ADD = Tool("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>"), max_size=12)


class TestTextsOfPrograms:
    @pytest.mark.parametrize(
        ("text", "rest", "expected"),
        [
            ("Once", " upon", " upon"),
            ("Once <|end|>", f"{FINAL}a", "a"),
            ("<|start|>assistant", f"{FINAL}a", "a"),
            ("<|start|>assistant<|channel|>fi", "nal<|message|>a", "a"),
            (f"{OPEN}{FINAL}a", "b", "b"),
            (f"{OPEN}{ANALYSIS}a", f"b<|end|>{OPEN}{FINAL}c", "b\n</think>\n\nc"),
            (f"{OPEN}{ANALYSIS}", "b", "<think>\nb"),
        ],
    )
    def test_continue_where_they_stopped(self, text: str, rest: str, expected: str) -> None:
        stream = TEXT.text_detokenizer(text)
        assert joined([*stream.feed(ids_of(rest)), *stream.end()]) == expected


class TestThoughtsBeforeCalls:
    CALL = (ToolCall("c1", "add", {"a": 17}),)
    CAME = Message("tool", "42", answers="c1")

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (Message("assistant", "", CALL, reasoning="I add."), "I add."),
            (Message("assistant", "Well.", CALL), "Well."),
            (Message("assistant", "Well.", CALL, reasoning="I add."), "I add.\n\nWell."),
            (Message("assistant", thought_and("I add.", "Well."), CALL), "I add.\n\nWell."),
            (Message("assistant", thought_and("I add.", ""), CALL), "I add."),
        ],
    )
    def test_are_given_back(self, answer: Message, expected: str) -> None:
        prompt = shown(TEXT.encode_chat([ASKED, answer, self.CAME], tools=[ADD]))
        thought = f"{ANALYSIS}{expected}<|end|>{OPEN} to=functions.add<|channel|>"
        assert f"{QUESTION}{OPEN}{thought}" in prompt
        assert prompt.count("<|channel|>analysis") == 1


class TestEarlierAnswers:
    def test_have_no_thoughts(self) -> None:
        for said in ("42.", thought_and("I add.", "42."), "<think>I add.</think>42."):
            ids = TEXT.encode_chat([ASKED, Message("assistant", said), ASKED])
            earlier = f"{QUESTION}{OPEN}{FINAL}42.<|end|>{QUESTION}{OPEN}"
            assert shown(ids) == SYSTEM + earlier

    def test_that_were_broken_off_in_a_thought_have_none(self) -> None:
        ids = TEXT.encode_chat([ASKED, Message("assistant", "<think>\nI"), ASKED])
        assert f"{OPEN}{FINAL}<|end|>" in shown(ids)

    def test_control_texts_in_one_are_text(self) -> None:
        said = f"{FINAL}x<|return|>"
        ids = TEXT.encode_chat([ASKED, Message("assistant", thought_and(said, said))])
        system, asked, answered, opened = 3, 3, 4, 1
        assert sum(token < len(CONTROL) for token in ids) == system + asked + answered + opened
        assert said in shown(ids)

    def test_tags_that_a_person_writes_stay(self) -> None:
        ids = TEXT.encode_chat([Message("user", thought_and("a", "b"))])
        assert thought_and("a", "b") in shown(ids)

    @given(words, words, words, st.lists(words, max_size=2))
    def test_ahead_begins_the_next_prompt(
        self, thought: str, said: str, begun: str, questions: list[str]
    ) -> None:
        messages = [ASKED, Message("assistant", thought_and(thought, said))]
        ahead = TEXT.encode_ahead(messages, begun)
        assert shown(ahead).startswith(SYSTEM + QUESTION + OPEN + FINAL)
        for question in (*questions, "Why?"):
            prompt = TEXT.encode_chat([*messages, Message("user", begun + question)])
            assert prompt[: len(ahead)] == ahead


class TestEnds:
    """``<|end|>`` is that of a part, whatever the files say."""

    def test_of_a_folder(self, tmp_path: Path) -> None:
        text = ChatText.load(files(tmp_path))
        ends = {TOKENIZER.token_to_id(t) for t in ("<|return|>", "<|call|>", "<|endoftext|>")}
        assert text.stop_tokens == ends

    def test_of_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("llama_cpp")
        said = tiny.byte_level(CONTROL, eos=CONTROL.index("<|end|>"), template=TEMPLATE)
        monkeypatch.setattr(tiny, "metadata", lambda: said)
        text = ChatText.load(tiny.write(tmp_path / "tiny.gguf"))
        assert text.stop_tokens == TEXT.stop_tokens
        story = [
            ASKED,
            Message("user", "".join(CONTROL)),
            Message("assistant", "<think>a</think>b"),
        ]
        ids = text.encode_chat(story)
        assert [token for token in ids if token < len(CONTROL)] == [
            token for token in TEXT.encode_chat(story) if token < len(CONTROL)
        ]
        begun = text.prompt([ASKED], "<think>\na").ids[len(text.prompt([ASKED]).ids) :]
        assert text.decode(begun) == "<think>\na"

    def test_without_channels_it_is_what_the_files_say(self) -> None:
        plain = ChatText(FolderVocabulary(TOKENIZER), ChatTemplate("", {}), {3})
        assert 3 not in plain.stop_tokens
        without = ChatText(Without(TOKENIZER), ChatTemplate("", {}), {3})
        assert without.stop_tokens == {3}
        assert without.decode(ids_of(f"{ANALYSIS}a<|end|>b")) == "analysisab"


class Without(FolderVocabulary):
    """The same vocabulary, whose mark of a channel is no control token."""

    def control_texts(self) -> list[str]:
        return [text for text in super().control_texts() if text != "<|channel|>"]


class TestTools:
    CALLS = tuple(ToolCall(f"c{n}", "add", {"a": n}) for n in range(2))
    RESULTS = tuple(Message("tool", f"sum {n}", answers=f"c{n}") for n in (1, 0))

    def test_are_written_by_a_template_with_their_channel(self) -> None:
        said = shown(TEXT.encode_chat([ASKED], tools=[ADD]))
        assert "namespace functions {\n// Adds.\ntype add = " in said
        assert "You may call functions" not in said

    def test_are_in_words_with_other_templates(self) -> None:
        for source in (templates.NO_TOOLS, TEMPLATE.replace("to=functions.' + call", "' + call")):
            text = ChatText(FolderVocabulary(TOKENIZER), ChatTemplate(source, {}), ())
            assert "You may call functions" in shown(text.encode_chat([ASKED], tools=[ADD]))
            assert text.call_form == DEFAULT_FORM

    def test_each_call_comes_with_its_result(self) -> None:
        story = [ASKED, Message("assistant", "I add.", self.CALLS), *self.RESULTS]
        said = shown(TEXT.encode_chat(story, tools=[ADD]))
        calls = "".join(
            f'{OPEN} to=functions.add<|channel|>commentary json<|message|>{{"a": {n}}}<|call|>'
            f'<|start|>functions.add to=assistant<|channel|>commentary<|message|>"sum {n}"<|end|>'
            for n in range(2)
        )
        assert said.endswith(f"{QUESTION}{OPEN}{ANALYSIS}I add.<|end|>{calls}{OPEN}")

    def test_nothing_else_changes_its_place(self) -> None:
        one = [ASKED, Message("assistant", "", self.CALLS[:1]), self.RESULTS[1], ASKED]
        assert one_call_each(one) == one
        again = [*one, Message("assistant", "", self.CALLS), *self.RESULTS]  # the same ids
        first, second = self.RESULTS[::-1]
        assert one_call_each(again)[4:] == [
            Message("assistant", "", self.CALLS[:1]), first,
            Message("assistant", "", self.CALLS[1:]), second,
        ]  # fmt: skip
        stray = [Message("assistant", "", self.CALLS), Message("tool", "?", answers="c7"), ASKED]
        assert [each.role for each in one_call_each(stray)] == ["assistant"] * 2 + ["tool", "user"]

    def test_in_words_hold_only_required_calls(self) -> None:
        in_words = ChatText(FolderVocabulary(TOKENIZER), ChatTemplate(templates.NO_TOOLS, {}), ())
        assert not in_words.calls_in_channels
        assert in_words.held(ToolUse((ADD,))) is None
        assert in_words.held(ToolUse((ADD,), must_call=True)) is not None


@given(words, words)
def test_split_reasoning_inverts_joining(thought: str, said: str) -> None:
    assert split_reasoning(thought_and(thought, said)) == (thought, said)
    assert split_reasoning(f"<think>\n{thought}") == (thought, None)
    assert split_reasoning(said) == (None, said)
