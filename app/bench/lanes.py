"""Lanes: what runs side by side in a benchmark, and how a person writes one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from app.errors import LaneError
from app.request import check_drafter
from engine.draft_length import LENGTHS
from engine.errors import InvalidRequest
from engine.request import AUTO, PLAIN, GenerationRequest, ModelFacts, nearest
from engine.runtime.registry import DEFAULT, options_of

PLAIN_LANE = "plain"
KEYS = ("length", "depth", "nodes")  # of every lane; the others are its drafter's
SYNTAX = "write [NAME=]DRAFTER[:KEY=VALUE,KEY=VALUE]"


@dataclass(frozen=True, slots=True)
class Lane:
    """One way to decode: a drafter with its length policy and options."""

    name: str
    drafter: str
    length: str = DEFAULT
    depth: int | None = None
    nodes: int | None = None
    options: tuple[tuple[str, float], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether this is plain decoding."""
        return self.drafter == PLAIN

    def asks(self, request: GenerationRequest) -> GenerationRequest:
        """The same request, decoded this way."""
        return replace(
            request,
            drafter=self.drafter,
            length=self.length,
            draft_depth=self.depth,
            draft_nodes=self.nodes,
            options=self.options,
        )


def parse_lane(text: str) -> Lane:
    """A lane as typed after ``--lane``; raises LaneError or UnknownDrafter."""
    head, colon, tail = text.partition(":")
    name, named, drafter = head.rpartition("=")
    name, drafter = name.strip(), drafter.strip()
    if not drafter or (named and not name) or (colon and not tail.strip()):
        raise LaneError(f"the lane {text!r} is not complete; {SYNTAX}")
    check_drafter(drafter)
    settings: dict[str, str] = {}
    for setting in tail.split(",") if colon else ():
        key, _, value = (part.strip() for part in setting.partition("="))
        if not key or not value:
            raise LaneError(f"the lane {text!r} has {setting.strip()!r} for KEY=VALUE; {SYNTAX}")
        if key in settings:
            raise LaneError(f"the lane {text!r} sets {key} twice")
        settings[key] = value
    lane = Lane(
        name=name or text.strip(),
        drafter=drafter,
        length=_length(settings.pop("length", DEFAULT)),
        depth=_whole("depth", settings.pop("depth", None)),
        nodes=_whole("nodes", settings.pop("nodes", None)),
    )
    return replace(lane, options=_options(lane, settings))


def with_baseline(lanes: Sequence[Lane]) -> tuple[Lane, ...]:
    """Plain decoding first, then the others in their order; raises LaneError.

    The first lane that decodes plainly is the baseline; further ones show the instrument's noise.
    """
    given = next((lane for lane in lanes if lane.plain), None)
    baseline = given or Lane(PLAIN_LANE, PLAIN)
    ordered = (baseline, *(lane for lane in lanes if lane is not given))
    names = [lane.name for lane in ordered]
    for name in names:
        if names.count(name) > 1:
            raise LaneError(f"two lanes are named {name!r}; give one another name with NAME=")
    return ordered


def check_drafters(names: Sequence[str], facts: ModelFacts) -> None:
    """Refuse drafters that this model cannot run; raises InvalidRequest."""
    refused = dict(facts.refused)
    for name in names:
        if name not in (AUTO, *facts.drafters):
            why = refused.get(name, "this engine does not have it")
            raise InvalidRequest(f"{name} cannot run with {facts.name}: {why}")


def _options(lane: Lane, settings: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
    """Those of the drafter and its length policy; any other key is an error."""
    known = {option.name: option for option in options_of(lane.drafter, lane.length)}
    found = []
    for key, value in settings.items():
        if key not in known:
            meant = nearest(key, (*KEYS, *known))
            raise LaneError(f"a lane with the drafter {lane.drafter} has no key {key!r}{meant}")
        number = _number(key, value)
        try:
            known[key].check(number)
        except InvalidRequest as error:
            raise LaneError(f"in a lane with the drafter {lane.drafter}: {error}") from error
        found.append((key, number))
    return tuple(found)


def _length(value: str) -> str:
    known = (DEFAULT, *LENGTHS)
    if value not in known:
        raise LaneError(f"there is no length policy {value!r}{nearest(value, known)}")
    return value


def _whole(key: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not value.isdecimal() or len(value) > 9:
        raise LaneError(f"{key}={value} in a lane is not a whole number from 0")
    return int(value)


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise LaneError(f"{key}={value} in a lane is not a number; only length takes a name")
    return number
