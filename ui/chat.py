"""The chat: a list of messages, one input, a few settings."""

from typing import Any

import gradio as gr

from app.assistant import Assistant
from ui.suggestions import SUGGESTIONS
from ui.talk import Panel, Talk
from ui.transcript import MODE_NAMES

_WELCOME = """
<h2>What can I do for you?</h2>
<p>Everything you write stays on this computer.</p>
"""


def add(assistant: Assistant, fresh: gr.Button) -> None:
    """Lay the chat out in the current Blocks; ``fresh`` is the button for a new one."""
    panel = lay_out(assistant, fresh)
    _connect(panel, Talk(assistant, panel))


def lay_out(assistant: Assistant, fresh: gr.Button) -> Panel:
    """The components, top to bottom."""
    rows = _rows()
    notice = gr.HTML(elem_id="notice")
    box = gr.Textbox(
        elem_id="box",
        show_label=False,
        label="Your message",
        placeholder="Ask, or paste a text",
        lines=1,
        max_lines=10,
        submit_btn="Send",
        autofocus=True,
    )
    with gr.Column(elem_id="foot"):
        again = gr.Button("Regenerate", elem_id="again", size="sm", interactive=False)
        with gr.Accordion("Settings", open=False, elem_id="settings"):
            mode, temperature = _settings(assistant.facts.drafters)
    return Panel(
        rows=rows,
        notice=notice,
        box=box,
        again=again,
        fresh=fresh,
        mode=mode,
        temperature=temperature,
        conversation=gr.State(None),
    )


def _rows() -> gr.Chatbot:
    return gr.Chatbot(
        elem_id="rows",
        label="Conversation",
        show_label=False,
        container=False,
        layout="panel",
        height="auto",
        buttons=[],  # a caption has one that copies the answer as it was written
        sanitize_html=True,
        allow_tags=False,
        group_consecutive_messages=False,
        feedback_options=None,
        latex_delimiters=[],
        placeholder=_WELCOME,
        examples=[{"text": each.prompt, "display_text": each.label} for each in SUGGESTIONS],
    )


def _settings(drafters: tuple[str, ...]) -> tuple[gr.Radio, gr.Slider]:
    offered = [(MODE_NAMES.get(name, name), name) for name in ("auto", *drafters)]
    mode = gr.Radio(
        offered,
        value="auto",
        label="Drafting",
        info="How answers are sped up. The words stay the model's own whichever you choose.",
        elem_id="mode",
    )
    temperature = gr.Slider(
        0,
        2,
        value=0,
        step=0.1,
        label="Temperature",
        info="0 gives the likeliest answer, the same every time.",
        elem_id="temperature",
    )
    return mode, temperature


def _connect(panel: Panel, talk: Talk) -> None:
    """Values travel as the browser holds them: Gradio would build every caption a component."""
    quiet: dict[str, Any] = {
        "show_progress": "hidden",
        "api_visibility": "private",
        "preprocess": False,
    }
    shown = [panel.rows, panel.notice, panel.box, panel.again, panel.conversation]
    choices = [panel.mode, panel.temperature]
    asked = [panel.rows, panel.conversation, *choices]
    panel.box.submit(talk.send, [panel.box, *asked], shown, **quiet)
    panel.rows.example_select(talk.suggest, [panel.rows, *choices], shown, **quiet)
    panel.again.click(talk.regenerate, asked, shown, **quiet)
    panel.box.stop(talk.stop, [panel.conversation], None, queue=False, **quiet)
    panel.fresh.click(talk.fresh, [panel.conversation], shown, queue=False, **quiet)
