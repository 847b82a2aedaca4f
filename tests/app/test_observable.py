"""Every watcher sees a change, and a change is never missed."""

import asyncio

import pytest

from app.observable import Observable
from tests.app.asynchronous import asynchronous


@asynchronous
async def test_every_watcher_is_woken_and_none_waits_for_a_past_change() -> None:
    state = Observable()
    watchers = [asyncio.create_task(state.changed(0)) for _ in range(3)]
    await asyncio.sleep(0)
    state.change()
    await asyncio.wait_for(asyncio.gather(*watchers), 1)
    await asyncio.wait_for(state.changed(0), 1)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(state.changed(state.version), 0.01)
