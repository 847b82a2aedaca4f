"""How much a model thinks: asked in its template's own variables, and only where it can be told."""

import pytest

from app.chat.assistant import Assistant
from app.request import THINKING, ChatRequest, Message, ReplyOptions, variables_for
from app.text.chat_text import ChatText
from app.text.template import ChatTemplate
from app.text.vocabulary import FolderVocabulary
from engine.errors import InvalidRequest
from engine.grammar.grammar import Grammar
from tests.app.assisted import POCKET, assisted, report_of
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
def test_only_what_changes_the_prompt_is_offered(text, offered):
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
def test_the_template_gets_the_effort(text, thinking, prompt):
    assert told(text, thinking) == prompt


def test_a_thought_that_the_template_opens_is_shown_with_the_answer():
    for text, opened in ((of(ON), "<think>\n"), (of(OFF), "")):
        assert text.prompt(ASKED, variables=variables_for("on")).opened == opened


def test_no_variable_takes_the_place_of_the_conversation():
    text = of("{{ bos_token }}", "{{ a }}")
    sent = {"messages": [], "add_generation_prompt": False, "tools": [1], "a": "<|end|>"}
    ids = text.prompt(ASKED, variables=sent).ids
    assert text.decode(ids) == "<|end|>[user]2 + 3?[assistant]"
    assert VOCABULARY.encode("<|end|>")[0] not in ids  # typed, so it is text


def test_a_foreign_template_gets_the_effort_in_its_process(tmp_path):
    template = ChatTemplate(EFFORT + LOOP, {}, foreign=True)
    assert template.render(ASKED, (), {"reasoning_effort": "high"}).startswith("(high)")
    assert template.render(ASKED).startswith("(medium)")


@pytest.mark.parametrize("thinking", ["", *THINKING])
def test_what_is_read_ahead_begins_the_next_prompt(thinking):
    text, variables = of(ON, EFFORT), variables_for(thinking)
    ahead = text.encode_ahead(ASKED, "", variables)
    for question in ("Why?", "add 3 to it"):
        prompt = text.prompt([*ASKED, Message("user", question)], variables=variables).ids
        assert prompt[: len(ahead)] == ahead
    assert text.decode(ahead).startswith(f"({variables.get('reasoning_effort', 'medium')})")


class TestOfTheLoadedModel:
    @asynchronous
    async def test_a_request_and_a_stored_conversation_ask_for_it(self, tmp_path):
        text = of(OFF, EFFORT)
        async with assisted(tmp_path, text=text) as assistant:
            assert assistant.loaded.text.thinking == ("off", "low", "high")
            off = ChatRequest(tuple(ASKED), thinking="off")
            assert prompt_of(assistant, off).endswith("</think>\n\n")
            variables = {"reasoning_effort": "high"}
            high = ChatRequest(tuple(ASKED), thinking="low", variables=variables)
            assert prompt_of(assistant, high).startswith("(high)")
            made = assistant.history.create_conversation("a")
            count = (await report_of(assistant.reply(off))).stats.prompt_tokens
            options = ReplyOptions(thinking="off")
            reply = await assistant.send(made.id, ASKED[0].content, options)
            assert reply.prompt_tokens == count
            ahead = assistant.loaded.read_ahead([Message("system", "Be brief.")], "", None, "low")
            assert text.decode(ahead.prompt).startswith("(low)[system]Be brief.")

    @asynchronous
    async def test_an_answer_with_a_format_does_not_reason(self, tmp_path):
        """Else it would begin where the model was taught to reason."""
        async with assisted(tmp_path, text=of(OFF)) as assistant:
            grammar = Grammar('start: "5"')
            held = ChatRequest(tuple(ASKED), grammar=grammar, thinking="high")
            assert prompt_of(assistant, held).endswith("<think>\n\n</think>\n\n")

    @asynchronous
    async def test_an_answer_that_has_thought_continues_from_that(self, tmp_path):
        """Chosen since: what was thought stays as it was."""
        empty, thinking = "<think>\n\n</think>\n\n", "<think>\nLet me"
        thought = "<think>\nOh.\n</think>\n\nFi"
        for end, chosen, begun, written in (
            (OPENS, "off", thinking, thinking), (OPENS, "off", thought, thought),
            (OPENS, "off", "Fi", f"{empty}Fi"), (OPENS, "", "Fi", f"{empty}Fi"),
            (OPENS, "", thinking, thinking), (OPENS, "", thought, thought),
            (OFF, "off", thinking, thinking), (OFF, "off", "Fi", f"{empty}Fi"),
        ):  # fmt: skip
            async with assisted(tmp_path, text=of(end)) as assistant:
                request = ChatRequest(tuple(ASKED), thinking=chosen, prefix=begun)
                assert prompt_of(assistant, request) == f"[user]2 + 3?[assistant]{written}"


def test_thoughts_hold_no_half_characters():
    from app.request import check_request

    with pytest.raises(InvalidRequest, match="the reasoning"):
        check_request(ChatRequest((*ASKED, Message("assistant", "5", reasoning="\ud83d"), *ASKED)))


def prompt_of(assistant: Assistant, request: ChatRequest) -> str:
    model = assistant.loaded
    return model.text.decode(model.prepare(request).request.prompt)
