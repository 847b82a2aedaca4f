"""A queue of downloads for this person's settings; opening it asks the network for nothing."""

from app.models.downloads.job import JobContext
from app.models.downloads.queue import Downloads
from app.models.downloads.space import Space
from app.models.hub.client import Hub
from app.models.hub.token import read_token
from app.settings import Settings


def open_hub(settings: Settings) -> Hub:
    """The hub that the settings name, with the person's token."""
    return Hub(settings.hub, read_token(settings))


def open_downloads(settings: Settings, hub: Hub) -> Downloads:
    """The queue, with what earlier processes left unfinished as paused; closing it closes ``hub``."""
    folder = settings.models_folder
    return Downloads(JobContext(hub, folder, Space(folder), settings.others.hub))
