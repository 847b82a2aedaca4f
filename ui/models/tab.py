"""The Models tab: installed models, the best one for this machine, and all that can be downloaded."""

import gradio as gr
from typing_extensions import override

from app.chat.assistant import Assistant
from app.model_manager import ModelManager
from ui.models import available
from ui.models.page_state import ModelsPage
from ui.tab import Regions, Tab


class ModelsTab(Tab):
    """One ModelManager for all pages; its downloads continue when a page is closed."""

    name = "Models"
    styles = ("models.css",)
    scripts = ("models.js",)

    def __init__(self, assistant: Assistant) -> None:
        super().__init__(assistant)
        self._manager = ModelManager(assistant)
        assistant.before_close(self._manager.close)

    @override
    def view(self) -> ModelsPage:
        return ModelsPage(self._manager)

    @override
    def layout(self) -> Regions:
        regions: dict[str, gr.HTML] = {}
        with gr.Column(elem_id="models", elem_classes="screen"):
            with gr.Column(elem_classes="sheet"):
                for name in ("best", "here", "ways"):
                    regions[name] = gr.HTML("", elem_id=f"models-{name}")
                gr.HTML(available.FIND, elem_id="models-find")
                for name in ("list", "hub"):
                    regions[name] = gr.HTML("", elem_id=f"models-{name}")
            for name in ("tray", "state"):
                regions[name] = gr.HTML("", elem_id=f"models-{name}")
        return regions
