"""Every route, method and stream that an application has, asked for without a valid key."""

from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Any

import httpx
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

HOST = "127.0.0.2"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")
UNKNOWN = ("/", "/nothing", "/v1", "/v1/nothing", "/docs", "/redoc", "/favicon.ico", "/v1//models")


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def refusals(withdrawn: str, valid: str) -> list[dict[str, str]]:
    """Headers that let nobody in; the first three are nothing, a wrong key, and a withdrawn one."""
    return [
        {},
        bearer("wrong"),
        {"x-api-key": withdrawn},
        {"x-api-key": "wrong"},
        bearer(withdrawn),
        {"authorization": valid},
        {"authorization": "Basic eDp5"},
        {"cookie": f"slipstream-None={valid}"},
        {**bearer(withdrawn), "cookie": "access-token=x"},
    ]


def paths(app: FastAPI) -> list[str]:
    """Out of its route table, with those of mounted applications, and some that it does not have."""
    known = {_filled(path) for path in _paths(app.routes)}
    bare = {path.removeprefix("/v1") for path in known if path.startswith("/v1/")}
    return sorted(known | bare | {*UNKNOWN})


def _paths(routes: Sequence[Any], prefix: str = "") -> Iterator[str]:
    for found in iter_route_contexts(routes):
        path = prefix + (found.path or "")
        yield path
        mounted = getattr(found.original_route, "app", None)
        yield from _paths(getattr(mounted, "routes", ()), path)


def _filled(path: str) -> str:
    """Something in the place of its parameters."""
    filled = "/".join(
        part.partition("{")[0] + "x" if "{" in part else part for part in path.split("/")
    )
    return filled or "/"


def _is_the_form(method: str, path: str, response: httpx.Response) -> bool:
    """The one answer that is no error of the API: the login page, after a key that was wrong."""
    return (method, path) == ("POST", "/login") and 'name="key"' in response.text


async def sweep(app: FastAPI, withdrawn: str, valid: str) -> list[str]:
    """Ask for everything; returns the paths. All is refused with 401 and the API's error, or it fails."""
    found, wrong = paths(app), refusals(withdrawn, valid)
    every = chain(product(found, METHODS, wrong[:3]), product(found, ("GET", "POST"), wrong[3:]))
    transport = httpx.ASGITransport(app)  # without its start: nothing runs before the door
    async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        for path, method, headers in every:
            response = await client.request(method, path, headers=headers)
            where = (method, path, headers, response.text)
            assert response.status_code == 401, where
            if method != "HEAD" and not _is_the_form(method, path, response):
                assert response.json()["error"]["code"] == "invalid_api_key", where
            assert valid not in response.text
            assert withdrawn not in response.text
            assert "set-cookie" not in response.headers
    return found
