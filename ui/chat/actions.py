"""The commands of the chat: each changes the state of a page's session."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from app.chat.attachments import compose, read_attachment, split, titled
from app.chat.reply import RunningReply
from app.errors import AppError, UnknownConversation
from app.history.records import Conversation, Preset
from app.request import SAMPLING, ReplyOptions
from engine.errors import EngineError, InvalidRequest
from engine.request import AUTO
from ui.chat.command import ChatCommand
from ui.chat.list_actions import LIST_ACTIONS
from ui.chat.page_session import Actions, PageSession
from ui.chat.view import WINDOW

CONTINUED = 256  # tokens that a base model writes at once: nothing else may end its text


async def hello(session: PageSession, command: ChatCommand) -> None:
    """A page was opened or reloaded: show the conversation of its address."""
    await refresh(session, command)
    session.come_back(command.name)
    session.suggest()
    session.look_around()
    if command.id and session.state.conversation is None:
        try:
            await session.open(command.id)
            session.expect()
        except UnknownConversation:  # deleted since
            session.leave()


async def refresh(session: PageSession, _: ChatCommand) -> None:
    """Read everything again that others may have changed."""
    state, assistant = session.state, session.assistant
    state.facts, state.model = assistant.facts, assistant.entry.name
    state.loading, state.text = assistant.loading, assistant.loaded.text
    state.away = assistant.current.away
    state.template, state.loaded = assistant.loaded.template, assistant.loader.share
    state.thinking = await asyncio.to_thread(lambda: assistant.loaded.text.thinking)
    listed = [one for one in assistant.models() if one.visible and one.usable]
    state.models = [*listed, *assistant.current.visited.values()]
    await session.list_conversations()
    if state.conversation is not None:
        try:
            await session.open(state.conversation.id)
        except UnknownConversation:
            session.leave()


async def ended(session: PageSession, command: ChatCommand) -> None:
    """The running answer has ended and is stored."""
    if session.state.conversation and session.state.conversation.id == command.id:
        try:
            await session.open(command.id)
        except UnknownConversation:  # deleted by another page
            session.leave()
        session.expect()
    await session.list_conversations()


async def settings(_session: PageSession, _command: ChatCommand) -> None:
    """Apply the settings, which come with every command."""


async def new(session: PageSession, _: ChatCommand) -> None:
    """Show an empty page; a running answer continues."""
    session.leave()
    session.expect()


async def open_(session: PageSession, command: ChatCommand) -> None:
    """Show another conversation."""
    session.leave()
    session.state.window = WINDOW
    await session.open(command.id)
    session.expect()


async def earlier(session: PageSession, _: ChatCommand) -> None:
    """Show earlier messages of a long conversation."""
    session.state.window += WINDOW


async def search(session: PageSession, command: ChatCommand) -> None:
    """List only conversations with these words."""
    session.state.words = command.text
    await session.list_conversations()


async def send(session: PageSession, command: ChatCommand) -> None:
    """Answer a message; if that fails, put it back into the input with the reason."""
    state = session.state
    before = state.conversation
    try:
        _check_free(session)
        files = [file for file, _ in state.attachments]
        content = compose(command.text, files)
        if not content.strip():
            raise InvalidRequest("write something first")
        if state.conversation is None:
            state.conversation = await _begin(session, content)
        options = _options(session)
        start = partial(session.assistant.send, state.conversation.id, content, options)
        reply = await _admitted(session, start)
    except (AppError, EngineError):
        await _take_back(session, before, command.text)
        raise
    session.attach(())
    await _started(session, reply)


async def edit(session: PageSession, command: ChatCommand) -> None:
    """Add a version of a message, with the same files, and answer it."""
    try:
        conversation = _current(session)
        _check_free(session)
        old = next((one for one in session.state.messages if one.id == command.id), None)
        kept = split(old.content)[0] if old else ()
        content = compose(command.text, [*kept, *(file for file, _ in session.state.attachments)])
        options = _options(session)
        send = session.assistant.send
        start = partial(send, conversation.id, content, options, edits=command.id)
        reply = await _admitted(session, start)
    except (AppError, EngineError):
        session.state.do_once({"box": command.text})
        raise
    session.attach(())
    await _started(session, reply)


async def again(session: PageSession, command: ChatCommand) -> None:
    """Add another version of an answer."""
    conversation = _current(session)
    _check_free(session)
    which, own = command.id or None, session.assistant.loaded.text.own_sampling
    versions = len(session.state.siblings.get(command.id, ())) or 1
    options = _options(session).another(own, versions)
    start = partial(session.assistant.regenerate, conversation.id, options, which)
    await _started(session, await _admitted(session, start))


async def continue_(session: PageSession, _: ChatCommand) -> None:
    """Continue the last answer."""
    conversation = _current(session)
    _check_free(session)
    start = partial(session.assistant.extend, conversation.id, _options(session))
    await _started(session, await _admitted(session, start))


async def stop(session: PageSession, _: ChatCommand) -> None:
    """Stop the answer and keep what is written."""
    session.assistant.stop(_current(session).id)


async def show(session: PageSession, command: ChatCommand) -> None:
    """Show another version of a message, with the messages after it."""
    conversation = _current(session)
    _check_free(session)
    await asyncio.to_thread(session.history.show, conversation.id, command.id)
    await session.open(conversation.id)
    session.expect()


async def attach(session: PageSession, command: ChatCommand) -> None:
    """Attach a text file to the next message."""
    file = read_attachment(command.name, command.file)
    tokens = await asyncio.to_thread(session.assistant.loaded.text.count, file.text)
    session.attach((*session.state.attachments, (file, tokens)))
    session.expect()


async def detach(session: PageSession, command: ChatCommand) -> None:
    """Remove an attached file."""
    kept = session.state.attachments
    session.attach([one for place, one in enumerate(kept) if str(place) != command.id])
    session.expect()


async def instruct(session: PageSession, command: ChatCommand) -> None:
    """Set the system prompt."""
    state = session.state
    if state.conversation is None:
        state.system = command.text
    else:
        history, conversation = session.history, state.conversation.id
        await asyncio.to_thread(history.instruct, conversation, command.text)
        state.conversation = await asyncio.to_thread(history.conversation, conversation)
    session.expect()


async def expect(session: PageSession, _: ChatCommand) -> None:
    """Another model was loaded: let it read ahead."""
    session.expect()


async def save_preset(session: PageSession, command: ChatCommand) -> None:
    """Save the system prompt and the sampling settings under a name."""
    name = " ".join(command.name.split())
    if not name:
        raise InvalidRequest("a preset needs a name; write one")
    kept = session.state.settings.model_dump(include=set(SAMPLING))
    preset = Preset(name, command.text, kept)
    await asyncio.to_thread(session.history.presets.put, preset)
    await session.list_changed()


async def use_preset(session: PageSession, command: ChatCommand) -> None:
    """Copy a preset into the settings."""
    chosen = next((one for one in session.state.presets if one.name == command.name), None)
    if chosen is None:
        return
    await instruct(session, command.model_copy(update={"text": chosen.system}))
    session.state.settings = session.state.settings.model_copy(update=dict(chosen.options))
    kept = session.state.settings.model_dump_json()
    session.state.do_once({"settings": kept, "system": chosen.system})


async def delete_preset(session: PageSession, command: ChatCommand) -> None:
    """Delete a preset."""
    if not command.name:
        raise InvalidRequest("choose the preset to delete first")
    await asyncio.to_thread(session.history.presets.delete, command.name)
    await session.list_changed()


async def switch(session: PageSession, command: ChatCommand) -> None:
    """Load another model in the background."""
    if command.name == session.assistant.entry.name or session.state.loading:
        return
    session.load(command.name)


async def switch_anyway(session: PageSession, command: ChatCommand) -> None:
    """Load another model although memory seems too small for it."""
    if not session.state.loading:
        session.load(command.id, anyway=True)


async def answer_here(session: PageSession, command: ChatCommand) -> None:
    """Answer the question that another engine failed on with the model that is in memory."""
    _check_free(session)
    await session.assistant.switch(command.id)
    await refresh(session, command)
    await again(session, command.model_copy(update={"id": ""}))


async def template(session: PageSession, command: ChatCommand) -> None:
    """Chat with a base model by a template of that name, or only continue texts."""
    _check_free(session)
    await session.assistant.use_template(command.name)
    session.pages.changed()


async def _admitted(
    session: PageSession, start: Callable[[], Awaitable[RunningReply]]
) -> RunningReply:
    """Start an answer, which counts as a request of the page's key until it ends."""
    end = session.admit()
    try:
        reply = await start()
    except BaseException:
        end()
        raise
    reply.when_ended(end)
    return reply


async def _started(session: PageSession, reply: RunningReply) -> None:
    conversation = _current(session).id
    await session.open(conversation)
    if session.assistant.running(conversation) is None:  # it has ended already, or failed at once
        session.watch(reply)
    await session.list_changed()


async def _begin(session: PageSession, content: str) -> Conversation:
    history = session.history
    title = titled(content)
    return await asyncio.to_thread(history.create_conversation, title, session.state.system)


async def _take_back(session: PageSession, before: Conversation | None, text: str) -> None:
    """Put the text back into the input, and delete a conversation that got no message."""
    created, session.state.conversation = session.state.conversation, before
    session.state.do_once({"box": text})
    if created is not None and before is None:
        await asyncio.to_thread(session.history.delete, created.id)


def _current(session: PageSession) -> Conversation:
    if session.state.conversation is None:
        raise UnknownConversation("no conversation is open; write a message first")
    return session.state.conversation


def _check_free(session: PageSession) -> None:
    """Raise InvalidRequest while a model loads or this conversation is being answered."""
    conversation = session.state.conversation
    if session.state.loading:
        raise InvalidRequest("a model is being loaded; wait until it is ready")
    if conversation is not None and session.assistant.running(conversation.id) is not None:
        raise InvalidRequest("an answer is running; stop it or wait for its end")


def _options(session: PageSession) -> ReplyOptions:
    """The settings as options; a speed mode that this model lacks becomes auto for this answer."""
    settings, facts = session.state.settings, session.assistant.facts
    if not session.assistant.loaded.text.chats and settings.max_tokens is None:
        settings = settings.model_copy(update={"max_tokens": CONTINUED})
    if settings.mode not in (AUTO, *facts.drafters):
        settings = settings.model_copy(update={"mode": AUTO})
    away = bool(session.assistant.current.away)  # that engine knows what is left of its context
    return settings.options(0 if away else facts.context)


ACTIONS: Actions = {
    **LIST_ACTIONS,
    "hello": hello,
    "refresh": refresh,
    "ended": ended,
    "expect": expect,
    "settings": settings,
    "new": new,
    "open": open_,
    "earlier": earlier,
    "search": search,
    "send": send,
    "suggest": send,
    "edit": edit,
    "again": again,
    "continue": continue_,
    "stop": stop,
    "show": show,
    "attach": attach,
    "detach": detach,
    "instruct": instruct,
    "preset-save": save_preset,
    "preset-use": use_preset,
    "preset-delete": delete_preset,
    "model": switch,
    "model-anyway": switch_anyway,
    "answer-here": answer_here,
    "template": template,
}
