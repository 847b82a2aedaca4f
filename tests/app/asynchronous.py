"""Lets a test be a coroutine, with an end in sight."""

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")
PATIENCE_SECONDS = 60


def asynchronous(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """The test as a plain function that fails instead of waiting for ever."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run
