"""The list of models is that of now, also after the page has switched the model."""

import shutil
from pathlib import Path

import httpx
from httpx import ASGITransport

from app.chat.assistant import Assistant
from app.server.app import create_app
from app.settings import Settings
from tests.app.assisted import POCKET
from tests.app.asynchronous import asynchronous


@asynchronous
async def test_the_list_follows_a_switch_of_the_model(tmp_path: Path) -> None:
    """It kept the first model, whose name no other route took any more."""
    settings = Settings(home=tmp_path)
    other = settings.models_folder / "other"
    shutil.copytree(POCKET, other)
    assistant = await Assistant.open(settings, "pocket")
    transport = ASGITransport(create_app(assistant))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            before = (await client.get("/v1/models")).json()["data"]
            await assistant.switch(str(other))
            name = assistant.entry.name
            [after] = (await client.get("/v1/models")).json()["data"]
            found = await client.get(f"/v1/models/{name}")
            gone = await client.get("/v1/models/pocket")
            question = [{"role": "user", "content": "Hi"}]
            asked = {"model": after["id"], "messages": question, "max_tokens": 1}
            answer = await client.post("/v1/chat/completions", json=asked)
    finally:
        await assistant.close()
    assert [model["id"] for model in before] == ["pocket"]
    assert name != "pocket"
    assert (after["id"], after["context_length"]) == (name, assistant.facts.context)
    assert (found.status_code, found.json()) == (200, after)
    assert gone.status_code == 404
    assert (answer.status_code, answer.json()["model"]) == (200, name)
