"""What the message list shows, as Gradio's own message values: pure functions of text and reports."""

from html import escape
from typing import Any

from app.turn import Report
from engine.request import FinishReason, Stats

Row = dict[str, Any]

MODE_NAMES = {
    "auto": "Auto",
    "none": "Plain",
    "lookup": "Lookup",
    "suffix": "Suffix lookup",
    "recycling": "Token recycling",
    "early_exit": "Early exit",
    "chain": "Draft chain",
    "sequoia": "Optimal draft tree",
    "specexec": "Draft tree",
}
_TITLE_LENGTH = 60

_COPY = (
    '<button class="copy" type="button" aria-label="Copy this answer" data-copy="{text}">'
    '<svg viewBox="0 0 16 16" aria-hidden="true"><path d="M5.5 5.5V3.2c0-.7.5-1.2 1.2-1.2h6.1c.7 0 '
    "1.2.5 1.2 1.2v6.1c0 .7-.5 1.2-1.2 1.2h-2.3M3.2 5.5h6.1c.7 0 1.2.5 1.2 1.2v6.1c0 .7-.5 1.2-1.2 "
    '1.2H3.2c-.7 0-1.2-.5-1.2-1.2V6.7c0-.7.5-1.2 1.2-1.2z"/></svg></button>'
)


def said(text: str) -> Row:
    """What the person wrote, exactly as written: never read as Markdown."""
    return {"role": "user", "content": [_html(f'<div class="said">{escape(text)}</div>')]}


def answer(text: str, *, plain: bool) -> Row:
    """What the model wrote: letter by letter if it is plain text, else as Markdown."""
    shown = f'<div class="plain">{escape(text)}</div>'
    part = _html(shown) if plain else {"type": "text", "text": text}
    return {"role": "assistant", "content": [part]}


def answering(text: str, *, plain: bool) -> list[Row]:
    """An answer that is still being written; its caption keeps the place of the figures."""
    state = "Writing" if text else "Reading"
    note = _note(f'<p class="running">{state}</p><p class="why">&nbsp;</p>')
    return [answer(text, plain=plain), note] if text else [note]


def answered(report: Report, *, plain: bool) -> list[Row]:
    """A whole answer, and under it what ran."""
    if not report.text.strip():
        return [_note(caption(report))]
    copy = _COPY.format(text=escape(report.text))
    return [answer(report.text, plain=plain), _note(copy + caption(report))]


def caption(report: Report) -> str:
    """What ran, how fast, and why; or what broke off. HTML."""
    if report.error:
        return f'<p class="problem">{escape(sentence(report.error))}</p>'
    return f'{_figures(report)}<p class="why">{escape(_why(report))}</p>'


def sentence(message: str) -> str:
    """A message of an error as a sentence of its own."""
    text = message[:1].upper() + message[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def notice(message: str) -> str:
    """One sentence above the input. HTML."""
    return f'<p role="alert">{escape(sentence(message))}</p>'


def title(text: str) -> str:
    """A conversation's name: the start of its first message."""
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_LENGTH else f"{line[: _TITLE_LENGTH - 1]}…"


def before_answer(rows: list[Row]) -> list[Row]:
    """The rows up to the last thing that the person said."""
    said_at = [place for place, row in enumerate(rows) if row["role"] == "user"]
    return rows[: said_at[-1] + 1] if said_at else []


def _figures(report: Report) -> str:
    stats = report.stats
    parts = [f"<b>{escape(_mode(stats))}</b>"]
    if report.tokens_per_second:
        parts.append(f"{report.tokens_per_second:,.0f} tokens/s")
    if stats.drafted:
        parts.append(f"{stats.accepted:,} of {stats.drafted:,} drafted accepted")
    if stats.passes:
        parts.append(f"{report.tokens_per_pass:.1f} tokens per pass")
    spans = "".join(f"<span>{part}</span>" for part in parts)
    return f'<p class="figures">{spans}</p>'


def _mode(stats: Stats) -> str:
    """What ran; under auto also which drafter brought most tokens."""
    name = MODE_NAMES.get(stats.drafter, stats.drafter)
    most = stats.runs[0].drafter if stats.runs else stats.drafter
    return name if most == stats.drafter else f"{name}: {MODE_NAMES.get(most, most).lower()}"


def _why(report: Report) -> str:
    ends = {
        FinishReason.CANCELLED: "Stopped by you. ",
        FinishReason.LENGTH: f"Cut off after {report.stats.emitted:,} tokens. ",
    }
    return ends.get(report.finish_reason, "") + sentence(report.stats.why)


def _note(html: str) -> Row:
    return {"role": "assistant", "content": [_html(f'<div class="caption">{html}</div>')]}


def _html(value: str) -> Row:
    """An HTML component as a part of a message: Gradio passes it on as it is."""
    return {
        "type": "component",
        "component": "html",
        "value": value,
        "constructor_args": {},
        "props": {},
    }
