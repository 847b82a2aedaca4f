"""Copies of the history, for a browser to download."""

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse

from app.history.store import History
from app.server.door import owner
from app.server.errors import ApiError, Failure

ROUTE = "/backups"


def router(history: History) -> APIRouter:
    """One route: a copy that ``Upkeep.back_up`` made, by its name and by nothing else."""
    routes = APIRouter()

    @routes.get(f"{ROUTE}/{{name}}")
    async def download(name: str, request: Request) -> FileResponse:
        if owner(request.scope) is not None:
            told = "a backup holds what every key made; take it on the machine of the server"
            raise ApiError(Failure(403, told, code="not_of_this_key"))
        found = history.upkeep.backup(name)
        if found is None:
            raise ApiError(
                Failure(404, f"there is no backup {name!r}; make one on the page", "name")
            )
        return FileResponse(found, filename=name, media_type="application/vnd.sqlite3")

    return routes
