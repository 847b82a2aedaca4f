"""Marks of thoughts come from templates, and prompts continue in them."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Message
from app.text.answer_formats import HarmonyFormat, PlainFormat, ReasoningFormat
from app.text.chat_text import ChatText
from app.text.reasoning.markers import LONGEST, ReasoningMarkers, deduced
from app.text.reasoning.tags import joined
from app.text.template import ChatTemplate
from app.text.vocabulary import FolderVocabulary
from tests.app.text.harmony import channelled
from tests.app.text.parsing import thought_and
from tests.app.text.reasoning.marked import (
    COHERE,
    CONTROL,
    GEMMA,
    MARKS,
    SEED,
    ids_of,
    shown,
    text_of,
    typed,
)
from tests.app.text.test_chat_text import POCKET_TEXT
from tests.engine.models.gguf import tiny

ASKED = Message("user", "17 + 25?")
TEXTS = {template: text_of(template) for template in MARKS}

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>[]"), max_size=12)
attacks = st.lists(words | st.sampled_from([*CONTROL, "<|", "|>", "end"]), max_size=5).map("".join)
trimmed = attacks.map(str.strip)


def of(before: str, after: str, plain: str = "") -> str:
    """A template that writes these around a thought, or ``plain`` where there is none."""
    return (
        "{% for m in messages %}[{{ m.role }}]"
        f"{{% if m.thinking %}}{before}{{{{ m.thinking }}}}{after}{{% elif m.role == 'assistant' %}}{plain}"
        "{% endif %}{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}</call>{% endfor %}"
        "<end>{% endfor %}[assistant]"
    )


def found(source: str) -> ReasoningMarkers | None:
    return deduced(ChatTemplate(source, {}).render)


class TestDeduction:
    @pytest.mark.parametrize("template", MARKS)
    def test_finds_them(self, template: str) -> None:
        assert isinstance(TEXTS[template].format, ReasoningFormat)
        assert found(template) == MARKS[template]  # whatever of them is a control token

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("<mm:think>", "</mm:think>"),
            ("<think:open>", "</think:open>\n"),
            ("[THINK]", "[/THINK]"),
            ("<begin_of_thought>\n", "\n<end_of_thought>\n\n"),
        ],
    )
    def test_takes_tags(self, before: str, after: str) -> None:
        assert found(of(before, after)) == ReasoningMarkers(before, after)
        assert found(of(before, after, before + after)) == ReasoningMarkers(before, after)
        assert found(of(before, after, after)) == ReasoningMarkers(before, after)

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("<think>", "</think>"),
            ("<think>\n", "\n</think>\n\n"),
            ("", ""),
            ("\n", "\n"),
            ("Thought: ", "\n"),
            ("<seed:think>", ""),
            ("<seed:think>", " and "),
            ("", "</seed:think>"),
            ("<|think|>", "<|end|>"),
            ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
            ("<seed:think>", "</seed:think> of the assistant: "),
            (f"<think:{'x' * LONGEST}>", f"</think:{'x' * LONGEST}>"),
            (f"<|channel>{'x' * LONGEST}", "<channel|>"),
        ],
    )
    def test_gives_none_where_nothing_is_clear(self, before: str, after: str) -> None:
        assert found(of(before, after)) is None
        assert found(of(before, after, after)) is None

    @pytest.mark.parametrize(
        "source",
        [
            of("", "[/assistant]"),  # the head of every answer
            of("", "[/assistant]", "No thought."),
            "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}",
            "{{ raise_exception('no') }}",
        ],
    )
    def test_gives_none_without_a_place_for_thoughts(self, source: str) -> None:
        assert found(source) is None
        assert isinstance(POCKET_TEXT.format, PlainFormat)

    def test_gives_none_where_there_are_channels(self) -> None:
        for source in (channelled.TEMPLATE, SEED):
            vocabulary = FolderVocabulary(channelled.TOKENIZER)
            text = ChatText(vocabulary, ChatTemplate(source, {}), ())
            assert isinstance(text.format, HarmonyFormat)


def begun_in(template: str, begun: str, *, thinks: bool = True, **variables: bool) -> str:
    """What comes after the head of the answer."""
    text = TEXTS[template]
    prompt = text.prompt([ASKED], begun, thinks=thinks, variables=variables)
    assert prompt.opened == ("<think>\n" if not begun and thinks and template == COHERE else "")
    written = shown(prompt.ids)
    heads = ("<|turn>model\n", "<seed:bos>assistant\n", "<|CHATBOT_TOKEN|>")
    return next(written.partition(head)[2] for head in heads if head in written)


class TestPrompts:
    @pytest.mark.parametrize("template", MARKS)
    @pytest.mark.parametrize("thinks", [True, False])
    def test_go_on_in_the_marks_of_the_model(self, template: str, thinks: bool) -> None:
        opening, closing = MARKS[template].opening, MARKS[template].closing
        opens = template == COHERE
        rest = "" if thinks else closing
        said = f"{opening}{closing}" if opens else ""
        cases = {
            "": f"{opening}{rest}" if opens else "",
            "Forty": f"{said}Forty",
            "<think>\n": f"{opening}{rest}",
            "<think>\nLet me ": f"{opening}Let me {rest}",
            thought_and("Oh.", ""): f"{opening}Oh.{closing}",
            thought_and("Oh.", "Forty"): f"{opening}Oh.{closing}Forty",
            "<think>Oh.</think>Forty": f"{opening}Oh.{closing}Forty",
        }
        for begun, written in cases.items():
            assert begun_in(template, begun, thinks=thinks) == written

    def test_have_no_empty_thought_before_one(self) -> None:
        off = {"enable_thinking": False}
        assert begun_in(GEMMA, "Forty", **off) == "<|channel>thought\n<channel|>Forty"
        assert begun_in(GEMMA, "<think>\nOh", **off) == "<|channel>thought\nOh"

    @given(st.sampled_from([*MARKS]), trimmed, trimmed)
    def test_are_told_as_what_has_begun(self, template: str, thought: str, said: str) -> None:
        text = TEXTS[template]
        head = len(text.prompt([ASKED], "").ids) - (template == COHERE)
        for begun in (thought_and(thought, said), f"<think>\n{thought}"):
            decoded = text.decode(text.prompt([ASKED], begun).ids[head:])
            assert decoded == (begun if thought else said if "</think>" in begun else "")

    @given(st.sampled_from([*MARKS]), attacks)
    def test_hold_no_control_token_that_was_typed(self, template: str, written: str) -> None:
        text = TEXTS[template]
        plain = text.prompt([ASKED], thought_and("a", "b")).ids
        ids = text.prompt([Message("user", written)], thought_and(written, written)).ids
        own = [token for token in plain if token < len(CONTROL)]
        assert [token for token in ids if token < len(CONTROL)] == own

    @given(st.sampled_from([*MARKS]), trimmed.filter(bool), trimmed, attacks)
    def test_are_whole_with_what_comes(
        self, template: str, one: str, other: str, said: str
    ) -> None:
        rest = [*typed(other), *ids_of(MARKS[template].closing), *typed(said)]
        self.continues(template, f"<think>\n{one}", rest, thought_and(one + other, said.lstrip()))
        self.continues(template, thought_and(one, one), typed(said), thought_and(one, one + said))
        self.continues(template, one, typed(said), one + said)

    def continues(self, template: str, begun: str, rest: Sequence[int], whole: str) -> None:
        stream = TEXTS[template].detokenizer(begun)
        assert begun + joined([*stream.feed(rest), *stream.end()]) == whole

    def test_that_open_a_thought_tell_it(self) -> None:
        prompt = TEXTS[COHERE].prompt([ASKED])
        stream = TEXTS[COHERE].detokenizer("", prompt.opened)
        answer = ids_of("I add.<|END_THINKING|><|START_TEXT|>42.<|END_TEXT|>")
        whole = prompt.opened + joined([*stream.feed(answer), *stream.end()])
        assert whole == thought_and("I add.", "42.")

    def test_offer_not_to_think_where_that_changes_them(self) -> None:
        assert TEXTS[COHERE].thinking == ("off",)
        assert TEXTS[SEED].thinking == ()


def test_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llama_cpp")
    said = tiny.byte_level(CONTROL, eos=CONTROL.index("<turn|>"), template=GEMMA)
    monkeypatch.setattr(tiny, "metadata", lambda: said)
    text = ChatText.load(tiny.write(tmp_path / "tiny.gguf"))
    begun = thought_and("Oh <|channel>.", "42")
    ids = text.prompt([ASKED], begun).ids[len(text.prompt([ASKED]).ids) :]
    channel = [CONTROL.index("<|channel>"), CONTROL.index("<channel|>")]
    assert [token for token in ids if token < len(CONTROL)] == channel
    assert text.decode(ids) == begun
