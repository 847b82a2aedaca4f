"""The bottom of the Models tab: the last message, and every download with its progress."""

import json
from collections.abc import Iterable, Sequence
from html import escape

from app.models.downloads.job import Snapshot, State
from app.models.downloads.partial_file import shown_bytes
from ui.models.installed import token_form
from ui.models.model_manager import ModelManager
from ui.widgets import button, icon, sentence

_STATES = {
    State.QUEUED: "Waiting in the queue",
    State.WAITING: "Another Slipstream is downloading it",
    State.CHECKING: "Checking existing files",
    State.DOWNLOADING: "Starting",
    State.PAUSED: "Paused",
    State.DONE: "Ready",
    State.FAILED: "Stopped",
}
_STOPPED = frozenset({State.PAUSED, State.FAILED})
_DISMISS = (
    '<button type="button" class="act" data-command="dismiss" data-name="" aria-label="Dismiss">'
    f"{icon('cross')}</button>"
)


def visible(downloads: Iterable[Snapshot]) -> list[Snapshot]:
    """All but the cancelled ones."""
    return [seen for seen in downloads if seen.state is not State.CANCELLED]


def tray(downloads: Sequence[Snapshot], message: str) -> str:
    """Changes only with the states; ``state`` has the figures that change all the time. HTML."""
    line = f'<div class="latest">{message}{_DISMISS}</div>' if message else ""
    rows = "".join(map(_row, visible(downloads)))
    queue = f'<ul aria-label="Downloads">{rows}</ul>' if rows else ""
    return (
        f'<section class="tray" aria-label="Progress">{line}{queue}</section>'
        if line or queue
        else ""
    )


def state(manager: ModelManager, downloads: Sequence[Snapshot], done: int) -> str:
    """What models.js needs: figures of the downloads, and the loaded model. HTML."""
    here = manager.shelf.installed if manager.shelf else ()
    now = {
        "done": done,
        "model": manager.assistant.entry.name,
        "here": [one.entry.name for one in here],
        "downloads": {
            seen.name: [round(seen.share, 4), _figures(seen)] for seen in visible(downloads)
        },
    }
    return f'<div data-models="{escape(json.dumps(now))}"></div>'


def _row(seen: Snapshot) -> str:
    """models.js fills the figures in: drawing the row again would lose clicks and focus."""
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
    """How much has arrived, the speed, and the time left."""
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
