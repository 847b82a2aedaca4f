"""The tabs of the page: one module each, one line here."""

from collections.abc import Callable
from dataclasses import dataclass

from app.assistant import Assistant
from ui import chat, hardware, history


@dataclass(frozen=True, slots=True)
class Tab:
    """``build`` lays the tab out in the Blocks that are open, and connects it."""

    name: str
    build: Callable[[Assistant], None]


TABS: tuple[Tab, ...] = (
    Tab("Chat", chat.build),
    Tab("History", history.build),
    Tab("Hardware", hardware.build),
)
