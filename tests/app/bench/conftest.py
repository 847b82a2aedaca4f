"""Engines over the bundled model: one slot, two slots, and as many as a test asks for."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.build import assemble, build, load
from engine.engine import Engine
from tests.app.bench.measuring import SPEC
from tests.engine.tiny import quick_to_load  # noqa: F401 - an autouse fixture


@pytest.fixture(scope="module")
def engine() -> Engine:
    return build(replace(SPEC, slots=1))


@pytest.fixture(scope="module")
def pair_engine() -> Engine:
    return build(replace(SPEC, slots=2))


@pytest.fixture(scope="module")
def separate():
    """Makes engines over the same weights, each with caches of its own."""
    parts, no_draft = load(SPEC)

    def made(slots: int = 1, clock: Callable[[], float] = time.perf_counter) -> Engine:
        twins = {"target": parts.target.twin(), "draft_model": parts.draft_model.twin()}
        own = replace(parts, **twins, clock=clock)
        return assemble(replace(SPEC, slots=slots), own, no_draft)

    return made
