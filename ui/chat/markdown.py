"""An answer's Markdown, changed so that Gradio shows all of it: no text is HTML, formulas are marked.

Gradio removes tags that it does not know, strikes out what is between single tildes, looks for
formulas inside code, too, and takes tags after an address for a part of it. Markdown itself takes
asterisks for products and underscores for names away, cuts a row of a table at the bars of code, knows no
words that end without a space, and shows neither where a reference leads nor a picture that this page may
not load.
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
_MOST = 2000  # characters of a formula: who opens a thousand and closes none must not wait
_CODE_SPAN = r"(?<!`)(?P<ticks>`+)(?!`){}(?<!`)(?P=ticks)(?!`)"
_STRONG = rf"(?:[^*\n<&~$`\\!\[\]_{_OURS}]|!(?!\[))+"  # what may be inside, and is nothing else
_LEADS = "https?://|mailto:|tel:"  # somewhere else than to this page
_LABEL = r"(?:[^\[\]\n]|\[[^\[\]\n]{0,300}\])*"
_ENVIRONMENT = (
    r"(?:align|alignat|aligned|array|cases|equation|gather|gathered|split|[bpvBV]?matrix)\*?"
)
_MARKED = re.compile(
    rf"""
    (?P<code>{_CODE_SPAN.format(_LINE)})
    | \$\$(?P<display>.+?)\$\$
    | \\\[(?P<bracketed>(?!\s*\d*\s*\\\]).{{1,{_MOST}}}?)\\\]  # not a number in brackets, or an empty box
    | (?P<environment>\\begin\{{(?P<named>{_ENVIRONMENT})\}}.{{1,{_MOST}}}?\\end\{{(?P=named)\}})
    | \\\((?P<inline>(?:(?!\n[ \t]*\n).){{1,{_MOST}}}?)\\\)
    # not between two prices: no space inside, no digit after it
    | (?<![\\$\w])\$(?P<dollars>(?!\s)(?:\\[^\n]|[^$\n\\]){{1,200}}(?<!\s))\$(?![$\w])
    | (?<![\w\\])(?P<path>(?:[a-z]:\\|\\\\(?=\w))(?:[^\s<>"'`|()\[\],;*]|\*(?=\.))+)  # of Windows
    | (?P<kept>\\[!-/:-@\[-`{{-~] | <[a-z][a-z0-9+.-]{{1,31}}:[^\s<>]*> | (?<=\]\()<(?:{_LEADS})[^<>\n]*>(?=\))
        | !\[[^\[\]\n]*\]\(data:image/[^\s()]*\))
    | (?P<break><br[ ]?/?>)
    | \[!\[(?P<badge>[^\[\]\n]*)\]\([^()\n]*\)\](?=\(<?(?:{_LEADS}))
    | !\[(?P<alt>(?:(?!\n[ \t]*\n)[^\[\]])*)\]\((?P<picture><https?://[^<>\n]*>|https?://(?:[^\s()]|\([^\s()]*\))+)[^()\n]*\)
    | (?P<bang>!)(?=\[)
    # a link that leads nowhere from here, or an index and a call
    | (?P<bracket>\[)(?={_LABEL}\]\((?!<?(?:{_LEADS}))[^\n]{{0,500}}\))
    | (?P<address>(?:https?://|www\.)[^\s<>"'()\[\]`]{{1,300}}(?=["']?[<>]))
    | ^(?P<before>[ ]{{0,3}}(?:(?:[-*+>]|\d+[.)])[ ]+)*)(?P<reference>{_REFERENCE})[ \t]*$
    | (?<![\w\\])__(?P<name>[a-z](?:\w*[a-z0-9])?)__(?!\w)
    # strong up to a sign, next to a letter: Chinese and Japanese have no spaces there
    | (?P<lead>[^\W\d_a-z])(?P<signs>\*\*(?=[^\w\s*]){_STRONG}(?<!\s)\*\*(?!\*))(?P<next>(?<=[^\w\s*]\*\*)[^\W\d_])?
    | (?<![*\\\da-z)\]])(?P<sign>\*\*(?![\s*\d]){_STRONG}(?<=[^\w\s])\*\*)(?P<trail>[^\W\d_])
    # what is emphasised from its first letter on, and no product or power
    | (?P<emphasis>(?<![\w*\\])(?P<stars>\*\*?)(?![\s*])[^*\n<&~$`\\!\[\]_{_OURS}]+(?<!\s)(?P=stars)(?!\*))
    | (?P<html><|&(?=\#?\w+;)|(?<!~)~(?!~)|(?<=[0-9a-z)])\*(?=[0-9a-z])|(?<=[0-9)])\*(?=\()|(?<=[0-9a-z)])\*\*(?=[0-9]))
    | (?P<mark>[{_OURS}])
    """,
    re.DOTALL | re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_BAR = re.compile(r"(?<!\\)\|")
_CODE_IN_LINE = re.compile(_CODE_SPAN.format(".+?"))
_SIGNS = re.compile(r"[<&~*_\\\[\]]")  # what Markdown would read
_ENDS_ADDRESS = "<!---->"  # as only a space and a tag do; Gradio takes it out


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
    if block.kind == "table_open":
        return _MARKED.sub(_in_table, _with_whole_cells(block.text))
    return _MARKED.sub(_in_text, block.text)


def _with_whole_cells(table: str) -> str:
    """A row with more cells than the head has bars inside code, which would end a cell."""
    head, *rows = table.splitlines(keepends=True)
    most = len(_BAR.findall(head))
    return head + "".join(
        _CODE_IN_LINE.sub(lambda code: _BAR.sub(r"\\|", code[0]), row)
        if len(_BAR.findall(row)) > most
        else row
        for row in rows
    )


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
    display = found["display"] or found["bracketed"] or found["environment"]
    formula = display or found["inline"] or found["dollars"]
    if formula:
        left, right = DISPLAY if display else INLINE
        return f"{left}{formula}{right}" if _closed(formula) else _as_written(found[0])
    if found["mark"]:
        return "\ufffd"
    if found["path"]:
        return _as_written(found["path"])
    return _hidden_by_markdown(found) or _tight(found) or found[0]


def _closed(formula: str) -> bool:
    """Whether it ends outside of braces; else the page would look for its end in all that follows."""
    bare = re.sub(r"\\.", "", formula, flags=re.DOTALL)
    return not bare.endswith("\\") and bare.count("{") <= bare.count("}")


def _as_written(text: str) -> str:
    return _SIGNS.sub(lambda sign: _entity(sign[0]), text)


def _entity(letter: str) -> str:
    return f"&#{ord(letter)};"


def _tight(found: re.Match[str]) -> str:
    """Strong text between letters, which are written so that they count as signs; empty for all else."""
    if found["signs"]:
        after = _entity(found["next"]) if found["next"] else ""
        return f"{_entity(found['lead'])}{found['signs']}{after}"
    return f"{found['sign']}{_entity(found['trail'])}" if found["sign"] else ""


def _hidden_by_markdown(found: re.Match[str]) -> str:
    """What Markdown or Gradio would not show, so that it is shown; empty for all else."""
    if found["picture"] or found["badge"] is not None:
        words, address = (found["alt"] or found["badge"] or "").strip(), found["picture"]
        label = _as_written(words) or (address or "picture").strip("<>")
        return f"[{label}]({address})" if address else f"[{label}]"
    if found["bang"] or found["bracket"] or found["reference"]:
        return f"{found['before'] or ''}\\{found['reference'] or found[0]}"
    if found["address"]:
        return f"{found['address']}{_ENDS_ADDRESS}"
    if found["name"]:
        return rf"\_\_{found['name']}\_\_"
    if found["break"]:
        return f"&lt;{found['break'][1:]}"
    return "".join(_REPLACED[one] for one in found["html"] or "")
