"""The empty page: three suggestions that the included model can do and drafting speeds up."""

from dataclasses import dataclass
from html import escape

from app.models.downloads.partial_file import shown_bytes
from app.models.library.fit import Fit
from ui.widgets import icon

PLAIN_BELOW = 100_000_000  # parameters: models this small write plain text, and do small chores


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A message that is sent when its title is chosen."""

    title: str
    hint: str
    prompt: str


_CODE = '''Rename the variable items to words:
def longest(items):
    """Return the longest of the items, or None."""
    best = None
    for item in items:
        if best is None or len(item) > len(best):
            best = item
    return best'''

_QUOTE = (
    "Repeat this text exactly:\n"
    "The boat left the harbour at six in the morning. The sea was calm and the sky was clear. "
    "By noon the boat had reached the island, and the crew went ashore to look for water."
)

_PROBLEM = (
    "A farmer has 12 hens and each hen lays 5 eggs a week. He sells 40 eggs. "
    "How many eggs are left?"
)

_SUMMARY = (
    "Summarise in one sentence: The boat left the harbour at six in the morning. The sea was calm and "
    "the sky was clear. By noon the boat had reached the island, and the crew went ashore to look for water."
)
_TIPS = "Give me three tips for sleeping better."
_FUNCTION = "Write a Python function that reverses a string, and an example of its use."

OF_POCKET = (
    Suggestion("Rename a variable", "Most of the answer is a copy, so it comes fast.", _CODE),
    Suggestion("Quote a text", "All of the answer is a copy: many words at a time.", _QUOTE),
    Suggestion("Count eggs", "A word problem, worked out step by step.", _PROBLEM),
)


SUGGESTIONS = (
    Suggestion("Summarise a text", "Three sentences become one.", _SUMMARY),
    Suggestion("Sleep better", "Three tips, as a list.", _TIPS),
    Suggestion("Write a function", "A line of Python, and an example of its use.", _FUNCTION),
)


BEGINNINGS = (
    Suggestion("A story", "Once upon a time \u2026", "Once upon a time, in a village by the sea,"),
    Suggestion("A list", "Things to take on a hike.", "Ten things to take on a hike:\n1."),
    Suggestion("A function", "In Python.", "def is_prime(n):\n"),
)


def suggestions(parameters: int) -> tuple[Suggestion, ...]:
    """Those that a model of this size can do."""
    return OF_POCKET if 0 < parameters < PLAIN_BELOW else SUGGESTIONS  # 0: not known


_CHATS = ("What can I do for you?", "The line under each answer explains its speed.")
_CONTINUES = ("Write a beginning", "This model goes on from there; it does not answer questions.")


def welcome(
    better: Fit | None,
    parameters: int,
    *,
    chats: bool = True,
    here: bool = True,
    away: bool = False,
) -> str:
    """The empty page of a model of this size, with a better one for this machine. HTML.

    A model that does not chat continues texts. ``here``: the page is not seen from another machine.
    ``away``: another engine answers.
    """
    heading, about = _CHATS if chats else _CONTINUES
    cards = "".join(
        f'<button type="button" class="card" data-do="suggest" data-text="{escape(one.prompt)}">'
        f"<b>{escape(one.title)}</b><span>{escape(one.hint)}</span></button>"
        for one in (suggestions(parameters) if chats else BEGINNINGS)
    )
    place = "this computer" if here else "the server that you logged in to"
    stays = (
        f"What you write is sent to another engine, and kept on {place}."
        if away
        else f"Everything you write stays on {place}."
    )
    return (
        f"<div class='greeting'><h2>{heading}</h2><p>{stays} "
        f"{about}</p><div class='cards'>{cards}</div></div><div class='offers'>{_offer(better)}</div>"
    )


def _drafting(better: Fit) -> str:
    return ", its draft model included" if better.draft else ""


def _offer(better: Fit | None) -> str:
    if better is None:
        return ""
    name = escape(better.entry.name)
    return (
        f'<section class="offer" data-name="{name}" aria-label="A better model">'
        f"<p><b>Best for this computer: {name}</b>"
        f"<span>{shown_bytes(better.size)} to download{_drafting(better)}</span></p>"
        '<button type="button" class="soft" data-do="models">See models</button>'
        '<button type="button" class="act" data-do="dismiss" aria-label="Not now" title="Not now">'
        f"{icon('cross')}</button></section>"
    )
