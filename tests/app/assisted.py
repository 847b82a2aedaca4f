"""An assistant whose engine is a fake, all else real; and what tests ask of it."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.chat.assistant import Assistant
from app.chat.loaded_model import LoadedModel
from app.chat.reply import RunningReply
from app.history.store import History
from app.models.catalog import CatalogEntry
from app.request import AnswerEvent, ChatRequest, Completion, Delta, Message, ReplyOptions
from app.settings import Settings
from app.text.chat_text import ChatText
from app.worker.child import Entry
from app.worker.worker import EngineWorker
from engine.request import ModelSpec
from tests.app import fake_engine

POCKET = Path(__file__).parents[2] / "engine" / "bundled" / "pocket"
TEXT = ChatText.load(POCKET)
PLAIN = ReplyOptions()


@asynccontextmanager
async def assisted(
    folder: Path,
    entry: Entry = fake_engine.parrot,
    *,
    read_ahead: bool = True,
    text: ChatText = TEXT,
    settings: Settings | None = None,
) -> AsyncIterator[Assistant]:
    """An assistant whose engine is a fake; all else is real."""
    spec = ModelSpec("fake", str(POCKET))
    worker = EngineWorker(spec, entry)
    entry_of_fake = CatalogEntry("fake", "a fake", POCKET)
    model = LoadedModel(entry_of_fake, spec, await worker.start(), worker, text)
    chosen = settings or Settings(home=folder, read_ahead=read_ahead)
    assistant = Assistant(chosen, model, History.open(folder / "history.db"))
    try:
        yield assistant
    finally:
        await assistant.close()


def said(text: str, **more: object) -> ChatRequest:
    return ChatRequest((Message("user", text),), **more)


async def all_of(deltas: AsyncIterator[AnswerEvent]) -> tuple[list[Delta], Completion]:
    """Deltas and the completion; checks that the completion is last and alone."""
    got = [delta async for delta in deltas]
    assert [isinstance(delta, Completion) for delta in got] == [False] * (len(got) - 1) + [True]
    return got[:-1], got[-1]


async def report_of(deltas: AsyncIterator[AnswerEvent]) -> Completion:
    return (await all_of(deltas))[1]


def kill(assistant: Assistant) -> None:
    os.kill(assistant.current.here().worker.pid, signal.SIGKILL)


async def ended(reply: RunningReply) -> Completion:
    """The report of an answer of a conversation."""
    *_, report = [written async for written in reply.watch()]
    assert isinstance(report, Completion)
    return report


async def begun(reply: RunningReply) -> None:
    """Wait for the first words."""
    async for written in reply.watch():
        if isinstance(written, Completion) or written.text:
            return
