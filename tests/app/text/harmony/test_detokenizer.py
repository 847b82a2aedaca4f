"""Answers in channels are one text, whatever the grouping of their tokens, and no header is in it."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Tool
from app.text.detokenizer import Detokenizer
from app.text.harmony.detokenizer import HarmonyDetokenizer
from app.text.harmony.format import HarmonyTokens
from app.text.tools.call_format import DEFAULT_FORM
from app.text.tools.call_parser import ToolCallParser
from app.text.vocabulary import FolderVocabulary
from tests.app.text.harmony.channelled import ANALYSIS, CONTROL, FINAL, NEXT, TOKENIZER, ids_of
from tests.app.text.parsing import cut, fed, parsed, rest, thought_and

VOCABULARY = FolderVocabulary(TOKENIZER)
CHANNELS = HarmonyTokens.of(VOCABULARY)
COMMENTARY = "<|channel|>commentary<|message|>"
FIRST = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
LAST = " to=functions.add<|channel|>commentary json<|message|>"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 17}}\n</tool_call>'

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>"), max_size=12)


def decoded(ids: Sequence[int], places: Sequence[int] = ()) -> str:
    """The text of these tokens, fed in groups that end at ``places``."""
    stream = HarmonyDetokenizer(CHANNELS, VOCABULARY.bytes)
    return "".join(fed(stream, piece) for piece in cut(ids, places)) + rest(stream)


class TestLaws:
    @given(st.lists(st.integers(len(CONTROL), TOKENIZER.get_vocab_size() - 1), max_size=12))
    def test_without_control_tokens_it_is_shown_as_it_is(self, ids: list[int]) -> None:
        plain = Detokenizer(VOCABULARY.bytes)
        assert decoded(ids) == plain.feed(ids) + plain.end()

    @given(st.lists(words.filter(bool), max_size=3), words, st.lists(st.integers(0, 99)))
    def test_thoughts_and_answer_come_back(
        self, thoughts: list[str], said: str, places: list[int]
    ) -> None:
        parts = [*(ANALYSIS + each for each in thoughts), FINAL + said]
        ids = ids_of(NEXT.join(parts) + "<|return|>")
        between = "\n\n".join(thoughts)
        tagged = thought_and(between, said) if thoughts else said
        assert decoded(ids, places) == tagged
        stream = HarmonyDetokenizer(CHANNELS, VOCABULARY.bytes)
        delta = parsed([*stream.feed(ids), *stream.end()])
        assert delta.reasoning == between.strip()
        assert delta.text == (said.lstrip() if thoughts else said)

    @given(st.sampled_from([FIRST, LAST]), st.dictionaries(words, words, max_size=3), st.booleans())
    def test_a_call_is_read_as_one(self, header: str, given: dict, thinks: bool) -> None:
        before = f"{ANALYSIS}I add.{NEXT}" if thinks else ""
        stream = HarmonyDetokenizer(CHANNELS, VOCABULARY.bytes)
        parts = stream.feed(ids_of(before + header) + ids_of(json.dumps(given)))
        parts += stream.end()
        delta = parsed(parts, ToolCallParser(DEFAULT_FORM, [Tool("add")]))
        assert (delta.text, delta.reasoning) == ("", "I add." if thinks else "")
        assert delta.calls[0].name == "add"
        assert json.loads("".join(part.arguments for part in delta.calls)) == given
        assert delta.tagged.endswith(DEFAULT_FORM.after)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("", ""),
        ("Five.", "Five."),
        (" to=day", " to=day"),
        (" to=day, then", " to=day, then"),
        (f"{ANALYSIS}Hm.{NEXT}{FINAL}Five.<|return|>", "<think>\nHm.\n</think>\n\nFive."),
        (f"{FINAL}Five.", "Five."),
        (f"{FINAL}a{NEXT}{FINAL}b", "a\n\nb"),
        ("<|message|>Five.", "Five."),
        (f"{ANALYSIS}Hm.<|end|>{FINAL}Five.", "<think>\nHm.\n</think>\n\nFive."),  # no start
        (f"{ANALYSIS}Hm.<|end|>Five.", "<think>\nHm.\n</think>\n\nFive."),
        (f"{ANALYSIS}a{ANALYSIS}b", "<think>\na\n\nb"),  # no end
        (f"{ANALYSIS}{NEXT}{FINAL}Five.", "Five."),
        (f"{ANALYSIS}Hm.{NEXT}{COMMENTARY}So.{NEXT}{ANALYSIS}x{NEXT}{FINAL}Five.",
         "<think>\nHm.\n</think>\n\nSo.\n\nFive."),
        (f"{ANALYSIS}Let me", "<think>\nLet me"),  # cut short
        (f'{FIRST}{{"a": 17', CALL.partition("}")[0]),
        (f"{ANALYSIS}Hm.{NEXT}{FIRST}", "<think>\nHm.\n</think>\n\n"),
        (f'{COMMENTARY}I add.{NEXT}{LAST}{{"a": 17}}<|call|>', f"I add.\n\n{CALL}"),
        ('<|channel|>commentary to=add json<|message|>{"a": 17}', CALL),
        (f'{FIRST[:-11]}<|message|>{{"a": 17}}', CALL),
        ("<|channel|>analysis to=python code<|message|>1+1<|call|>", "<think>\n1+1\n</think>\n\n"),
    ],
)  # fmt: skip
def test_what_becomes_of_parts(written: str, text: str) -> None:
    assert decoded(ids_of(written)) == text


class TestCutShort:
    @pytest.mark.parametrize("header", [ANALYSIS, FINAL, COMMENTARY, FIRST])
    def test_in_a_header(self, header: str) -> None:
        ids = ids_of(header)
        assert [decoded(ids[:n]) for n in range(1, len(ids) + 1)] == [""] * len(ids)
        before = ids_of(f"{ANALYSIS}Hm.{NEXT}")
        text = "<think>\nHm.\n</think>\n\n"
        assert {decoded(before + ids[:n]) for n in range(len(ids))} == {text}


def test_a_name_never_ends_its_string() -> None:
    text = decoded(ids_of('<|channel|>commentary to=functions.a"b\\<|message|>{}<|call|>'))
    assert json.loads(text.splitlines()[1]) == {"name": 'a"b\\', "arguments": {}}


def test_arguments_arrive_while_they_are_written() -> None:
    stream = HarmonyDetokenizer(CHANNELS, VOCABULARY.bytes)
    stream.feed(ids_of(f'{FIRST}{{"a"'))
    assert fed(stream, ids_of(": 17")) == ": 17"
