"""Commands about one conversation of the list, and about files of whole conversations."""

import asyncio

from app.history import transfer
from engine.errors import InvalidRequest
from ui.chat.command import ChatCommand
from ui.chat.page_session import Actions, PageSession


async def rename(session: PageSession, command: ChatCommand) -> None:
    """Give a conversation another title."""
    title = " ".join(command.text.split())
    if not title:
        raise InvalidRequest("a conversation needs a title; write one")
    await asyncio.to_thread(session.history.rename, command.id, title)
    await session.list_changed()


async def pin(session: PageSession, command: ChatCommand) -> None:
    """Pin or unpin a conversation."""
    pinned = command.command == "pin"
    await asyncio.to_thread(session.history.pin, command.id, pinned=pinned)
    await session.list_changed()


async def delete(session: PageSession, command: ChatCommand) -> None:
    """Delete a conversation; its answer is stopped first."""
    await asyncio.to_thread(session.history.conversation, command.id)  # it may be another key's
    running = session.assistant.running(command.id)
    if running is not None:
        running.reply.cancel()
        await running.reply.ended()
    await asyncio.to_thread(session.history.delete, command.id)
    if session.state.conversation and session.state.conversation.id == command.id:
        session.leave()
        session.expect()
    await session.list_changed()


async def export(session: PageSession, command: ChatCommand) -> None:
    """Send the page a conversation as a file."""
    markdown = command.command == "export-markdown"
    history = session.history
    write = transfer.to_markdown if markdown else transfer.to_json
    content = await asyncio.to_thread(write, history, command.id)
    about = await asyncio.to_thread(history.conversation, command.id)
    name = "".join(c if c.isalnum() else "-" for c in about.title).strip("-")[:60] or "conversation"
    session.state.do_once({"file": content, "name": f"{name}.{'md' if markdown else 'json'}"})


async def import_(session: PageSession, command: ChatCommand) -> None:
    """Import a conversation from a file."""
    history = session.history
    made = await asyncio.to_thread(transfer.take_in, history, command.name, command.file)
    session.leave()
    await session.open(made.id)
    await session.list_changed()
    session.expect()


LIST_ACTIONS: Actions = {
    "rename": rename,
    "pin": pin,
    "unpin": pin,
    "delete": delete,
    "export-json": export,
    "export-markdown": export,
    "import": import_,
}
