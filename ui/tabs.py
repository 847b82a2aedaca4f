"""The tabs of the page: one module each, one line here."""

from collections.abc import Callable
from dataclasses import dataclass

from app.chat.assistant import Assistant
from ui.chat import tab as chat
from ui.compare import tab as compare
from ui.hardware import tab as hardware
from ui.history import tab as history
from ui.models import tab as models


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
