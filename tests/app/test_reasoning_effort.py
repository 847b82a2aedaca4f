"""How much a model thinks: asked in its template's own variables, and only where it can be told."""

from pathlib import Path

import pytest

from app.chat.prefetch import ExpectedQuestion
from app.reasoning_effort import THINKING, variables_for
from app.request import ChatRequest, Message, ReplyOptions
from app.text.chat_text import ChatText
from app.text.template import ChatTemplate
from app.text.vocabulary import FolderVocabulary
from engine.errors import InvalidRequest
from engine.grammar.rules import Grammar, Text
from tests.app.assisted import POCKET, assisted
from tests.app.asynchronous import asynchronous

VOCABULARY = FolderVocabulary.load(POCKET)
ASKED = [Message("user", "2 + 3?")]
LOOP = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
# The shapes in which published templates have it: Qwen 3, QwQ, Gemma 4, DeepSeek V3.1, gpt-oss, Hunyuan.
OFF = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
OPENS = "{{ '<think>\\n' }}"
ON = "{% if enable_thinking | default(false) %}{{ '<think>\\n' }}{% endif %}"
ALSO_ON = "{% if thinking | default(false) %}{{ '<think>' }}{% else %}</think>{% endif %}"
EFFORT = "({{ reasoning_effort | default('medium') }})"
PICKY = (
    "{% if reasoning_effort is defined and reasoning_effort not in ('low', 'high') %}"
    "{{ raise_exception('low or high') }}{% endif %}({{ reasoning_effort | default('no') }})"
)


def of(end: str, start: str = "") -> ChatText:
    return ChatText(VOCABULARY, ChatTemplate(start + LOOP + end, {}), ())


def told(text: ChatText, thinking: str) -> str:
    prompt = text.prompt(ASKED, thinks=thinking != "off", variables=variables_for(thinking))
    return text.decode(prompt.ids)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        (of(""), ()),
        (of(OFF), ("off",)),
        (of(OPENS), ("off",)),
        (of(ON), ("on",)),
        (of(ALSO_ON), ("on",)),
        (of("", EFFORT), ("low", "high")),
        (of("", PICKY), ("low", "high")),
        (of(ON, EFFORT), ("on", "low", "high")),
        (of("{{ raise_exception('never') }}"), ()),
    ],
)
def test_only_what_changes_the_prompt_is_offered(text: ChatText, offered: tuple[str, ...]) -> None:
    assert text.thinking == offered


@pytest.mark.parametrize(
    ("text", "thinking", "prompt"),
    [
        (of(OFF), "off", "[user]2 + 3?[assistant]<think>\n\n</think>\n\n"),
        (of(OFF), "on", "[user]2 + 3?[assistant]"),
        (of(OPENS), "off", "[user]2 + 3?[assistant]<think>\n\n</think>\n\n"),
        (of(OPENS), "", "[user]2 + 3?[assistant]<think>\n"),
        (of(ON), "on", "[user]2 + 3?[assistant]<think>\n"),
        (of(ALSO_ON), "high", "[user]2 + 3?[assistant]<think>"),
        (of("", EFFORT), "low", "(low)[user]2 + 3?[assistant]"),
        (of("", EFFORT), "", "(medium)[user]2 + 3?[assistant]"),
    ],
)
def test_the_template_is_told(text: ChatText, thinking: str, prompt: str) -> None:
    assert told(text, thinking) == prompt


def test_a_thought_that_the_template_opens_is_told_with_the_answer() -> None:
    prompt = of(ON).prompt(ASKED, variables=variables_for("on"))
    assert prompt.thought == "<think>\n"


def test_no_variable_takes_the_place_of_the_conversation() -> None:
    text = of("{{ bos_token }}", "{{ a }}")
    sent = {"messages": [], "add_generation_prompt": False, "tools": [1], "a": "<|end|>"}
    ids = text.prompt(ASKED, variables=sent).ids
    assert text.decode(ids) == "<|end|>[user]2 + 3?[assistant]"
    assert VOCABULARY.encode("<|end|>")[0] not in ids  # typed, so it is text


def test_a_foreign_template_is_told_in_its_process(tmp_path: Path) -> None:
    template = ChatTemplate(EFFORT + LOOP, {}, foreign=True)
    assert template.render(ASKED, (), {"reasoning_effort": "high"}).startswith("(high)")
    assert template.render(ASKED).startswith("(medium)")


@pytest.mark.parametrize("thinking", ["", *THINKING])
def test_what_is_read_ahead_begins_the_next_prompt(thinking: str) -> None:
    text, variables = of(ON, EFFORT), variables_for(thinking)
    ahead = text.encode_ahead(ASKED, "", variables)
    for question in ("Why?", "add 3 to it"):
        prompt = text.prompt([*ASKED, Message("user", question)], variables=variables).ids
        assert prompt[: len(ahead)] == ahead
    assert text.decode(ahead).startswith(f"({variables.get('reasoning_effort', 'medium')})")


class TestOfTheLoadedModel:
    @asynchronous
    async def test_a_turn_and_a_stored_conversation_ask_for_it(self, tmp_path: Path) -> None:
        async with assisted(tmp_path) as assistant:
            model, text = assistant._model, of(OFF, EFFORT)
            object.__setattr__(model, "text", text)
            assert await assistant.thinking() == ("off", "low", "high")
            turn = ChatRequest(tuple(ASKED), thinking="off")
            assert text.decode(model._prompt(turn, "").ids).endswith("</think>\n\n")
            kwargs = ChatRequest(
                tuple(ASKED), thinking="low", variables={"reasoning_effort": "high"}
            )
            assert text.decode(model._prompt(kwargs, "").ids).startswith("(high)")
            options = ReplyOptions(thinking="high")
            made = assistant.history.create_conversation("a")
            asked = await assistant._as_turn(made.id, list(ASKED), options)
            assert asked.thinking == "high"
            request = await assistant._asks_ahead(
                model, ExpectedQuestion(None, "Be brief.", "", "low")
            )
            assert text.decode(request.prompt).startswith("(low)[system]Be brief.")

    @asynchronous
    async def test_what_is_held_to_a_form_is_asked_not_to(self, tmp_path: Path) -> None:
        """Else it would begin where the model was taught to think."""
        async with assisted(tmp_path) as assistant:
            model, text = assistant._model, of(OFF)
            object.__setattr__(model, "text", text)
            held = ChatRequest(
                tuple(ASKED), grammar=Grammar((("root", Text(b"5")),)), thinking="high"
            )
            assert text.decode(model._prompt(held, "").ids).endswith("<think>\n\n</think>\n\n")

    @pytest.mark.parametrize(
        ("end", "begun", "written"),
        [
            (OPENS, "<think>\nLet me", "<think>\nLet me"),
            (OPENS, "<think>\nOh.\n</think>\n\nFi", "<think>\nOh.\n</think>\n\nFi"),
            (OPENS, "Fi", "<think>\n\n</think>\n\nFi"),
            (OFF, "<think>\nLet me", "<think>\nLet me"),
            (OFF, "Fi", "<think>\n\n</think>\n\nFi"),
        ],
    )
    @asynchronous
    async def test_an_answer_that_has_thought_goes_on_from_that(
        self, tmp_path: Path, end: str, begun: str, written: str
    ) -> None:
        """Chosen since: what was thought stays as it was."""
        async with assisted(tmp_path) as assistant:
            model, text = assistant._model, of(end)
            object.__setattr__(model, "text", text)
            prompt = model._prompt(ChatRequest(tuple(ASKED), thinking="off"), begun)
            assert text.decode(prompt.ids) == f"[user]2 + 3?[assistant]{written}"


def test_thoughts_hold_no_half_characters() -> None:
    from app.request import check_request

    with pytest.raises(InvalidRequest, match="a thought"):
        check_request(ChatRequest((*ASKED, Message("assistant", "5", thought="\ud83d"), *ASKED)))
