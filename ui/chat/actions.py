"""What a page can do, by name: each one changes what a session shows."""

import asyncio

from app.chat.attachments import compose, read_attachment, split
from app.chat.reply import RunningReply
from app.errors import AppError, UnknownConversation
from app.history import transfer
from app.history.records import Conversation, Preset
from app.request import ReplyOptions
from engine.errors import EngineError, InvalidRequest
from engine.request import AUTO
from ui.chat import transcript
from ui.chat.command import Command
from ui.chat.page_session import Actions, PageSession
from ui.chat.view import WINDOW


async def hello(session: PageSession, command: Command) -> None:
    """A page was opened, perhaps again: the conversation that it showed before."""
    await refresh(session, command)
    session.come_back(command.name)
    session.suggest()
    if command.id and session.shown.conversation is None:
        try:
            await session.open(command.id)
            session.expect()
        except UnknownConversation:  # deleted since
            session.leave()


async def refresh(session: PageSession, _: Command) -> None:
    """Read everything again that this page did not change itself."""
    shown, assistant = session.shown, session.assistant
    shown.facts, shown.model = assistant.facts, assistant.entry.name
    shown.loading, shown.thinking = assistant.loading, await assistant.thinking()
    shown.models = [one for one in assistant.models() if one.visible and one.folder is not None]
    await session.list_conversations()
    if shown.conversation is not None:
        try:
            await session.open(shown.conversation.id)
        except UnknownConversation:
            session.leave()


async def ended(session: PageSession, command: Command) -> None:
    """The answer that was watched is stored."""
    if session.shown.conversation and session.shown.conversation.id == command.id:
        try:
            await session.open(command.id)
        except UnknownConversation:  # deleted by another page
            session.leave()
        session.expect()
    await session.list_conversations()


async def look(_session: PageSession, _command: Command) -> None:
    """Only the settings changed, which every command brings."""


async def new(session: PageSession, _: Command) -> None:
    """An empty page; an answer that runs goes on."""
    session.leave()
    session.expect()


async def open_(session: PageSession, command: Command) -> None:
    """Another conversation."""
    session.leave()
    session.shown.window = WINDOW
    await session.open(command.id)
    session.expect()


async def earlier(session: PageSession, _: Command) -> None:
    """More of a long conversation."""
    session.shown.window += WINDOW


async def search(session: PageSession, command: Command) -> None:
    """Only conversations with these words."""
    session.shown.words = command.text
    await session.list_conversations()


async def send(session: PageSession, command: Command) -> None:
    """Answer a message; what cannot be answered goes back into the input with the reason."""
    shown = session.shown
    before = shown.conversation
    try:
        _check_free(session)
        files = [file for file, _ in shown.attachments]
        content = compose(command.text, files)
        if not content.strip():
            raise InvalidRequest("write something first")
        if shown.conversation is None:
            shown.conversation = await _begin(session, content)
        options = _options(session)
        reply = await session.assistant.send(shown.conversation.id, content, options)
    except (AppError, EngineError):
        await _take_back(session, before, command.text)
        raise
    session.attach(())
    await _started(session, reply)


async def edit(session: PageSession, command: Command) -> None:
    """Another version of a message, with the same files, and its answer."""
    try:
        conversation = _current(session)
        _check_free(session)
        old = next((one for one in session.shown.messages if one.id == command.id), None)
        kept = split(old.content)[0] if old else ()
        content = compose(command.text, [*kept, *(file for file, _ in session.shown.attachments)])
        options = _options(session)
        reply = await session.assistant.send(conversation.id, content, options, edits=command.id)
    except (AppError, EngineError):
        session.shown.tell(box=command.text)
        raise
    session.attach(())
    await _started(session, reply)


async def again(session: PageSession, command: Command) -> None:
    """Another version of an answer."""
    conversation = _current(session)
    _check_free(session)
    options, which = _options(session), command.id or None
    await _started(session, await session.assistant.regenerate(conversation.id, options, which))


async def go_on(session: PageSession, _: Command) -> None:
    """More of the last answer."""
    conversation = _current(session)
    _check_free(session)
    await _started(session, await session.assistant.extend(conversation.id, _options(session)))


async def stop(session: PageSession, _: Command) -> None:
    """End the answer; what was written of it stays."""
    session.assistant.stop(_current(session).id)


async def show(session: PageSession, command: Command) -> None:
    """Another version, with what follows it."""
    conversation = _current(session)
    _check_free(session)
    await asyncio.to_thread(session.assistant.history.show, conversation.id, command.id)
    await session.open(conversation.id)
    session.expect()


async def rename(session: PageSession, command: Command) -> None:
    """Another title."""
    title = " ".join(command.text.split())
    if not title:
        raise InvalidRequest("a conversation needs a title; write one")
    await asyncio.to_thread(session.assistant.history.rename, command.id, title)
    await _changed(session)


async def pin(session: PageSession, command: Command) -> None:
    """Keep a conversation at the top, or let it go."""
    pinned = command.do == "pin"
    await asyncio.to_thread(session.assistant.history.pin, command.id, pinned=pinned)
    await _changed(session)


async def delete(session: PageSession, command: Command) -> None:
    """Forget a conversation; its answer is stopped first."""
    running = session.assistant.running(command.id)
    if running is not None:
        running.reply.cancel()
        await running.reply.ended()
    await asyncio.to_thread(session.assistant.history.delete, command.id)
    if session.shown.conversation and session.shown.conversation.id == command.id:
        session.leave()
        session.expect()
    await _changed(session)


async def export(session: PageSession, command: Command) -> None:
    """Give the page a file to save."""
    markdown = command.do == "export-markdown"
    history = session.assistant.history
    write = transfer.to_markdown if markdown else transfer.to_json
    content = await asyncio.to_thread(write, history, command.id)
    about = await asyncio.to_thread(history.conversation, command.id)
    name = "".join(c if c.isalnum() else "-" for c in about.title).strip("-")[:60] or "conversation"
    session.shown.tell(file=content, name=f"{name}.{'md' if markdown else 'json'}")


async def take_in(session: PageSession, command: Command) -> None:
    """Make a conversation of a file."""
    _check_arrived(command)
    history = session.assistant.history
    made = await asyncio.to_thread(transfer.take_in, history, command.name, command.file)
    session.leave()
    await session.open(made.id)
    await _changed(session)
    session.expect()


async def attach(session: PageSession, command: Command) -> None:
    """Put a text file in front of the next message."""
    _check_arrived(command)
    file = read_attachment(command.name, command.file)
    tokens = await session.assistant.count(file.text)
    session.attach((*session.shown.attachments, (file, tokens)))
    session.expect()


async def detach(session: PageSession, command: Command) -> None:
    """Leave an attached file out."""
    kept = session.shown.attachments
    session.attach([one for place, one in enumerate(kept) if str(place) != command.id])
    session.expect()


async def instruct(session: PageSession, command: Command) -> None:
    """Tell the model something before the first message."""
    shown = session.shown
    if shown.conversation is None:
        shown.system = command.text
    else:
        history, conversation = session.assistant.history, shown.conversation.id
        await asyncio.to_thread(history.instruct, conversation, command.text)
        shown.conversation = await asyncio.to_thread(history.conversation, conversation)
    session.expect()


async def expect(session: PageSession, _: Command) -> None:
    """Another model is there, which has read nothing."""
    session.expect()


async def save_preset(session: PageSession, command: Command) -> None:
    """Keep the system prompt and the sampling under a name."""
    name = " ".join(command.name.split())
    if not name:
        raise InvalidRequest("a preset needs a name; write one")
    sampling = {"temperature", "top_p", "top_k", "min_p", "repeat"}
    kept = session.shown.settings.model_dump(include=sampling)
    preset = Preset(name, command.text, kept)
    await asyncio.to_thread(session.assistant.history.presets.put, preset)
    await _changed(session)


async def use_preset(session: PageSession, command: Command) -> None:
    """Put a preset into the settings."""
    chosen = next((one for one in session.shown.presets if one.name == command.name), None)
    if chosen is None:
        return
    await instruct(session, command.model_copy(update={"text": chosen.system}))
    session.shown.settings = session.shown.settings.model_copy(update=dict(chosen.options))
    kept = session.shown.settings.model_dump_json()
    session.shown.tell(settings=kept, system=chosen.system)


async def delete_preset(session: PageSession, command: Command) -> None:
    """Forget a preset."""
    if not command.name:
        raise InvalidRequest("choose the preset to delete first")
    await asyncio.to_thread(session.assistant.history.presets.delete, command.name)
    await _changed(session)


async def switch(session: PageSession, command: Command) -> None:
    """Load another model; the page stays in use meanwhile."""
    if command.name == session.assistant.entry.name or session.shown.loading:
        return
    session.load(command.name)


async def _started(session: PageSession, reply: RunningReply) -> None:
    conversation = _current(session).id
    await session.open(conversation)
    if session.assistant.running(conversation) is None:  # over already, or it never began
        session.watch(reply)
    await _changed(session)


async def _begin(session: PageSession, content: str) -> Conversation:
    history = session.assistant.history
    title = transcript.title(content)
    return await asyncio.to_thread(history.create_conversation, title, session.shown.system)


async def _take_back(session: PageSession, before: Conversation | None, text: str) -> None:
    """Forget a conversation that never began."""
    begun, session.shown.conversation = session.shown.conversation, before
    session.shown.tell(box=text)
    if begun is not None and before is None:
        await asyncio.to_thread(session.assistant.history.delete, begun.id)


async def _changed(session: PageSession) -> None:
    await session.list_conversations()
    if session.shown.conversation is not None:
        read = session.assistant.history.conversation
        session.shown.conversation = await asyncio.to_thread(read, session.shown.conversation.id)
    session.pages.changed(session)


def _current(session: PageSession) -> Conversation:
    if session.shown.conversation is None:
        raise UnknownConversation("no conversation is open; write a message first")
    return session.shown.conversation


def _check_free(session: PageSession) -> None:
    """One answer of a conversation at a time."""
    conversation = session.shown.conversation
    if session.shown.loading:
        raise InvalidRequest("a model is being loaded; wait until it is there")
    if conversation is not None and session.assistant.running(conversation.id) is not None:
        raise InvalidRequest("an answer is being written; stop it or wait for its end")


def _check_arrived(command: Command) -> None:
    """Of a file that the page does not send it says why, in place of the file."""
    if command.text:
        raise InvalidRequest(f"{command.name} {command.text}")


def _options(session: PageSession) -> ReplyOptions:
    """As the controls stand; a speed mode that this model lacks is kept for one that has it."""
    settings, facts = session.shown.settings, session.assistant.facts
    if settings.mode not in (AUTO, *facts.drafters):
        settings = settings.model_copy(update={"mode": AUTO})
    return settings.options(facts.context)


ACTIONS: Actions = {
    "hello": hello,
    "refresh": refresh,
    "ended": ended,
    "expect": expect,
    "look": look,
    "new": new,
    "open": open_,
    "earlier": earlier,
    "search": search,
    "send": send,
    "suggest": send,
    "edit": edit,
    "again": again,
    "continue": go_on,
    "stop": stop,
    "show": show,
    "rename": rename,
    "pin": pin,
    "unpin": pin,
    "delete": delete,
    "export-json": export,
    "export-markdown": export,
    "import": take_in,
    "attach": attach,
    "detach": detach,
    "instruct": instruct,
    "preset-save": save_preset,
    "preset-use": use_preset,
    "preset-delete": delete_preset,
    "model": switch,
}
