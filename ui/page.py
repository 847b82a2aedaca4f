"""The page: its tabs, its looks, and Gradio's own settings."""

from base64 import b64encode
from functools import cache
from html import escape
from pathlib import Path
from string import Template

import gradio as gr
from fastapi import FastAPI, Request
from fastapi.exception_handlers import http_exception_handler
from fastapi.responses import HTMLResponse, Response
from gradio.route_utils import API_PREFIX
from gradio.routes import mount_gradio_app
from starlette.exceptions import HTTPException

from app.chat.assistant import Assistant
from app.server.door import owner
from app.server.errors import on_status
from ui.chat.tab import ChatTab
from ui.compare.tab import CompareTab
from ui.gradio_queue import WaitingQueue
from ui.hardware.tab import HardwareTab
from ui.help_panel import PANEL, topics
from ui.history.tab import HistoryTab
from ui.models.tab import ModelsTab
from ui.tab import Tab, connect
from ui.widgets import icon

TABS: tuple[type[Tab], ...] = (ChatTab, ModelsTab, CompareTab, HistoryTab, HardwareTab)

_STATIC = Path(__file__).resolve().parent / "static"
_STYLES = ("page.css", "screen.css", "help.css")  # of all tabs
_SCRIPTS = ("page.js", "screen.js", "help.js")
_SHARED_FILES = ("/upload", "/file", "/process_recording")
_SANS = ("ui-sans-serif", "system-ui", "sans-serif")
_MONO = ("ui-monospace", "monospace")

_MASTHEAD = f"""
<div class="mark" aria-hidden="true"><i></i><i></i><i></i></div><h1>Slipstream</h1>
<span class="push"></span>
{{logout}}<button type="button" class="act" data-do="theme" aria-label="Dark or light">{icon("moon")}</button>
<button type="button" class="act" data-do="help" aria-label="Help">{icon("help")}</button>
"""
_LOGOUT = (
    '<button type="button" class="act" data-do="logout" aria-label="Log out" title="Log out">'
    f"{icon('leave')}</button>\n"
)
# All commands arrive through events of one element.
_WIRE = "window.slipstream.connect((tab, command) => trigger('click', { tab, command }));"


def build(assistant: Assistant, *, closed: bool = False) -> gr.Blocks:
    """The whole page; ``closed``: its visitors have logged in, and can log out."""
    tabs = {kind.name.lower(): kind(assistant) for kind in TABS}
    page = gr.Blocks(title="Slipstream", analytics_enabled=False, fill_height=True)
    with page, gr.Column(elem_id="page"):
        gr.HTML(_MASTHEAD.format(logout=_LOGOUT if closed else ""), elem_id="masthead")
        with gr.Tabs(elem_id="tabs"):
            for key, tab in tabs.items():
                with gr.Tab(tab.name, id=key) as place:
                    tab.build(place, page)
        gr.HTML(PANEL, elem_id="sheets")
        connect(gr.HTML("", elem_id="wire", js_on_load=_WIRE), tabs)
    page.queue(api_open=False)
    page._queue = WaitingQueue(page)  # noqa: SLF001 - Gradio has no setting for it
    return page


def login(wrong: str) -> str:
    """The page that asks for an API key, whole in itself; ``wrong`` is why the last one did not do."""
    icon_file = b64encode((_STATIC / "icon.svg").read_bytes()).decode()
    told = f'<p id="wrong" role="alert">{escape(wrong)}</p>' if wrong else ""
    return Template((_STATIC / "login.html").read_text(encoding="utf-8")).substitute(
        icon=icon_file,
        styles=(_STATIC / _STYLES[0]).read_text(encoding="utf-8"),
        marks=' aria-invalid="true" aria-describedby="wrong"' if wrong else "",
        wrong=told,
    )


def mount(app: FastAPI, page: gr.Blocks, *, closed: bool = False) -> None:
    """Serve ``page`` at ``/`` of ``app``; everything that it loads comes from this server.

    ``closed``: a request has an owner, which Gradio takes for the name of a user.
    """
    help_topics = cache(topics)  # read when somebody opens the help
    app.add_api_route(
        "/help",
        lambda: HTMLResponse(help_topics()),
        response_class=HTMLResponse,
        include_in_schema=False,
    )
    mount_gradio_app(
        app,
        page,
        path="/",
        auth_dependency=_user if closed else None,
        app_kwargs={"exception_handlers": {HTTPException: _failed}},
        theme=gr.themes.Base(font=_SANS, font_mono=_MONO, radius_size="lg"),  # without web fonts
        css_paths=[_STATIC / name for name in style_sheets()],
        head=f"<script>{script()}</script>",
        favicon_path=str(_STATIC / "icon.svg"),
        footer_links=[],
        run_history=False,
        show_error=False,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        pwa=False,
        allowed_paths=[],
        max_file_size="1mb",
    )


def _user(request: Request) -> str | None:
    """Who asks Gradio; nobody for its shared files, as this page sends files in its own commands."""
    path = request.url.path.removeprefix(API_PREFIX)
    return None if path.startswith(_SHARED_FILES) else owner(request.scope)


async def _failed(request: Request, error: HTTPException) -> Response:
    """What is no part of the page is answered like any route; the page's scripts read Gradio's form."""
    own = request.url.path.startswith(API_PREFIX)
    return await (http_exception_handler if own else on_status)(request, error)


def style_sheets() -> list[str]:
    """Files in static/, in the order in which they apply."""
    return [*_STYLES, *(name for tab in TABS for name in tab.styles)]


def script() -> str:
    """All scripts of the page as one."""
    names = [*_SCRIPTS, *(name for tab in TABS for name in tab.scripts)]
    return "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in names)
