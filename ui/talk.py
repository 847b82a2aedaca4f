"""What happens on the page when someone writes, stops, or asks again."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

import gradio as gr

from app.assistant import Assistant
from app.errors import AppError
from app.turn import Delta, ReplyOptions, Report
from engine.errors import EngineError
from ui import transcript
from ui.transcript import Row

logger = logging.getLogger(__name__)

View = dict[Any, Any]  # component -> its new value or an update of it

_FRAME_SECONDS = 0.05  # a page is redrawn at most so often, however fast the tokens come
_PLAIN_BELOW = 100_000_000  # parameters: models this small write plain text, not Markdown
_UNEXPECTED = "something unexpected failed; nothing that you wrote is lost, please try again"


@dataclass(frozen=True, slots=True)
class Panel:
    """The components that events read and write."""

    rows: gr.Chatbot
    notice: gr.HTML
    box: gr.Textbox
    again: gr.Button
    fresh: gr.Button
    mode: gr.Radio
    temperature: gr.Slider
    conversation: gr.State  # an id of history, None before the first message


class Talk:
    """What happens when someone writes, stops, or asks again. Handlers yield views.

    While an answer runs, only its own handler writes to the list of messages: a second one could
    be overtaken by a frame that is still on its way to the browser.
    """

    def __init__(self, assistant: Assistant, panel: Panel) -> None:
        self._assistant, self._panel = assistant, panel
        self._plain = assistant.facts.parameters < _PLAIN_BELOW
        self._running: set[str] = set()  # conversations that are being answered
        self._stopped: set[str] = set()  # those of them that shall end
        self._left: set[str] = set()  # those of them whose page is to be empty then

    async def send(
        self, text: str, rows: list[Row], conversation: str | None, mode: str, temperature: float
    ) -> AsyncGenerator[View]:
        """Answer ``text``; what cannot be answered goes back into the input with the reason."""
        if not text.strip():
            yield {self._panel.notice: transcript.notice("write something first")}
            return
        asked = [*rows, transcript.said(text)]
        begun = conversation
        try:
            begun = begun or await self._begin(text)
            yield self._busy(asked, begun) | {self._panel.box: _box(busy=True) | {"value": ""}}
            deltas = self._assistant.send(begun, text, self._options(mode, temperature))
            async for view in self._follow(begun, asked, deltas):
                yield view
        except Exception as error:  # noqa: BLE001 - the page's edge: logged, and told in place
            if begun is not None and conversation is None:
                await self._drop(begun)
            back = {self._panel.box: _box(busy=False) | {"value": text}}
            yield self._refused(rows, conversation, error) | back

    async def suggest(
        self, event: gr.SelectData, rows: list[Row], mode: str, temperature: float
    ) -> AsyncGenerator[View]:
        """Send a suggestion of the empty page."""
        async for view in self.send(event.value["text"], rows, None, mode, temperature):
            yield view

    async def regenerate(
        self, rows: list[Row], conversation: str, mode: str, temperature: float
    ) -> AsyncGenerator[View]:
        """Answer the last message again; the earlier answer stays in the history."""
        kept = transcript.before_answer(rows)
        yield self._busy(kept, conversation)
        try:
            deltas = self._assistant.regenerate(conversation, self._options(mode, temperature))
            async for view in self._follow(conversation, kept, deltas):
                yield view
        except Exception as error:  # noqa: BLE001 - the page's edge: logged, and told in place
            yield self._refused(rows, conversation, error)

    def stop(self, conversation: str | None) -> None:
        """End the answer; what was written of it stays."""
        if conversation in self._running:
            self._stopped.add(conversation)
            self._assistant.stop(conversation)

    def fresh(self, conversation: str | None) -> View:
        """An empty page; the conversation before stays in the history."""
        if conversation not in self._running:
            return self._empty()
        self._left.add(conversation)
        self.stop(conversation)
        nothing: View = gr.skip()
        return nothing

    def _options(self, mode: str, temperature: float) -> ReplyOptions:
        """An answer that does not end by itself must not take the place of the next one."""
        half = self._assistant.facts.context // 2
        return ReplyOptions(temperature=float(temperature), max_tokens=half, drafter=mode)

    async def _begin(self, text: str) -> str:
        history = self._assistant.history
        made = await asyncio.to_thread(history.create_conversation, transcript.title(text))
        return made.id

    async def _drop(self, conversation: str) -> None:
        """Forget a conversation that never began."""
        with suppress(AppError):  # what went wrong first is told already
            await asyncio.to_thread(self._assistant.history.delete, conversation)

    async def _follow(
        self, conversation: str, rows: list[Row], deltas: AsyncGenerator[Delta]
    ) -> AsyncGenerator[View]:
        """One view per frame, then the whole answer with what ran."""
        text, shown_at = "", 0.0
        self._running.add(conversation)
        try:
            async with aclosing(deltas):
                async for delta in deltas:
                    if isinstance(delta, Report):
                        left = conversation in self._left
                        yield self._empty() if left else self._done(rows, delta)
                        return
                    if conversation in self._stopped:  # pressed before there was an answer to stop
                        self._assistant.stop(conversation)
                    text += delta.text
                    if time.monotonic() - shown_at >= _FRAME_SECONDS:
                        shown_at = time.monotonic()
                        yield {self._panel.rows: [*rows, *self._answering(text)]}
        finally:
            for marked in (self._running, self._stopped, self._left):
                marked.discard(conversation)

    def _answering(self, text: str) -> list[Row]:
        return transcript.answering(text, plain=self._plain)

    def _busy(self, rows: list[Row], conversation: str) -> View:
        panel = self._panel
        return {
            panel.rows: [*rows, *self._answering("")],
            panel.notice: "",
            panel.box: _box(busy=True),
            panel.again: gr.update(interactive=False),
            panel.conversation: conversation,
        }

    def _done(self, rows: list[Row], report: Report) -> View:
        panel = self._panel
        return {
            panel.rows: [*rows, *transcript.answered(report, plain=self._plain)],
            panel.box: _box(busy=False),
            panel.again: gr.update(interactive=True),
        }

    def _empty(self) -> View:
        panel = self._panel
        return {
            panel.rows: [],
            panel.notice: "",
            panel.box: _box(busy=False),
            panel.again: gr.update(interactive=False),
            panel.conversation: None,
        }

    def _refused(self, rows: list[Row], conversation: str | None, error: Exception) -> View:
        panel = self._panel
        expected = isinstance(error, (AppError, EngineError))
        if not expected:
            logger.error("the page could not answer", exc_info=error)
        return {
            panel.rows: rows,
            panel.notice: transcript.notice(str(error) if expected else _UNEXPECTED),
            panel.box: _box(busy=False),
            panel.again: gr.update(interactive=bool(rows)),
            panel.conversation: conversation,
        }


def _box(*, busy: bool) -> dict[str, Any]:
    """Send and stop are one place: the button of the input."""
    return gr.update(submit_btn=not busy and "Send", stop_btn=busy and "Stop")
