"""What stands at the bottom of the models: what was done, and every download with its progress."""

import json
from collections.abc import Iterable, Sequence
from html import escape

from app.model_manager import ModelManager
from app.models.downloads.job import Snapshot, State
from app.models.downloads.partial_file import shown_bytes
from ui.icons import icon
from ui.models.installed import token_form
from ui.widgets import button, sentence

_STATES = {
    State.QUEUED: "Waits for its turn",
    State.WAITING: "Another Slipstream downloads it",
    State.CHECKING: "Checking what is here",
    State.DOWNLOADING: "Begins",
    State.PAUSED: "Paused",
    State.DONE: "Ready",
    State.FAILED: "Stopped",
}
_STOPPED = frozenset({State.PAUSED, State.FAILED})
_HUSH = (
    '<button type="button" class="act" data-ask="hush" data-name="" aria-label="Dismiss">'
    f"{icon('cross')}</button>"
)


def shown(downloads: Iterable[Snapshot]) -> list[Snapshot]:
    """Those that a person has not taken away."""
    return [seen for seen in downloads if seen.state is not State.CANCELLED]


def tray(downloads: Sequence[Snapshot], says: str) -> str:
    """Changes with states alone; ``state`` has the figures that run. HTML."""
    told = f'<div class="says">{says}{_HUSH}</div>' if says else ""
    rows = "".join(map(_row, shown(downloads)))
    queue = f'<ul aria-label="Downloads">{rows}</ul>' if rows else ""
    return (
        f'<section class="tray" aria-label="Progress">{told}{queue}</section>'
        if told or queue
        else ""
    )


def state(library: ModelManager, downloads: Sequence[Snapshot], done: int) -> str:
    """What the page's script needs: figures of the downloads, the model that answers. HTML."""
    here = library.shelf.installed if library.shelf else ()
    now = {
        "done": done,
        "model": library.assistant.entry.name,
        "here": [one.entry.name for one in here],
        "downloads": {
            seen.name: [round(seen.share, 4), _figures(seen)] for seen in shown(downloads)
        },
    }
    return f'<div data-models="{escape(json.dumps(now))}"></div>'


def _row(seen: Snapshot) -> str:
    """The script puts the figures in: a row that was drawn anew would lose clicks and focus."""
    name = escape(seen.name)
    failed = (
        f'<p class="note alarm" role="alert">{escape(sentence(seen.error))}</p>'
        if seen.error
        else ""
    )
    token = token_form("tray") if seen.gated else ""
    track = (
        f'<div class="track" role="progressbar" aria-label="{name}" aria-valuemin="0" '
        'aria-valuemax="100" aria-valuenow="0"><i></i></div>'
    )
    return (
        f'<li data-download="{name}" data-state="{seen.state}"><div class="line"><b>{name}</b>'
        f'<span class="figures"></span><span class="acts">{_buttons(seen)}</span></div>'
        f"{track}{failed}{token}</li>"
    )


def _buttons(seen: Snapshot) -> str:
    if seen.state is State.DONE:
        return button("Use it", "use", seen.name, "soft")
    first = (
        button("Resume", "resume", seen.name)
        if seen.state in _STOPPED
        else button("Pause", "pause", seen.name)
    )
    return first + button("Cancel", "cancel", seen.name)


def _figures(seen: Snapshot) -> str:
    """How much is here, how fast the rest comes, and how long that takes."""
    if seen.state is State.DONE:
        return f"Ready, {shown_bytes(seen.total)}"
    parts = [f"{shown_bytes(seen.done)} of {shown_bytes(seen.total)}"]
    if seen.state is not State.DOWNLOADING:
        parts.insert(0, _STATES[seen.state])
    elif seen.speed:
        parts.append(f"{shown_bytes(seen.speed)}/s")
        if seen.seconds_left is not None:
            parts.append(f"{_duration(seen.seconds_left)} left")
    return " \u00b7 ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(1, round(seconds))} s"
    if seconds < 3600:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
