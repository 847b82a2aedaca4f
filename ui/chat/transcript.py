"""What the message list shows, as Gradio's own message values: pure functions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from app.chat.attachments import Attachment, split
from app.history.records import AnswerFacts, StoredMessage
from app.request import PartialAnswer
from ui.chat.caption import caption
from ui.icons import icon

Row = dict[str, Any]
Siblings = Mapping[str | None, Sequence[str]]  # by parent, where there are several

_TITLE_LENGTH = 60
# Code is passed over; what looks like two prices is none: no space inside, no digit behind.
_DOLLARS = re.compile(
    r"(?P<code>```.*?(?:```|\Z)|`[^`\n]*`|\$\$.*?(?:\$\$|\Z))"
    r"|(?<![\\$\w])\$(?P<formula>[^\s$](?:[^$\n]{0,200}[^\s$\\])?)\$(?![$\w])",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Appearance:
    """How answers are shown: as plain text or Markdown, and whether drafted words are coloured."""

    plain: bool
    overlay: bool


def rows(
    messages: Sequence[StoredMessage],
    facts: Mapping[str, AnswerFacts],
    siblings: Siblings,
    look: Appearance,
    *,
    running: bool = False,
    unseen: int = 0,
) -> list[Row]:
    """Every message with what can be done with it; ``running`` is an answer to the last one.

    Of the first ``unseen`` the model is no longer told.
    """
    made: list[Row] = []
    for place, message in enumerate(messages):
        if place == unseen > 0:
            made.append(_limit())
        choice = _choice(message, siblings)
        last = place == len(messages) - 1
        if message.role == "user":
            made.append(_said(message, choice, unanswered=last and not running))
        elif message.role == "assistant":
            made += _answered(message, facts.get(message.id), choice, look, last=last)
    return made


def answering(written: PartialAnswer, look: Appearance) -> list[Row]:
    """An answer that is still being written; its caption keeps the place of the figures."""
    state = f"Writing · {written.tokens:,} tokens" if written.text else "Reading"
    source = _overlay(written.text, written.spans) if look.overlay else ""
    note = _note(f'<p class="running">{state}</p><p class="why">&nbsp;</p>', source)
    return [_answer(written.text, look), note] if written.text else [note]


def earlier(hidden: int) -> Row:
    """The way to messages that are not shown yet."""
    text = f'<button type="button" class="quiet" data-do="earlier">Show {hidden:,} earlier</button>'
    return {"role": "assistant", "content": [_html(f'<div class="earlier">{text}</div>')]}


def _limit() -> Row:
    """Where what the model is told begins."""
    text = "What stands above no longer fits the context: the model goes on without it."
    return {"role": "assistant", "content": [_html(f'<p class="limit" role="note">{text}</p>')]}


def title(text: str) -> str:
    """A conversation's name: the start of its first message."""
    files, words = split(text)
    line = " ".join(words.split()) or ", ".join(file.name for file in files)
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"


def formulas(text: str) -> str:
    """Markdown with formulas between single dollars as Gradio knows them."""
    return _DOLLARS.sub(lambda m: m["code"] or f"\\({m['formula']}\\)", text)


def act(do: str, label: str, key: str, *, shape: str, text: str = "") -> str:
    """A small button; the page's script sends ``do`` with the id and perhaps a text. HTML."""
    carried = f' data-text="{escape(text)}"' if text else ""
    return (
        f'<button type="button" class="act" data-do="{do}" data-id="{escape(key)}"{carried} '
        f'aria-label="{escape(label)}" title="{escape(label)}">{icon(shape)}</button>'
    )


def _said(message: StoredMessage, choice: str, *, unanswered: bool) -> Row:
    """What the person wrote, exactly as written: never read as Markdown."""
    files, text = split(message.content)
    shown = "".join(map(_file, files)) + f'<div class="said">{escape(text)}</div>'
    acts = act("edit", "Edit this message", message.id, shape="edit", text=text)
    if unanswered:
        acts += act("again", "Answer this message", message.id, shape="again")
    return {"role": "user", "content": [_html(f'{shown}<div class="acts">{choice}{acts}</div>')]}


def _file(file: Attachment) -> str:
    return (
        f'<details class="file"><summary>{icon("file")}{escape(file.name)}'
        f"<small>{len(file.text):,} characters</small></summary>"
        f'<pre tabindex="0">{escape(file.text)}</pre></details>'
    )


def _answer(text: str, look: Appearance) -> Row:
    """What the model wrote: letter by letter if it is plain text, else as Markdown."""
    shown = f'<div class="plain">{escape(text)}</div>'
    part = _html(shown) if look.plain else {"type": "text", "text": formulas(text)}
    return {"role": "assistant", "content": [part]}


def _answered(
    message: StoredMessage, facts: AnswerFacts | None, choice: str, look: Appearance, *, last: bool
) -> list[Row]:
    """A whole answer, and under it what ran."""
    acts = act("copy", "Copy this answer", message.id, shape="copy", text=message.content)
    acts += act("again", "Regenerate this answer", message.id, shape="again")
    if last:
        acts += act("continue", "Continue this answer", message.id, shape="forward")
    source = _overlay(message.content, facts.spans if facts else ())
    below = f'<div class="acts">{acts}{choice}</div>{caption(facts, message.finish_reason)}'
    note = _note(below, source)
    return [_answer(message.content, look), note] if message.content.strip() else [note]


def _choice(message: StoredMessage, siblings: Siblings) -> str:
    """Earlier and later versions of a message. HTML; empty if there is only this one."""
    versions = siblings.get(message.parent, ())
    if message.id not in versions:
        return ""
    place = versions.index(message.id)
    before = versions[place - 1] if place else ""
    after = versions[place + 1] if place + 1 < len(versions) else ""
    steps = [_step("Earlier version", before, "left"), _step("Later version", after, "right")]
    return f'<span class="choice">{steps[0]}{place + 1} / {len(versions)}{steps[1]}</span>'


def _step(label: str, key: str, shape: str) -> str:
    if key:
        return act("show", label, key, shape=shape)
    return f'<button type="button" class="act" disabled aria-label="{label}">{icon(shape)}</button>'


def _overlay(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The source text and its drafted characters, for the script that colours them."""
    joined = " ".join(f"{start}-{end}" for start, end in spans)
    return f' data-source="{escape(text)}" data-spans="{joined}"'


def _note(html: str, attributes: str = "") -> Row:
    value = f'<div class="caption"{attributes}>{html}</div>'
    return {"role": "assistant", "content": [_html(value)]}


def _html(value: str) -> Row:
    """An HTML component as a part of a message: Gradio passes it on as it is."""
    return {
        "type": "component",
        "component": "html",
        "value": value,
        "constructor_args": {},
        "props": {},
    }
