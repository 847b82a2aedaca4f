"""The classes that the registries of drafters and draft lengths name, imported when they are asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from engine.draft_length import LENGTHS
from engine.drafters import DRAFTERS
from engine.errors import InvalidRequest
from engine.request import AUTO, Option, nearest

if TYPE_CHECKING:  # the classes import torch, and a command line is read without it
    from engine.interfaces.drafter import Drafter, DraftLength

DEFAULT = "default"  # the draft length that suits the drafter best


def options_of(drafter: str, length: str = DEFAULT) -> tuple[Option, ...]:
    """All options that this drafter takes with this draft length; raises InvalidRequest.

    ``auto`` passes its options on, so it takes those of every drafter.
    """
    names = [name for name in DRAFTERS if name != AUTO] if drafter == AUTO else [drafter]
    found = {option.name: option for name in names for option in drafter_class(name).options}
    own = length_class(length, drafter).options if drafter != AUTO or length != DEFAULT else ()
    return tuple((found | {option.name: option for option in own}).values())


def drafter_class(name: str) -> "type[Drafter]":
    """The class of a drafter; raises InvalidRequest for an unknown name."""
    if name not in DRAFTERS:
        raise InvalidRequest(f"there is no drafter {name!r}{nearest(name, tuple(DRAFTERS))}")
    found: type[Drafter] = named(DRAFTERS, name)
    return found


def length_class(name: str, drafter: str) -> "type[DraftLength]":
    """The class of a draft length; ``default`` is the drafter's own. Raises InvalidRequest."""
    if name == DEFAULT:
        name = drafter_class(drafter).default_length
    if name not in LENGTHS:
        known = (DEFAULT, *LENGTHS)
        raise InvalidRequest(f"there is no draft length {name!r}{nearest(name, known)}")
    found: type[DraftLength] = named(LENGTHS, name)
    return found


def named(registry: dict[str, str], name: str) -> Any:
    """The object that a registry line names; its module is imported now and not before."""
    module, attribute = registry[name].split(":")
    return getattr(import_module(module), attribute)
