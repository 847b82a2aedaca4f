"""The input and its surroundings: attached files, model, speed mode, the use of the context."""

from collections.abc import Mapping, Sequence
from html import escape

from app.chat.answering_model import ModelText
from app.chat.attachments import Attachment
from app.models.catalog import CatalogEntry
from app.request import AS_TAUGHT, Thinking
from app.text.named_templates import TEMPLATES
from engine.request import AUTO, ModelFacts
from ui.chat.caption import mode_name
from ui.widgets import counted, icon, options, sentence

INPUT = f"""
<p id="crowd" role="alert" hidden>Slipstream is open in <b></b> windows, and a browser allows six connections:
close one, or your messages have to wait.</p>
<p id="lost" role="alert" hidden>Slipstream has not taken this: it does not answer, or the message is larger than
8 MiB. Your text is kept; send it again.</p>
<div id="editing" hidden>Editing a message: the old one is kept as a version.
<button type="button" class="quiet" data-do="edit-cancel">Cancel</button></div>
<textarea id="box" rows="1" dir="auto" aria-label="Your message" placeholder="Ask, or paste a text"
 autofocus></textarea>
<input id="attach-file" type="file" multiple hidden aria-label="Text files to attach">
<button type="button" id="attach" class="act" data-do="attach" aria-label="Attach a text file"
 title="Attach a text file">{icon("clip")}</button>
<button type="button" id="send" class="primary" data-do="send">Send</button>
<button type="button" id="stop" data-do="stop" hidden>Stop</button>
"""


_AMOUNTS: Mapping[str, str] = {
    AS_TAUGHT: "As usual", "off": "Off", "on": "On", "low": "Little", "medium": "Some", "high": "Much",
}  # fmt: skip


Counted = tuple[Attachment, int]  # a file of the next message, and its tokens


def chips(attached: Sequence[Counted]) -> str:
    """Attached files with their tokens. HTML."""
    made = "".join(
        f'<span class="chip">{icon("file")}{escape(file.name)}'
        f"<small>{counted(tokens, 'token')}</small>"
        f'<button type="button" class="act" data-do="detach" data-id="{place}" '
        f'aria-label="Remove {escape(file.name)}">{icon("cross")}</button></span>'
        for place, (file, tokens) in enumerate(attached)
    )
    return f'<div class="chips">{made}</div>' if made else ""


_SPEED = "How answers are sped up; the words stay the model's own"
_ITS_OWN = "The other engine drafts in its own way: speed modes run only with models loaded here"


def pickers(
    models: Sequence[CatalogEntry],
    current: str,
    facts: ModelFacts,
    thinking: Sequence[Thinking],
    away: str = "",
) -> str:
    """Model with its notes, speed mode, thinking; only choices that work. HTML.

    ``away`` is the engine elsewhere that answers, which drafts in its own way.
    """
    fixed, tip = (" disabled", _ITS_OWN) if away else ("", _SPEED)
    mode = options(dict.fromkeys((AUTO, *facts.drafters)), shown=mode_name)
    return (
        f'<label title="{escape(" ".join(map(sentence, facts.notes)))}"><span>Model</span>'
        f'<select id="model" data-do="model">{_models(models, current)}</select></label>'
        f'<label title="{escape(tip)}"><span>Speed</span>'
        f'<select id="mode" data-setting="mode"{fixed}>{mode}</select></label>'
        f"{_thinking(thinking)}"
    )


def _models(models: Sequence[CatalogEntry], current: str) -> str:
    """Those of other engines stand apart, under the engine's name."""
    places: dict[str, list[str]] = {"": []}
    for entry in models:
        places.setdefault(entry.remote, []).append(entry.name)
    if not any(current in names for names in places.values()):
        places[""].insert(0, current)
    here = options(places.pop(""), current)
    away = "".join(
        f'<optgroup label="{escape(f"On another engine: {engine}")}">{options(names, current)}</optgroup>'
        for engine, names in places.items()
    )
    return f'<optgroup label="On this computer">{here}</optgroup>{away}' if away else here


def _thinking(offered: Sequence[Thinking]) -> str:
    """How much the model thinks before it answers, if its template has a switch."""
    if not offered:
        return ""
    amounts = options((AS_TAUGHT, *offered), shown=_AMOUNTS.__getitem__)
    return (
        '<label title="How much the model thinks before it answers">'
        f'<span>Thinking</span><select id="thinking" data-setting="thinking">{amounts}</select></label>'
    )


def templates(text: ModelText | None, chosen: str) -> str:
    """The choice of a chat template, for a model that brings none. HTML."""
    if text is None or (text.chats and not text.borrows):
        return ""
    names = options(("", *TEMPLATES), chosen, shown=lambda name: name or "None: continue my text")
    return (
        '<label title="How a conversation is written for this model, which brings no way of its own">'
        f'<span>Template</span><select id="template" data-do="template">{names}</select></label>'
    )


_READING = (
    '<span class="ahead" title="The next answer begins sooner; your messages always go first">'
    "reading ahead</span>"
)


def meter(used: int, context: int, *, reading: bool = False) -> str:
    """How much of the context is used, and whether the model reads ahead. HTML."""
    share = min(1.0, used / context) if context else 0.0
    of = f" of {context:,}" if context else ""  # an engine elsewhere may not tell
    text = f"{used:,}{of} tokens of context"
    state = " full" if share > 0.9 else ""
    return (
        f'<span class="meter{state}" role="meter" aria-label="Context" aria-valuemin="0" '
        f'aria-valuemax="{context}" aria-valuenow="{used}" aria-valuetext="{text}" title="{text}">'
        f'<i style="width:{share:.1%}"></i></span><span class="used">{text}</span>{_READING if reading else ""}'
    )
