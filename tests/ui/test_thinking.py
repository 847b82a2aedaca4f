"""Thinking on the page: offered where the model can be told, and asked with every answer."""

from pathlib import Path
from typing import ClassVar

from app.text.chat_text import ChatText
from app.text.template import NO_VARIABLES, ChatTemplate
from app.text.vocabulary import FolderVocabulary
from tests.app.assisted import POCKET
from tests.app.asynchronous import asynchronous
from tests.ui.paged import opened

SWITCHED = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
)


class Noting(ChatText):
    """Notes what the template was told of thinking when it was asked."""

    told: ClassVar[list[set[str]]] = []

    def prompt(self, messages, begun="", tools=(), *, thinks=True, variables=NO_VARIABLES):
        if messages[-1].content == "hi":
            self.told.append({"enable_thinking"} & set(variables))
        return super().prompt(messages, begun, tools, thinks=thinks, variables=variables)


@asynchronous
async def test_a_model_that_cannot_be_told_has_no_choice(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, _assistant):
        await page.until(lambda: "Speed" in page.regions["pickers"])
        assert "Thinking" not in page.regions["pickers"]
        page.do("send", text="hi", settings={"thinking": "off"})  # kept from another model
        await page.answered(1)
        assert page.regions["notice"] == ""


@asynchronous
async def test_what_can_be_chosen_is_asked(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, assistant):
        text = Noting(FolderVocabulary.load(POCKET), ChatTemplate(SWITCHED, {}), ())
        object.__setattr__(assistant._model, "text", text)
        page.do("refresh")
        await page.until(lambda: "Thinking" in page.regions["pickers"])
        assert page.regions["pickers"].endswith(
            '<option value="">As usual<option value="off">Off</select></label>'
        )
        for count, thinking in enumerate(("off", ""), 1):
            page.do("send", text="hi", settings={"thinking": thinking})
            await page.answered(count)
            assert ({"enable_thinking"} in text.told) == (thinking == "off")
            text.told.clear()


@asynchronous
async def test_what_cannot_be_chosen_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as (page, _, _assistant):
        page.do("settings", settings={"thinking": "deeply"})
        await page.until(lambda: "Thinking cannot be deeply" in page.regions["notice"])
