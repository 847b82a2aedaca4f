"""The state of one page of the chat, and its regions as HTML: pure functions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from app.chat.answering_model import ModelText
from app.history.records import AnswerFacts, Conversation, Preset, StoredMessage
from app.models.catalog import CatalogEntry
from app.models.library.fit import Fit
from app.request import PartialAnswer, Thinking
from engine.request import ModelFacts
from ui.chat import composer, transcript
from ui.chat.command import Settings
from ui.chat.composer import Counted
from ui.chat.settings_panel import presets
from ui.chat.suggestions import PLAIN_BELOW, welcome
from ui.chat.transcript import Appearance, Siblings
from ui.tab import Values
from ui.widgets import icon, sentence

WINDOW = 100  # messages that are shown at first; a long conversation opens as fast as a short one


@dataclass(slots=True)
class ChatState:
    """What one page shows of the chat; its session and the actions change it."""

    facts: ModelFacts
    models: Sequence[CatalogEntry] = ()
    model: str = ""
    here: bool = True  # nobody had to log in
    text: ModelText | None = None  # of the model: whether it chats, and how it samples
    away: str = ""  # the engine elsewhere that answers
    template: str = ""  # with which a base model chats
    thinking: Sequence[Thinking] = ()  # reasoning efforts that the model supports
    conversations: Sequence[Conversation] = ()
    presets: Sequence[Preset] = ()
    words: str = ""  # of the search
    conversation: Conversation | None = None
    system: str = ""  # system prompt of a new conversation
    messages: Sequence[StoredMessage] = ()
    facts_by_id: Mapping[str, AnswerFacts] = field(default_factory=dict)  # by message
    siblings: Siblings = field(default_factory=dict)
    window: int = WINDOW
    written: PartialAnswer | None = None  # the running answer so far
    reading: bool = False  # the model reads ahead
    loading: str = ""  # the model that is being loaded
    loaded: float = 0.0  # share of its weights; 0: not known
    suggested: Fit | None = None  # a better model for this machine
    used: int = 0  # tokens of the context
    unseen: int = 0  # oldest messages that no longer fit the context
    attachments: Sequence[Counted] = ()
    settings: Settings = field(default_factory=Settings)
    notice: str = ""
    too_large: str = ""  # the model of which the notice says that memory is too small for it
    offer: str = ""  # a model in memory, for the question that another engine failed on
    once: dict[str, str] = field(default_factory=dict)  # what the page's script does one time
    serial: int = 0  # grows with every change of ``once``
    taken: int = 0  # the highest number of a command that was run
    stored_rows: list[transcript.Row] = field(default_factory=list)  # all but the running answer

    @property
    def appearance(self) -> Appearance:
        """How answers are shown now."""
        small = 0 < self.facts.parameters < PLAIN_BELOW  # 0: not known
        plain = {"auto": small, "markdown": False, "text": True}[self.settings.look]
        return Appearance(plain, self.settings.overlay)

    def do_once(self, once: dict[str, str]) -> None:
        """Let the page's script do something one time."""
        self.once, self.serial = once, self.serial + 1


def values(state: ChatState) -> Values:
    """Every region of the page."""
    current = state.conversation.id if state.conversation else None
    state.stored_rows = _stored_rows(state)
    return {
        "side": _sidebar(state.conversations, current, state.words),
        "welcome": "" if state.conversation or state.written else _welcome(state),
        "notice": _notice(state),
        "chips": composer.chips(state.attachments),
        "pickers": composer.pickers(
            state.models, state.model, state.facts, state.thinking, state.away
        )
        + composer.templates(state.text, state.template),
        "presets": presets(state.presets),
        **running_values(state),
    }


def _welcome(state: ChatState) -> str:
    chats = state.text is None or state.text.chats
    return welcome(
        state.suggested, state.facts.parameters, chats=chats, here=state.here, away=bool(state.away)
    )


def running_values(state: ChatState) -> Values:
    """The regions that change while an answer is written; ``values`` has made the other rows."""
    rows = state.stored_rows
    if state.written is not None:
        asked = state.messages[-1].content if state.messages else ""
        rows = [*rows, *transcript.answering(state.written, state.appearance, asked)]
    return {
        "rows": rows,
        "meter": composer.meter(_used(state), state.facts.context, reading=state.reading),
        "state": _script_state(state),
    }


def _stored_rows(state: ChatState) -> list[transcript.Row]:
    hidden = max(0, len(state.messages) - state.window)
    rows = [transcript.earlier(hidden)] if hidden else []
    return rows + transcript.rows(
        state.messages[hidden:],
        state.facts_by_id,
        state.siblings,
        state.appearance,
        running=state.written is not None,
        unseen=state.unseen - hidden,
    )


def _notice(state: ChatState) -> str:
    if state.loading:
        known = f' value="{state.loaded:.2f}"' if state.loaded else ""
        bar = f'<progress{known} aria-label="In memory"></progress>'
        return f'<p role="status">Loading {escape(state.loading)} …{bar}</p>'
    if state.notice:
        return f'<p role="alert">{escape(sentence(state.notice))}{_anyway(state.too_large)}{_here(state.offer)}</p>'
    if state.away:
        return f'<p role="status" class="away">{escape(sentence(state.away))}</p>'
    return _CONTINUES if state.text is not None and not state.text.chats else ""


def _here(model: str) -> str:
    if not model:
        return ""
    return (
        f' <button type="button" class="soft" data-do="answer-here" data-id="{escape(model)}">'
        f"Answer with {escape(model)}</button>"
    )


def _anyway(model: str) -> str:
    if not model:
        return ""
    return (
        f' <button type="button" class="soft" data-do="model-anyway" data-id="{escape(model)}">'
        "Load anyway</button>"
    )


_CONTINUES = (
    '<p role="status">This model has no chat template: it continues your text. To chat with it, '
    "choose a template below.</p>"
)


def _used(state: ChatState) -> int:
    """The conversation, the answer so far, and the files that go with the next message."""
    attached = sum(tokens for _, tokens in state.attachments)
    return state.used + attached + (state.written.tokens if state.written else 0)


def _script_state(state: ChatState) -> str:
    """What the script needs to know, as JSON in an attribute. HTML."""
    conversation = state.conversation
    data = {
        "ready": True,
        "conversation": conversation.id if conversation else "",
        "title": conversation.title if conversation else "",
        "system": conversation.system if conversation else state.system,
        "busy": state.written is not None,
        "model": state.loading or state.model,
        "loading": bool(state.loading),
        "tokens": state.written.tokens if state.written else 0,
        "serial": state.serial,
        "taken": state.taken,
        "once": state.once,
        "own": dict(state.text.own_sampling) if state.text is not None else {},
    }
    return f'<div data-state="{escape(json.dumps(data))}"></div>'


def _sidebar(conversations: Sequence[Conversation], current: str | None, words: str) -> str:
    """Pinned ones first, under their own heading; ``words`` are those of a search."""
    if not conversations:
        text = (
            "No conversation has these words."
            if words.strip()
            else "Your conversations appear here."
        )
        return f'<p class="none">{text}</p>'
    pinned = [one for one in conversations if one.pinned]
    others = [one for one in conversations if not one.pinned]
    heading = "Found" if words.strip() else "Recent"
    return _conversations("Pinned", pinned, current) + _conversations(heading, others, current)


def _conversations(heading: str, conversations: Sequence[Conversation], current: str | None) -> str:
    if not conversations:
        return ""
    items = "".join(_conversation(one, current=one.id == current) for one in conversations)
    return f"<h2>{heading}</h2><ul>{items}</ul>"


def _conversation(one: Conversation, *, current: bool) -> str:
    name = escape(one.title) or "Untitled"
    mark = ' aria-current="true"' if current else ""
    pinned = " data-pinned" if one.pinned else ""
    return (
        f'<li><button type="button" class="open" data-do="open" data-id="{one.id}"{mark}>{name}'
        f'</button><button type="button" class="act more" data-do="menu" data-id="{one.id}" '
        f'data-text="{escape(one.title)}"{pinned} aria-label="Actions for {name}">{icon("more")}'
        "</button></li>"
    )
