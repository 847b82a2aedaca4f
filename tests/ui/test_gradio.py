"""What is changed of Gradio still fits the installed version, and costs nothing while nothing happens."""

import hashlib
import inspect
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gradio.queueing import Queue

from tests.ui.application import ROOT, application
from ui.gradio_queue import WaitingQueue

CODE = """
import sys
from ui.gradio_import import without_stubs
before = list(sys.meta_path)
with without_stubs():
    import ui.page
import gradio, gradio.blocks_events, gradio.component_meta
assert sys.meta_path == before
assert gradio.component_meta.create_or_modify_pyi.__module__ == "ui.gradio_import"
assert gradio.Textbox.EVENTS and gradio.Chatbot.EVENTS
with without_stubs():  # a second import changes nothing
    import gradio
"""
IDLE_SECONDS = 3.0
MOST_IDLE = 0.005  # of a core: three wake-ups a second take 0.001, Gradio's own queue 0.04 to 0.09


def test_gradio_is_whole_without_its_stub_writer():
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("start", "d7da05cdd477be81"),
        ("start_processing", "d65be5a5cbed97d7"),
        ("start_progress_updates", "7cbbec1cf932324c"),
    ],
)
def test_gradios_queue_is_the_one_that_was_replaced(name, digest):
    """If this fails, compare WaitingQueue with Gradio's new Queue, then update the digest."""
    source = inspect.getsource(getattr(Queue, name))
    assert hashlib.sha256(source.encode()).hexdigest()[:16] == digest
    assert issubclass(WaitingQueue, Queue)


def seconds_run(pid):
    """By the scheduler's own clock: a timer's tick counts 10 ms for each wake-up that it meets."""
    files = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def test_an_idle_server_takes_no_processor_time(tmp_path):
    with application(tmp_path) as app:
        time.sleep(1)  # what the start left to do
        before = seconds_run(app.process.pid)
        time.sleep(IDLE_SECONDS)
        used = seconds_run(app.process.pid) - before
    assert used / IDLE_SECONDS < MOST_IDLE
