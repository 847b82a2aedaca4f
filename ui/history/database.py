"""The database on the history tab: what it holds, a copy of it, whether it is sound."""

from collections.abc import Sequence
from html import escape
from urllib.parse import quote

from app.history.store import History
from app.history.upkeep import Backup
from app.server.backups import ROUTE
from ui.widgets import button, gib, notice


def section(history: History, says: str) -> str:
    """Size, buttons, and what the last of them did. HTML."""
    size = history.upkeep.size()
    holds = (
        _counted(size.conversations, "conversation"),
        _counted(size.messages, "message"),
        _counted(size.replies, "measured answer"),
    )
    return (
        '<section aria-labelledby="database"><h2 id="database">Database</h2>'
        f"<p>{gib(size.bytes)}: {', '.join(holds)}.</p>"
        f'<p class="note path">{escape(str(history.upkeep.path))}</p>'
        f'<div class="row">{button("Back up", "backup", kind="soft")}'
        f"{button('Check integrity', 'check', kind='soft')}</div>{says}</section>"
    )


def backed_up(made: Backup) -> str:
    """Where the copy lies, and a link that downloads it. HTML."""
    link = (
        f' <a href="{ROUTE}/{quote(made.path.name)}" download="{escape(made.path.name)}">'
        f"Download {escape(made.path.name)}</a>"
    )
    return notice(f"{gib(made.bytes)} were copied to {made.path}, and the copy is sound", more=link)


def checked(faults: Sequence[str]) -> str:
    """The result in words. HTML."""
    if not faults:
        return notice("The whole database was read: it is sound")
    more = "".join(f"<br>{escape(fault)}" for fault in faults)
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return notice(
        f"the database has {count}; back up, then start anew with the copy kept aside",
        alarm=True,
        more=more,
    )


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}"
