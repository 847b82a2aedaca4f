"""The message list as Gradio's message values: pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from app.chat.attachments import Attachment, split
from app.history.records import AnswerFacts, StoredMessage
from app.request import PartialAnswer
from app.text.reasoning.tags import split_reasoning
from app.text.repetition import never_ends, repeats
from engine.request import FinishReason
from ui.chat import markdown
from ui.chat.caption import caption
from ui.widgets import icon

Row = dict[str, Any]
Siblings = Mapping[str | None, Sequence[str]]  # by parent, where there are several


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
    """Every message with its buttons; ``running`` says that the last one is being answered.

    The first ``unseen`` messages no longer fit the context.
    """
    made: list[Row] = []
    for place, message in enumerate(messages):
        if place == unseen > 0:
            made.append(_limit())
        choice = _choice(message, siblings)
        last = place == len(messages) - 1
        if message.role == "user":
            made.append(_user_message(message, choice, unanswered=last and not running))
        elif message.role == "assistant":
            asked = messages[place - 1].content if place else ""
            made += _answered(message, facts.get(message.id), choice, look, asked=asked, last=last)
    return made


def answering(written: PartialAnswer, look: Appearance, asked: str = "") -> list[Row]:
    """The running answer to ``asked``; its caption is as high as that of a whole one."""
    state = f"Writing · {written.tokens:,} tokens" if written.text else "Reading"
    state += " · it repeats itself" if repeats(written.text, asked) else ""
    source = _overlay(written.text, written.spans) if look.overlay else ""
    note = _note(f'<p class="running">{state}</p>', source)
    return [*_answer(written.text, look), note]


def earlier(hidden: int) -> Row:
    """A button that shows the ``hidden`` earlier messages."""
    text = f'<button type="button" class="quiet" data-do="earlier">Show {hidden:,} earlier</button>'
    return _said(_html(f'<div class="earlier">{text}</div>'))


def _limit() -> Row:
    """A line above the first message that fits the context."""
    text = "The messages above no longer fit the context; the model does not see them."
    return _said(_html(f'<p class="limit" role="note">{text}</p>'))


def act(do: str, label: str, key: str, *, shape: str, text: str = "") -> str:
    """A small button; the page's script does ``do``, or sends it with the id and text. HTML."""
    attribute = f' data-text="{escape(text)}"' if text else ""
    return (
        f'<button type="button" class="act" data-do="{do}" data-id="{escape(key)}"{attribute} '
        f'aria-label="{escape(label)}" title="{escape(label)}">{icon(shape)}</button>'
    )


def _user_message(message: StoredMessage, choice: str, *, unanswered: bool) -> Row:
    """The person's message exactly as written, never as Markdown."""
    files, text = split(message.content)
    content = "".join(map(_file, files)) + f'<div class="question">{escape(text)}</div>'
    acts = act("edit", "Edit this message", message.id, shape="edit", text=text)
    if unanswered:
        acts += act("again", "Answer this message", message.id, shape="again")
    return {"role": "user", "content": [_html(f'{content}<div class="acts">{choice}{acts}</div>')]}


def _file(file: Attachment) -> str:
    return (
        f'<details class="file"><summary>{icon("file")}{escape(file.name)}'
        f"<small>{len(file.text):,} characters</small></summary>"
        f'<pre tabindex="0">{escape(file.text)}</pre></details>'
    )


def _answer(text: str, look: Appearance) -> list[Row]:
    """The model's text, exactly as written or as Markdown; its reasoning folds."""
    if look.plain:
        return [_said(_html(f'<div class="plain">{escape(text)}</div>'))] if text.strip() else []
    reasoning, said = split_reasoning(text)
    made = []
    if reasoning and reasoning.strip():
        status = "pending" if said is None else "done"
        metadata = {"title": "Reasoning", "status": status}
        made.append(_said(_markdown(reasoning)) | {"metadata": metadata})
    return [*made, _said(_markdown(said))] if said and said.strip() else made


def _said(part: Row) -> Row:
    return {"role": "assistant", "content": [part]}


def _markdown(text: str) -> Row:
    return {"type": "text", "text": markdown.shown(text)}


def _answered(
    message: StoredMessage,
    facts: AnswerFacts | None,
    choice: str,
    look: Appearance,
    *,
    asked: str,
    last: bool,
) -> list[Row]:
    """A whole answer with its buttons and caption."""
    acts = act("copy", "Copy this answer", message.id, shape="copy", text=message.content)
    acts += act("again", "Regenerate this answer", message.id, shape="again")
    if last:
        acts += act("continue", "Continue this answer", message.id, shape="forward")
    source = _overlay(message.content, facts.spans if facts else ())
    stopped = message.finish_reason is FinishReason.CANCELLED and never_ends(message.content, asked)
    below = f'<div class="acts">{acts}{choice}</div>{_repetition(message, asked, ended=stopped)}'
    below += caption(facts, FinishReason.STOP if stopped else message.finish_reason)
    note = _note(below, source)
    return [*_answer(message.content, look), note]


def _repetition(message: StoredMessage, asked: str, *, ended: bool) -> str:
    """What to do about an answer that repeats itself. HTML."""
    if not repeats(message.content, asked):
        return ""
    what = "Stopped, as it only repeated itself." if ended else "This answer repeats itself."
    return f'<p class="repeats">{what} "Regenerate" gives another one.</p>'


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
    """The source text and its drafted characters, for overlay.js."""
    joined = " ".join(f"{start}-{end}" for start, end in spans)
    return f' data-source="{escape(text)}" data-spans="{joined}"'


def _note(html: str, attributes: str = "") -> Row:
    return _said(_html(f'<div class="caption"{attributes}>{html}</div>'))


def _html(value: str) -> Row:
    """An HTML component as a part of a message; Gradio shows it unchanged."""
    return {
        "type": "component",
        "component": "html",
        "value": value,
        "constructor_args": {},
        "props": {},
    }
