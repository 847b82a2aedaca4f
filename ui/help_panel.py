"""The help panel: keyboard shortcuts, and the topics in help/*.md as HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ui.widgets import icon

FOLDER = Path(__file__).resolve().parent / "help"

FIRST = (
    "models",
    "troubleshooting",
    "privacy-and-security",
    "measuring",
    "how-it-works",
)  # asked most
SHORTCUTS = (  # keys, what they do, and the script's name of that
    ("enter", "Send the message", ""),
    ("shift+enter", "New line", ""),
    ("escape", "Stop the answer, or close what is open", "escape"),
    ("/", "Go to the input", "focus"),
    ("arrowup", "Edit the last message, from an empty input", "edit-last"),
    ("alt+n", "New chat", "new"),
    ("ctrl+k", "Search conversations", "search"),
    ("alt+r", "Regenerate the last answer", "again-last"),
    ("alt+enter", "Continue the last answer", "continue-last"),
    ("alt+,", "Earlier version of the last answer", "earlier-last"),
    ("alt+.", "Later version of the last answer", "later-last"),
    ("alt+s", "Settings", "panel"),
    ("alt+c", "Colour drafted words", "overlay"),
    ("alt+d", "Dark or light", "theme"),
    ("?", "Help", "help"),
)
_KEY_NAMES = {"arrowup": "\u2191", "escape": "Esc"}
_LINK = re.compile(r'<a href="([\w-]+)\.md(?:#[^"]*)?">')


@dataclass(frozen=True, slots=True)
class Topic:
    """A page of help, as HTML without its heading; ``summary`` is its first paragraph as text."""

    key: str
    title: str
    summary: str
    html: str


def read_topics(folder: Path = FOLDER) -> list[Topic]:
    """Every topic, what people ask first at the top; links between them become links of the panel."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    return sorted((_topic(file, markdown) for file in folder.glob("*.md")), key=_place)


def _place(topic: Topic) -> tuple[int, str]:
    """In the panel: the rest is by title."""
    return FIRST.index(topic.key) if topic.key in FIRST else len(FIRST), topic.title


def topics() -> str:
    """All topics, closed. HTML."""
    return "".join(
        f'<details class="topic" data-topic="{one.key}"><summary><b>{escape(one.title)}</b>'
        f"<small>{escape(one.summary)}</small></summary><article>{one.html}</article></details>"
        for one in read_topics()
    )


def _topic(file: Path, markdown: MarkdownIt) -> Topic:
    tokens = markdown.parse(file.read_text(encoding="utf-8"))
    title, summary = (_first(tokens, kind) for kind in ("heading_open", "paragraph_open"))
    first = next((place for place, token in enumerate(tokens) if token.type == "heading_close"), -1)
    html = markdown.renderer.render(tokens[first + 1 :], markdown.options, {})
    html = _LINK.sub(r'<a href="#" data-topic="\1">', html)
    html = html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace(
        "</table>", "</table></div>"
    )
    html = html.replace("<pre>", '<pre tabindex="0">')
    title = title or file.stem.replace("-", " ").capitalize()
    return Topic(file.stem, title, re.sub(r"[*`_]", "", summary), html)


def _first(tokens: Sequence[Token], kind: str) -> str:
    """The text of the first block of that kind."""
    return next((after.content for token, after in pairwise(tokens) if token.type == kind), "")


def _shortcuts() -> str:
    return "".join(
        f'<div data-keys="{escape(keys)}" data-act="{act}"><dt>{_keys(keys)}</dt>'
        f"<dd>{escape(label)}</dd></div>"
        for keys, label, act in SHORTCUTS
    )


def _keys(keys: str) -> str:
    names = (_KEY_NAMES.get(key, key.capitalize()) for key in keys.split("+"))
    return " ".join(f"<kbd>{escape(name)}</kbd>" for name in names)


PANEL = f"""
<dialog id="help" aria-labelledby="help-title"><header><h2 id="help-title">Help</h2>
<form method="dialog"><button class="act" aria-label="Close the help">{icon("cross")}</button></form></header>
<input id="help-search" type="search" placeholder="Search the help" aria-label="Search the help" autocomplete="off">
<div id="help-list"><details class="topic" data-topic="shortcuts"><summary><b>Keyboard shortcuts</b></summary>
<dl>{_shortcuts()}</dl></details><div id="help-topics"></div>
<p id="help-none" role="status" hidden>No topic has these words.</p></div></dialog>
"""
