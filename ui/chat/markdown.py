"""An answer's Markdown, changed so that Gradio shows all of it: no text is HTML, formulas are marked.

Gradio removes tags that it does not know, strikes out what is between single tildes, and looks for
formulas inside code, too. Markdown itself takes asterisks for products and underscores for names away,
and shows neither where a reference leads nor a picture that this page may not load.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from markdown_it import MarkdownIt

# Around formulas: noncharacters, which no text has.
DISPLAY, INLINE = ("\ufdd0", "\ufdd1"), ("\ufdd2", "\ufdd3")
DELIMITERS: list[dict[str, str | bool]] = [  # for Gradio
    {"left": left, "right": right, "display": (left, right) == DISPLAY}
    for left, right in (DISPLAY, INLINE)
]
_CODE = ("fence", "code_block")
# Gradio colours C++ by rules that need those of C, does not load these, and then shows nothing at all.
# It draws diagrams, and a mistake in one takes its text away.
_OTHERWISE = {"cpp": "c", "mermaid": "text"}
_LANGUAGE = re.compile(rf"\A([^\n]*?(?:`{{3,}}|~{{3,}})[ \t]*)({'|'.join(_OTHERWISE)})\b")
_REPLACED = {"<": "&lt;", "&": "&amp;", "~": "&#126;", "*": "&#42;"}
_OURS = "\ufdd0-\ufdd3"
# ``[label]: address "title"``: Markdown shows nothing of it.
_REFERENCE = (
    rf"\[[^\[\]\n{_OURS}]+\]:[ \t]*[^\s{_OURS}]+(?:[ \t]+(?:\"[^\"\n{_OURS}]*\"|'[^'\n{_OURS}]*'))?"
)
_LINE = r"(?:(?!\n[ \t]*\n).)+?"  # up to an empty line
_MARKED = re.compile(
    rf"""
    (?P<code>(?<!`)(?P<ticks>`+)(?!`){_LINE}(?<!`)(?P=ticks)(?!`))
    | \$\$(?P<display>.+?)\$\$ | \\\[(?P<bracketed>.+?)\\\]
    | \\\((?P<inline>{_LINE})\\\)
    # not between two prices: no space inside, no digit after it
    | (?<![\\$\w])\$(?P<dollars>[^\s$](?:[^$\n]{{0,200}}[^\s$\\])?)\$(?![$\w])
    | (?P<kept>\\[!-/:-@\[-`{{-~] | <[a-z][a-z0-9+.-]{{1,31}}:[^\s<>]*> | (?<=\]\()<[^<>\n]*>(?=\)))
    | (?P<break><br[ ]?/?>)
    | !\[(?P<alt>[^\[\]\n]*)\]\((?P<picture>https?://[^\s()]+)[^()\n]*\)
    | ^(?P<before>[ ]{{0,3}}(?:(?:[-*+>]|\d+[.)])[ ]+)*)(?P<reference>{_REFERENCE})[ \t]*$
    | (?<![\w\\])__(?P<name>[a-z](?:\w*[a-z0-9])?)__(?!\w)
    # what is emphasised from its first letter on, and no product or power
    | (?P<emphasis>(?<![\w*\\])(?P<stars>\*\*?)(?![\s*])[^*\n<&~$`\\!\[\]_{_OURS}]+(?<!\s)(?P=stars)(?!\*))
    | (?P<html><|&(?=\#?\w+;)|(?<!~)~(?!~)|(?<=[0-9a-z)])\*(?=[0-9a-z])|(?<=[0-9)])\*(?=\()|(?<=[0-9a-z)])\*\*(?=[0-9]))
    | (?P<mark>[{_OURS}])
    """,
    re.DOTALL | re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)


class _Block(NamedTuple):
    """Lines of one kind: code, a table, or the rest."""

    kind: str
    text: str


def shown(text: str) -> str:
    """``text`` as Gradio's Markdown shows it letter by letter, formatting and formulas aside."""
    blocks = list(_blocks(text))
    return _references(blocks) + "".join(map(_shown, blocks))


def _references(blocks: Iterable[_Block]) -> str:
    """The definitions of references, for they define nothing where they are shown."""
    texts = (block.text for block in blocks if not block.kind and "]:" in block.text)
    found = (one["reference"] for text in texts for one in _MARKED.finditer(text))
    lines = "".join(f"{one}\n" for one in dict.fromkeys(filter(None, found)))
    return f"{lines}\n" if lines else ""


def _shown(block: _Block) -> str:
    if block.kind in _CODE:
        return _LANGUAGE.sub(lambda found: found[1] + _OTHERWISE[found[2]], block.text)
    return _MARKED.sub(_in_table if block.kind == "table_open" else _in_text, block.text)


def has_formulas(text: str) -> bool:
    """Whether ``text``, as ``shown`` makes it, has a formula."""
    return DISPLAY[0] in text or INLINE[0] in text


def _blocks(text: str) -> Iterator[_Block]:
    lines = re.findall(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+", text)
    starts = [0, *accumulate(map(len, lines))]
    blocks = MarkdownIt("commonmark", {"html": False}).enable("table").disable("inline")
    at = 0
    for token in blocks.parse(text):
        if token.map and token.type in (*_CODE, "table_open") and token.map[0] >= at:
            start, end = token.map[0], min(token.map[1], len(lines))
            yield _Block("", text[starts[at] : starts[start]])
            yield _Block(token.type, text[starts[start] : starts[end]])
            at = end
    yield _Block("", text[starts[at] :])


def _in_table(found: re.Match[str]) -> str:
    """A cell has no other way to begin a line."""
    return found["break"] or _in_text(found)


def _in_text(found: re.Match[str]) -> str:
    display = found["display"] or found["bracketed"]
    inline = found["inline"] or found["dollars"]
    if display or inline:
        left, right = DISPLAY if display else INLINE
        return f"{left}{display or inline}{right}"
    if found["mark"]:
        return "\ufffd"
    return _hidden_by_markdown(found) or found[0]


def _hidden_by_markdown(found: re.Match[str]) -> str:
    """What Markdown or Gradio would not show, so that it is shown; empty for all else."""
    if found["picture"]:
        return f"[{found['alt'] or found['picture']}]({found['picture']})"
    if found["reference"]:
        return f"{found['before']}\\{found['reference']}"
    if found["name"]:
        return rf"\_\_{found['name']}\_\_"
    if found["break"]:
        return f"&lt;{found['break'][1:]}"
    return "".join(_REPLACED[one] for one in found["html"] or "")
