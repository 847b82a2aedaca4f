"""What a page shows, as data, and that data as the values of its regions: no input, no output."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from app.chat.attachments import Attachment
from app.history.records import AnswerFacts, Conversation, Preset, StoredMessage
from app.models.catalog import CatalogEntry
from app.models.library.fit import Fit
from app.request import PartialAnswer, Thinking
from engine.request import ModelFacts
from ui.chat import composer, transcript
from ui.chat.caption import sentence
from ui.chat.command import Settings
from ui.chat.settings_panel import presets
from ui.chat.sidebar import sidebar
from ui.chat.suggestions import welcome
from ui.chat.transcript import Appearance, Siblings

WINDOW = 100  # messages that are shown at first; a long conversation opens as fast as a short one
PLAIN_BELOW = 100_000_000  # parameters: models this small write plain text, not Markdown

Values = dict[str, Any]  # by region
Counted = tuple[Attachment, int]  # a file that goes with the next message, and its tokens


@dataclass(slots=True)
class Shown:
    """Everything that one page shows; a session changes it."""

    facts: ModelFacts
    models: Sequence[CatalogEntry] = ()
    model: str = ""
    thinking: Sequence[Thinking] = ()  # how much of it can be asked of the model
    conversations: Sequence[Conversation] = ()
    presets: Sequence[Preset] = ()
    words: str = ""  # of the search
    conversation: Conversation | None = None
    system: str = ""  # of a conversation that has not begun
    messages: Sequence[StoredMessage] = ()
    told: Mapping[str, AnswerFacts] = field(default_factory=dict)
    siblings: Siblings = field(default_factory=dict)
    window: int = WINDOW
    written: PartialAnswer | None = None  # of the answer that runs
    reading: bool = False  # something is read ahead
    loading: str = ""  # the model that is being loaded
    suggested: Fit | None = None  # a better model for this machine
    used: int = 0  # tokens of the context
    unseen: int = 0  # messages that the model is no longer told
    attachments: Sequence[Counted] = ()
    settings: Settings = field(default_factory=Settings)
    notice: str = ""
    once: dict[str, str] = field(default_factory=dict)  # told to the script one time
    serial: int = 0  # grows with everything in ``once``
    taken: int = 0  # the number of the last command that was obeyed

    @property
    def look(self) -> Appearance:
        """How answers are shown now."""
        small = self.facts.parameters < PLAIN_BELOW
        plain = {"auto": small, "markdown": False, "text": True}[self.settings.look]
        return Appearance(plain, self.settings.overlay)

    def tell(self, **once: str) -> None:
        """Let the page's script do something one time."""
        self.once, self.serial = once, self.serial + 1


def values(shown: Shown) -> Values:
    """Every region of the page."""
    attached = [composer.Attached(file.name, tokens) for file, tokens in shown.attachments]
    current = shown.conversation.id if shown.conversation else None
    return {
        "rows": _rows(shown),
        "side": sidebar(shown.conversations, current, shown.words),
        "welcome": "" if shown.conversation or shown.written else welcome(shown.suggested),
        "notice": _notice(shown),
        "chips": composer.chips(attached),
        "pickers": composer.pickers(shown.models, shown.model, shown.facts, shown.thinking),
        "meter": composer.meter(_used(shown), shown.facts.context, reading=shown.reading),
        "presets": presets(shown.presets),
        "state": _state(shown),
    }


def _rows(shown: Shown) -> list[transcript.Row]:
    hidden = max(0, len(shown.messages) - shown.window)
    rows = [transcript.earlier(hidden)] if hidden else []
    running = shown.written is not None
    kept, unseen = shown.messages[hidden:], shown.unseen - hidden
    rows += transcript.rows(
        kept, shown.told, shown.siblings, shown.look, running=running, unseen=unseen
    )
    if shown.written is not None:
        rows += transcript.answering(shown.written, shown.look)
    return rows


def _notice(shown: Shown) -> str:
    if shown.loading:
        return f'<p role="status">Loading {escape(shown.loading)} …</p>'
    return f'<p role="alert">{escape(sentence(shown.notice))}</p>' if shown.notice else ""


def _used(shown: Shown) -> int:
    """The conversation, the answer so far, and the files that go with the next message."""
    attached = sum(tokens for _, tokens in shown.attachments)
    return shown.used + attached + (shown.written.tokens if shown.written else 0)


def _state(shown: Shown) -> str:
    """What the script needs to know, as JSON in an attribute. HTML."""
    conversation = shown.conversation
    state = {
        "ready": True,
        "conversation": conversation.id if conversation else "",
        "title": conversation.title if conversation else "",
        "system": conversation.system if conversation else shown.system,
        "busy": shown.written is not None,
        "model": shown.loading or shown.model,
        "loading": bool(shown.loading),
        "tokens": shown.written.tokens if shown.written else 0,
        "serial": shown.serial,
        "taken": shown.taken,
        "once": shown.once,
    }
    return f'<div data-state="{escape(json.dumps(state))}"></div>'
