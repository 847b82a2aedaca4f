"""The tabs of the page: one module each, one line here."""

from collections.abc import Callable
from dataclasses import dataclass

from app.assistant import Assistant
from ui import chat, compare, hardware, history, models


@dataclass(frozen=True, slots=True)
class Tab:
    """``build`` lays the tab out in the Blocks that are open, and connects it."""

    name: str
    build: Callable[[Assistant], None]


TABS: tuple[Tab, ...] = (
    Tab("Chat", chat.build),
    Tab("Models", models.build),
    Tab("Compare", compare.build),
    Tab("History", history.build),
    Tab("Hardware", hardware.build),
)
