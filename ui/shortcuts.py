"""The keyboard: one table, for the help sheet and for the script that listens."""

from html import escape

SHORTCUTS = (
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
    ("?", "This sheet", "help"),
)


def help_sheet() -> str:
    """All shortcuts, closed until it is asked for. HTML."""
    rows = "".join(
        f'<div data-keys="{escape(keys)}" data-act="{act}"><dt>{_keys(keys)}</dt>'
        f"<dd>{escape(what)}</dd></div>"
        for keys, what, act in SHORTCUTS
    )
    return (
        '<dialog id="help" aria-labelledby="help-title"><h2 id="help-title">Keyboard</h2>'
        f'<dl>{rows}</dl><form method="dialog"><button class="primary">Close</button></form></dialog>'
    )


def _keys(keys: str) -> str:
    names = {"arrowup": "↑", "escape": "Esc"}
    shown = (names.get(key, key.capitalize()) for key in keys.split("+"))
    return " ".join(f"<kbd>{escape(key)}</kbd>" for key in shown)
