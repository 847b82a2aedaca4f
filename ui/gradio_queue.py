"""Gradio's queue of events, which here waits for an event instead of looking for one.

Gradio looks for events 1,000 times a second and for progress bars 100 times: 4 % of a core while nothing
happens. Delete when Gradio's queue waits; tests/ui/test_gradio.py fails when it changes.
"""

import asyncio
import time
from typing import Any

import gradio as gr
from fastapi import Request
from gradio.data_classes import PredictBodyInternal
from gradio.queueing import Queue
from gradio.utils import run_coro_in_background, set_task_name
from typing_extensions import override

MAX_WAITING = 64  # events; the page of a further one reports that the server is busy
MAX_RUNNING = (
    400  # one for each tab of each open page: a tab's updates are one event without an end
)


class WaitingQueue(Queue):
    """Starts each event as soon as it is pushed."""

    def __init__(self, page: gr.Blocks) -> None:
        super().__init__(
            live_updates=True,  # or a third loop would look for events
            concurrency_count=MAX_RUNNING,
            update_intervals=1,
            max_size=MAX_WAITING,
            blocks=page,
            default_concurrency_limit=None,
        )
        self._changed = asyncio.Event()

    @override
    async def push(self, body: PredictBodyInternal, request: Request, username: str | None) -> Any:
        pushed = await super().push(body, request, username)
        self._changed.set()
        return pushed

    @override
    async def start_processing(self) -> None:
        try:
            while not self.stopped:
                while None in self.active_jobs and await self._start_next():
                    pass
                await self._changed.wait()
                self._changed.clear()
        finally:
            self.stopped = True
            self._cancel_asyncio_tasks()  # type: ignore[no-untyped-call]

    @override
    async def start_progress_updates(self) -> None:
        """This page has no progress bars."""

    async def _start_next(self) -> bool:
        """Start the next event, with the same bookkeeping as Gradio; False if none can start."""
        async with self.delete_lock:
            found = self.get_events()
        if found is None:
            return False
        events, batch, concurrency_id = found
        first, started = events[0], time.time()
        self.active_jobs[self.active_jobs.index(None)] = events
        queue = self.event_queue_per_concurrency_id[concurrency_id]
        queue.current_concurrency += 1
        queue.start_times_per_fn[first.fn].add(started)
        task = run_coro_in_background(self.process_events, events, batch, started, first.fn)
        set_task_name(task, first.session_hash, first.fn._id, first._id, batch)  # noqa: SLF001
        self._asyncio_tasks.add(task)
        task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asyncio_tasks.discard(task)
        self._changed.set()
