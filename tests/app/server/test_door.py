"""The door: without a key nothing is answered; with one, what is its own."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from fastapi.testclient import TestClient
from starlette.types import Message

from app.errors import SettingsError
from app.history.store import History
from app.keys.key_file import Keys
from app.server.app import create_app
from app.server.backups import ROUTE
from app.server.door import Access
from tests.app.asynchronous import asynchronous
from tests.app.server.fake_assistant import FOREVER, FakeAssistant, open_fake
from tests.app.server.serving import HTTP, Running, serving
from tests.app.server.sweep import HOST, bearer, sweep

ORIGIN = "https://notes.example.com"
HI = [{"role": "user", "content": "hi"}]
BODY = {"model": "pocket", "messages": HI}


@pytest.fixture(scope="module")
def door(keys: Keys) -> Iterator[Running]:
    """A server on an address to which the rule is applied, as a setting does it."""
    with serving(open_fake, HOST, Access(keys, origins=(ORIGIN,))) as running:
        yield running


@asynchronous
async def test_law_every_route_and_method_is_refused_without_a_valid_key(
    keys: Keys, made: dict[str, str]
) -> None:
    app = create_app(FakeAssistant(), HOST, access=Access(keys))
    asked = await sweep(app, made["gone"], made["anna"])
    api = {"chat/completions", "responses/x", "messages/count_tokens", "metrics", "openapi.json"}
    assert {f"{ROUTE}/x", *(f"{prefix}/{each}" for each in api for prefix in ("/v1", ""))} <= {
        *asked
    }


def test_refusals_have_the_shape_of_each_protocol(door: Running) -> None:
    openais = openai.OpenAI(base_url=f"{door.url}/v1", api_key="no", max_retries=0)
    with openais as client, pytest.raises(openai.AuthenticationError) as refused:
        client.models.list()
    assert refused.value.code == "invalid_api_key"
    response = HTTP.post(f"{door.url}/v1/messages", json=BODY)
    assert response.json()["error"]["type"] == "authentication_error"
    anthropics = anthropic.Anthropic(base_url=door.url, api_key="no", max_retries=0)
    with anthropics as client, pytest.raises(anthropic.AuthenticationError, match="x-api-key"):
        client.models.list()


def test_official_clients_get_in_with_their_own_header(door: Running, made: dict[str, str]) -> None:
    with openai.OpenAI(base_url=f"{door.url}/v1", api_key=made["anna"], max_retries=0) as client:
        stream = client.chat.completions.create(**BODY, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream).strip() == "hi"
    with anthropic.Anthropic(base_url=door.url, api_key=made["ben"], max_retries=0) as client:
        message = client.messages.create(**BODY, max_tokens=8)
        assert message.content[0].text.strip() == "hi"
    for scheme in ("bearer", "BEARER"):
        headers = {"authorization": f"{scheme}  {made['anna']}"}
        assert HTTP.get(f"{door.url}/health", headers=headers).status_code == 200


@asynchronous
async def test_a_websocket_is_refused(keys: Keys) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", HOST.encode())]
    scope = {"type": "websocket", "scheme": "ws", "path": "/", "headers": headers, "server": (HOST, 80), "query_string": b""}  # fmt: skip
    await create_app(FakeAssistant(), HOST, access=Access(keys))(scope, receive, send)
    assert sent[0]["status"] == 401


def test_withdrawing_a_key_ends_its_running_answers(door: Running, keys: Keys) -> None:
    door.assistant.forget()
    url, key = f"{door.url}/v1/chat/completions", keys.add("short")
    body = {**BODY, "messages": [{"role": "user", "content": FOREVER}]}
    threading.Timer(0.5, keys.remove, ["short"]).start()
    started, seen = time.monotonic(), []
    with HTTP.stream("POST", url, json={**body, "stream": True}, headers=bearer(key)) as response:
        assert response.status_code == 200
        seen = [*response.iter_lines()]
    assert len(seen) > 2
    assert "data: [DONE]" not in seen  # it does not look complete
    assert door.assistant.ended.wait(5)
    assert time.monotonic() - started < 10
    assert HTTP.post(url, json=BODY, headers=bearer(key)).status_code == 401


def test_withdrawing_a_key_refuses_an_answer_that_was_not_begun(door: Running, keys: Keys) -> None:
    door.assistant.forget()
    key = keys.add("short")
    body = {**BODY, "messages": [{"role": "user", "content": FOREVER}]}
    threading.Timer(0.5, keys.remove, ["short"]).start()
    url = f"{door.url}/v1/chat/completions"
    assert HTTP.post(url, json=body, headers=bearer(key)).status_code == 401
    assert door.assistant.ended.wait(5)


class TestLimits:
    def test_requests_at_a_time(self, door: Running, keys: Keys, made: dict[str, str]) -> None:
        door.assistant.forget()
        key, url = keys.add("single", at_a_time=1), f"{door.url}/v1/chat/completions"
        body = {**BODY, "messages": [{"role": "user", "content": FOREVER}], "stream": True}
        with HTTP.stream("POST", url, json=body, headers=bearer(key)) as response:
            lines = response.iter_lines()
            next(lines)
            second = HTTP.post(url, json=BODY, headers=bearer(key))
            assert second.status_code == 429
            assert second.headers["retry-after"] == "1"
            assert second.json()["error"]["code"] == "rate_limit_exceeded"
            assert HTTP.post(url, json=BODY, headers=bearer(made["anna"])).status_code == 200
        assert door.assistant.ended.wait(5)
        for _ in range(50):  # the server sees a moment later that the client has left
            if HTTP.post(url, json=BODY, headers=bearer(key)).status_code == 200:
                break
            time.sleep(0.1)
        else:
            pytest.fail("the place was not given back")

    def test_requests_per_minute(self, door: Running, keys: Keys) -> None:
        headers = {"x-api-key": keys.add("slow", per_minute=2)}
        for _ in range(2):
            assert HTTP.get(f"{door.url}/v1/models", headers=headers).status_code == 200
        response = HTTP.post(f"{door.url}/v1/messages", json=BODY, headers=headers)
        assert response.status_code == 429
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.json()["error"]["type"] == "rate_limit_error"


class TestPagesOfOtherSites:
    def preflight(self, door: Running, origin: str, **more: str) -> httpx.Response:
        asked = {
            "origin": origin,
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
            "sec-fetch-site": "cross-site",
            **more,
        }
        return HTTP.options(f"{door.url}/v1/chat/completions", headers=asked)

    def test_a_listed_origin_asks_first_without_a_key_then_with_one(
        self, door: Running, made: dict[str, str]
    ) -> None:
        allowed = self.preflight(door, ORIGIN)
        assert allowed.status_code == 200
        assert allowed.headers["access-control-allow-origin"] == ORIGIN
        assert "authorization" in allowed.headers["access-control-allow-headers"]
        assert "access-control-allow-credentials" not in allowed.headers
        url = f"{door.url}/v1/chat/completions"
        site = {"origin": ORIGIN, "sec-fetch-site": "cross-site"}
        answer = HTTP.post(url, json=BODY, headers=site | bearer(made["anna"]))
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, ORIGIN)
        refused = HTTP.post(url, json=BODY, headers=site)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (
            401,
            ORIGIN,
        )

    @pytest.mark.parametrize(
        "origin",
        [
            "http://notes.example.com",
            "https://notes.example.com:444",
            "https://notes.example.com.evil.com",
            "https://evil.com",
            "https://example.com",
            "null",
            "*",
        ],
    )
    def test_law_any_other_is_refused_even_with_a_key(
        self, door: Running, made: dict[str, str], origin: str
    ) -> None:
        response = self.preflight(door, origin)
        assert response.status_code == 403
        assert "access-control-allow-origin" not in response.headers
        url = f"{door.url}/v1/chat/completions"
        answer = HTTP.post(url, json=BODY, headers={"origin": origin} | bearer(made["anna"]))
        assert answer.status_code == 403

    @pytest.mark.parametrize("origin", ["*", "notes.example.com", "https://a.com/path", "null", ""])
    def test_only_whole_origins_can_be_listed(self, origin: str, tmp_path: Path) -> None:
        from app.settings import load_settings

        file = tmp_path / "config.toml"
        file.write_text(f"cors_origins = {json.dumps([origin])}")
        with pytest.raises(SettingsError, match="origins such as"):
            load_settings({"SLIPSTREAM_CONFIG": str(file)})
        file.write_text("")
        listed = load_settings(
            {"SLIPSTREAM_CONFIG": str(file), "SLIPSTREAM_CORS_ORIGINS": "https://A.com, http://b:1"}
        )
        assert listed.cors_origins == ("https://a.com", "http://b:1")


class TestWhatBelongsToAKey:
    def ask(self, door: Running, key: str, **more: Any) -> httpx.Response:
        body = {"model": "pocket", "input": "my secret", **more}
        return HTTP.post(f"{door.url}/v1/responses", json=body, headers=bearer(key))

    def test_law_kept_responses_are_known_to_their_key_only(
        self, door: Running, made: dict[str, str]
    ) -> None:
        anna, ben = made["anna"], made["ben"]
        kept = self.ask(door, anna).json()
        place, item = f"{door.url}/v1/responses/{kept['id']}", kept["output"][0]["id"]
        reference = [{"type": "item_reference", "id": item}, *HI]
        unknown = self.ask(door, ben, previous_response_id="resp_unknown").json()
        for refused in (
            self.ask(door, ben, previous_response_id=kept["id"]),
            self.ask(door, ben, input=reference),
        ):
            assert refused.status_code == 400
            assert "secret" not in refused.text
        same = self.ask(door, ben, previous_response_id=kept["id"]).json()["error"]["code"]
        assert same == unknown["error"]["code"]  # not even that there is one
        assert HTTP.get(place, headers=bearer(ben)).status_code == 404
        assert HTTP.delete(place, headers=bearer(ben)).status_code == 404
        assert HTTP.get(place, headers=bearer(anna)).json()["id"] == kept["id"]
        assert self.ask(door, anna, previous_response_id=kept["id"]).status_code == 200
        assert self.ask(door, anna, input=reference).status_code == 200

    def test_copies_of_the_whole_history_are_for_nobody_with_a_key(
        self, keys: Keys, made: dict[str, str], tmp_path: Path
    ) -> None:
        history = History.open(tmp_path / "history.db")
        name = history.upkeep.back_up().name
        app = create_app(FakeAssistant(history), HOST, access=Access(keys))
        response = TestClient(app, f"http://{HOST}").get(
            f"{ROUTE}/{name}", headers=bearer(made["anna"])
        )
        assert response.status_code == 403
        assert b"SQLite format" not in response.content
        history.close()
