"""Thoughts over HTTP: how much of them is asked for, where answers have them, and what is sent back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pydantic
import pytest

from app.request import Message, ToolCall
from app.server.anthropic.schemas import Conversation, MessagesBody
from app.server.openai_chat.schemas import ChatBody, ChatMessage
from app.server.openai_responses.schemas import Items, ResponsesBody
from app.server.openai_responses.schemas import joined as in_turns
from tests.app.server.serving import (
    Running,
    answer,
    choice,
    deltas,
    joined,
    served_changed,
    serving,
)
from tests.app.text.harmony import channelled
from tests.app.text.reasoning import marked

HI = [{"role": "user", "content": "hi"}]
ASKED = {"role": "user", "content": "What is 17 + 25?"}


class TestEffort:
    """How much a model shall think, in the fields of each protocol."""

    @pytest.mark.parametrize(
        ("effort", "thinking"),
        [
            (None, ""), ("none", "off"), ("minimal", "low"), ("low", "low"), ("medium", "medium"),
            ("high", "high"), ("xhigh", "high"), ("max", "high"),
        ],
    )  # fmt: skip
    def test_of_openai(self, effort, thinking):
        chat = ChatBody(model="m", messages=HI, reasoning_effort=effort)
        reasoning = {"effort": effort, "summary": "auto"}
        response = ResponsesBody(model="m", input=HI, reasoning=reasoning)
        assert chat.chat_request.thinking == response.chat_request.thinking == thinking

    @pytest.mark.parametrize(
        ("options", "thinking"),
        [
            ({"type": "enabled", "budget_tokens": 1024}, "on"),
            ({"type": "adaptive"}, ""),
            ({"type": "disabled"}, "off"),
            (None, ""),
        ],
    )
    def test_of_anthropic(self, options, thinking):
        request = MessagesBody(model="m", messages=HI, max_tokens=5, thinking=options)
        assert request.chat_request.thinking == thinking

    def test_variables_reach_the_template(self):
        sent = {"enable_thinking": False, "custom_instructions": "Be brief."}
        body = ChatBody(model="m", messages=HI, chat_template_kwargs=sent)
        assert body.chat_request.variables == sent
        assert ChatBody(model="m", messages=HI).chat_request.variables == {}

    @pytest.mark.parametrize(
        ("body", "field", "value"),
        [
            (ChatBody, "reasoning_effort", "enormous"),
            (ChatBody, "chat_template_kwargs", {"a": "\ud83d"}),
            (ChatBody, "chat_template_kwargs", {"a": float("inf")}),
            (ChatBody, "chat_template_kwargs", [1]),
            (MessagesBody, "thinking", {"type": "perhaps"}),
        ],
    )
    def test_wrong_values_are_refused(self, body, field, value):
        with pytest.raises(pydantic.ValidationError, match=field):
            body(model="m", messages=HI, max_tokens=5, **{field: value})


class TestOpenedByThePrompt:
    """The bundled model with a template that opens a thought, which the model never closes."""

    @pytest.fixture(scope="class")
    @classmethod
    def url(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
        def change(folder: Path) -> None:
            template = folder / "chat_template.jinja"
            template.write_text(template.read_text() + "{{ '<think>\\n' }}")

        with served_changed(tmp_path_factory.mktemp("opened"), change) as url:
            yield url

    def ask(self, url: str, **fields: Any) -> dict[str, Any]:
        return answer(url, **{"messages": [ASKED], "max_tokens": 60, **fields})

    def message(self, url: str, **fields: Any) -> dict[str, Any]:
        return dict(self.ask(url, **fields)["choices"][0]["message"])

    def thought(self, url: str, **fields: Any) -> str:
        message = self.message(url, **fields)
        assert message["content"] == ""
        return str(message["reasoning_content"])

    def test_the_answer_continues_the_thought(self, url: str) -> None:
        plain = self.thought(url, drafter="none")
        assert plain
        assert self.thought(url, drafter="auto") == plain
        parts = deltas(url, messages=[ASKED], max_tokens=60)
        assert joined(parts, "reasoning_content") == plain
        assert joined(parts) == ""
        usage = self.ask(url)["usage"]
        counted = usage["completion_tokens_details"]["reasoning_tokens"]
        assert usage["completion_tokens"] - counted in (0, 1)  # the end token
        usage = answer(url, "responses", input=[ASKED], max_output_tokens=60)["usage"]
        assert usage["output_tokens_details"]["reasoning_tokens"] == counted

    def test_stop_texts_are_searched_in_the_models_text(self, url: str) -> None:
        plain = self.thought(url, drafter="none")
        assert self.thought(url, stop=["<think>", "think", "k>"]) == plain
        assert self.thought(url, stop=[plain[1]]) == plain.partition(plain[1])[0]


END, FINAL = "<|END_OF_TURN_TOKEN|>", channelled.FINAL
THOUGHT = f"{channelled.ANALYSIS}I add.{channelled.NEXT}"
TO_ADD = "<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 17}}\n</tool_call>'
SAYS = {  # the template, and what its model says around a call or a text
    marked.GEMMA: ("<|channel>thought\nI add.\n<channel|>", "", CALL, END),
    marked.SEED: ("<seed:think>I add.</seed:think>\n", "", CALL, END),
    marked.COHERE: ("I add.<|END_THINKING|><|START_TEXT|>", "", CALL, f"<|END_TEXT|>{END}"),
    channelled.TEMPLATE: (THOUGHT, FINAL, TO_ADD + '{"a": 17}', "<|return|><|end|>never"),
}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("template", SAYS)
def test_thoughts_and_calls_in_marks_of_the_models_own(tmp_path: Path, template: str) -> None:
    (channelled if template == channelled.TEMPLATE else marked).files(tmp_path, template)
    thought, head, call, end = SAYS[template]

    def ask(url: str, says: str, **fields: Any) -> dict[str, Any]:
        (tmp_path / "answer.txt").write_text(says, encoding="utf-8")
        return choice(url, model="channelled", messages=[ASKED], **fields)

    with serving(lambda: channelled.assistant(tmp_path)) as running:
        message = ask(running.url, f"{thought}{head}It is 42.{end}")["message"]
        assert (message["reasoning_content"], message["content"]) == ("I add.", "It is 42.")
        parts = deltas(running.url, model="channelled", messages=[ASKED])
        assert (joined(parts, "reasoning_content"), joined(parts)) == ("I add.", "It is 42.")
        assert sum("reasoning_content" in delta for delta in parts) > 2
        found = ask(running.url, f"{thought}{call}{end}", tools=[ADD])
        assert (found["finish_reason"], found["message"]["content"]) == ("tool_calls", None)
        assert found["message"]["reasoning_content"] == "I add."
        [called] = found["message"]["tool_calls"]
        assert called["function"] == {"name": "add", "arguments": '{"a": 17}'}
        parts = deltas(running.url, model="channelled", messages=[ASKED], tools=[ADD])
        assert sum("tool_calls" in delta for delta in parts) > 3
        unknown = call.replace("add", "sub")
        message = ask(running.url, f"{thought}{unknown}{end}", tools=[ADD])["message"]
        assert "tool_calls" not in message
        assert '{"name": "sub", "arguments": {"a": 17}}' in message["content"]
        half = ask(running.url, thought + call.partition("}")[0], tools=[ADD])
        assert half["finish_reason"] != "tool_calls"
        message = ask(running.url, f"{head}It is 42.{end}", reasoning_effort="none")["message"]
        assert message["content"] == "It is 42."
        assert "reasoning_content" not in message


def test_a_prompt_of_a_program_is_continued_without_headers(tmp_path: Path) -> None:
    channelled.files(tmp_path)
    (tmp_path / "answer.txt").write_text("<|message|>42.<|end|>never", encoding="utf-8")
    prompt = "<|start|>user<|message|>17 + 25?<|end|><|start|>assistant<|channel|>final"
    with serving(lambda: channelled.assistant(tmp_path)) as running:
        found = answer(running.url, "completions", model="channelled", prompt=prompt, max_tokens=4)
    assert found["choices"][0]["text"] == "42."


ANSWER = "Five. That is all "  # the fake assistant puts a space after every word
SAID = {"role": "user", "content": "<think>\nso it is\n</think>\n\nFive. That is all"}


class TestProtocols:
    """The fake assistant repeats what it reads: a thought, and an answer."""

    def test_chat(self, running: Running) -> None:
        message = choice(running.url, messages=[SAID])["message"]
        assert (message["reasoning_content"], message["content"]) == ("so it is", ANSWER)
        parts = deltas(running.url, messages=[SAID])
        assert (joined(parts, "reasoning_content"), joined(parts)) == ("so it is", ANSWER)

    def test_messages(self, running: Running) -> None:
        asked: Any = {"model": "pocket", "max_tokens": 50, "messages": [SAID]}
        with anthropic.Anthropic(base_url=running.url, api_key="none", max_retries=0) as client:
            with client.messages.stream(**asked) as stream:
                streamed = stream.get_final_message()
            whole = client.messages.create(**asked)
        for message in (whole, streamed):
            thought, text = message.content
            assert (thought.type, thought.thinking) == ("thinking", "so it is")
            assert (text.type, text.text) == ("text", ANSWER)

    def test_responses(self, client: openai.OpenAI) -> None:
        whole = client.responses.create(model="pocket", input=[SAID])
        with client.responses.stream(model="pocket", input=[SAID]) as stream:
            kinds = [event.type for event in stream]
            streamed = stream.get_final_response()
        for response in (whole, streamed):
            assert [item.type for item in response.output] == ["reasoning", "message"]
            assert response.output[0].content[0].text == "so it is"
            assert response.output_text == ANSWER
        done = kinds.index("response.reasoning_text.done")
        assert done < kinds.index("response.output_text.delta")


SENT = ToolCall("c1", "add", {"a": 1})
OPENAI = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
ANTHROPIC = {"type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}


def thought_of(*texts, name="content"):
    parts = [{"type": "reasoning_text", "text": text} for text in texts]
    return {"type": "reasoning", "id": "rs_1", "summary": [], name: parts}


def called(text="", thought=""):
    """A message of the assistant with the call."""
    return Message("assistant", text, (SENT,), reasoning=thought)


class TestSentBack:
    """Models that think between calls continue from the thoughts that programs send back."""

    @pytest.mark.parametrize(
        ("fields", "thought"),
        [
            ({"reasoning_content": "I add."}, "I add."),
            ({"reasoning": "I add."}, "I add."),
            ({"reasoning_content": None, "reasoning": None}, ""),
            ({"reasoning": {"effort": "high"}}, ""),  # of other programs
            ({}, ""),
        ],
    )
    def test_in_chats(self, fields, thought):
        sent = ChatMessage(role="assistant", content=None, tool_calls=[OPENAI], **fields)
        assert sent.message == called(thought=thought)

    def test_as_blocks(self):
        read = pydantic.TypeAdapter(Conversation).validate_python
        blocks = [
            {"type": "thinking", "thinking": "I add.", "signature": ""},
            {"type": "redacted_thinking", "data": "..."},
            {"type": "text", "text": "Well."},
            ANTHROPIC,
        ]
        found = read([{"role": "assistant", "content": blocks}])
        assert found == (called("Well.", "I add."),)

    def test_half_a_character_is_refused(self):
        read = pydantic.TypeAdapter(Conversation).validate_python
        with pytest.raises(pydantic.ValidationError, match="half of a surrogate pair"):
            read([{"role": "assistant", "content": [{"type": "thinking", "thinking": "\udc00"}]}])
        with pytest.raises(pydantic.ValidationError, match="half of a surrogate pair"):
            ChatMessage(role="assistant", content="", reasoning_content="\ud83d")

    @pytest.mark.parametrize(
        ("items", "expected"),
        [
            ([thought_of("I ", "add."), ITEM], [called(thought="I add.")]),
            (
                [thought_of("I add."), {"role": "assistant", "content": "42"}],
                [Message("assistant", "42", reasoning="I add.")],
            ),
            ([thought_of("In short.", name="summary"), ITEM], [called(thought="In short.")]),
            (
                [thought_of("One."), {"role": "assistant", "content": "Well."}, thought_of("Two."), ITEM],
                [called("Well.", "One.\n\nTwo.")],
            ),
            ([thought_of("Nothing came of it."), ASKED], [Message("user", ASKED["content"])]),
            ([thought_of(), ITEM], [called()]),
            ([{"type": "reasoning", "id": "rs_1", "content": "odd"}, ITEM], [called()]),
            ([ASKED, thought_of("At the end.")], [Message("user", ASKED["content"])]),
        ],
    )  # fmt: skip
    def test_as_items(self, items, expected):
        assert in_turns(pydantic.TypeAdapter(Items).validate_python(items)) == expected
