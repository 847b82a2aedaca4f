"""Thinking: how much of it is asked of a model, in the variables that its chat template was written for."""

from collections.abc import Mapping
from typing import Any, Literal

Thinking = Literal["", "off", "on", "low", "medium", "high"]
AS_TAUGHT: Thinking = ""  # what the template does by itself
THINKING: tuple[Thinking, ...] = ("off", "on", "low", "medium", "high")
_EFFORTS = ("low", "medium", "high")


def variables_for(thinking: Thinking) -> Mapping[str, Any]:
    """Under all names that templates have for it: they pass over those that they do not know."""
    if thinking == AS_TAUGHT:
        return {}
    thinks = thinking != "off"
    told: dict[str, Any] = {"enable_thinking": thinks, "thinking": thinks}
    if thinking in _EFFORTS:
        told["reasoning_effort"] = thinking
    return told if thinks else {**told, "thinking_budget": 0}
