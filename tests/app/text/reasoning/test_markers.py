"""Marks of thoughts come from templates, and prompts continue in them."""

from pathlib import Path

import pytest

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
    text_of,
)
from tests.app.text.test_chat_text import POCKET_TEXT
from tests.engine.models.gguf import tiny

ASKED = Message("user", "17 + 25?")
TEXTS = {template: text_of(template) for template in MARKS}


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


class TestPrompts:
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
