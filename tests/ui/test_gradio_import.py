"""A start without the files that Gradio would write about itself."""

import subprocess
import sys

from tests.ui.application import ROOT

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
with without_stubs():  # of what is imported already nothing changes
    import gradio
"""


def test_gradio_is_whole_but_for_its_writer():
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
