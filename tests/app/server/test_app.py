"""All routes that give no answer of the model: models, health, metrics, backups, and what is not there."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient
from httpx import ASGITransport
from starlette.responses import PlainTextResponse

from app.chat.assistant import Assistant
from app.history.store import History
from app.server.app import create_app
from app.server.backups import ROUTE
from app.settings import Settings
from tests.app.assisted import POCKET
from tests.app.asynchronous import asynchronous
from tests.app.server.fake_assistant import FakeAssistant
from tests.app.server.serving import HTTP, Running, answer

LINE = re.compile(r'(?P<name>[a-z_]+:[a-z_]+(\{[a-z_]+="[^"{}]*"\})?) (?P<value>[0-9.e+-]+)')
END = "4"  # the token that ends an answer of pocket's
ASKED = [{"role": "user", "content": "What is 17 + 25?"}]


def test_without_the_prefix_a_wrong_method_is_refused_before_any_page() -> None:
    """The page that is mounted after the routes took the request, and knew nothing of it."""
    app = create_app(FakeAssistant())
    app.mount("/", PlainTextResponse("the page"))
    with TestClient(app, "http://localhost") as client:
        for method, path in [("PUT", "/health"), ("GET", "/responses"), ("POST", "/models/pocket")]:
            response = client.request(method, path)
            code = response.json()["error"]["code"]
            assert (response.status_code, code) == (405, "method_not_allowed")
            assert response.headers["allow"]
        assert client.get("/anything").text == "the page"
        assert client.post("/anything").text == "the page"
        assert client.get("/models").json() == client.get("/v1/models").json()


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_health_names_the_model(running: Running, prefix: str) -> None:
    found = HTTP.get(f"{running.url}{prefix}/health").json()
    assert found == {"status": "ok", "model": "pocket"}


@asynchronous
async def test_the_list_of_models_follows_a_switch(tmp_path: Path) -> None:
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
            body = {"model": after["id"], "messages": ASKED, "max_tokens": 1}
            reply = await client.post("/v1/chat/completions", json=body)
        for again in ("pocket", name):  # its path is known from the first time
            await assistant.switch(again)
            assert assistant.entry.name == again
    finally:
        await assistant.close()
    assert [model["id"] for model in before] == ["pocket"]
    assert name != "pocket"
    assert (after["id"], after["context_length"]) == (name, assistant.facts.context)
    assert (found.status_code, found.json()) == (200, after)
    assert gone.status_code == 404
    assert (reply.status_code, reply.json()["model"]) == (200, name)


class TestMetrics:
    """What a monitor reads: Prometheus' text, with the sums over all answers."""

    def read(self, url: str, path: str = "/metrics") -> dict[str, float]:
        """By name and labels; each name has its help and type before its values."""
        response = HTTP.get(f"{url}{path}")
        assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert response.text.endswith("\n")
        found, helped = {}, ""
        for line in response.text.splitlines():
            if line.startswith("# HELP "):
                helped = line.split()[2]
            elif line.startswith("# TYPE "):
                kind = "counter" if helped.endswith("_total") else "gauge"
                assert line.split()[2:] == [helped, kind]
            else:
                value = LINE.fullmatch(line)
                assert value is not None, line
                assert value["name"].partition("{")[0] == helped
                found[value["name"]] = float(value["value"])
        return found

    def test_answers_are_added_up(self, url: str) -> None:
        before = self.read(url)
        answers = [
            answer(url, messages=ASKED, max_tokens=5, drafter="none"),
            answer(url, messages=ASKED, max_tokens=200, drafter="chain"),
            answer(url, messages=ASKED, max_tokens=5, drafter="none", n=2),
        ]
        after = self.read(url)

        def grown(name: str) -> float:
            return after[name] - before.get(name, 0.0)

        def total(name: str) -> int:
            return sum(one["timings"].get(name, 0) for one in answers)

        assert grown("llamacpp:tokens_predicted_total") == total("predicted_n")
        passes = sum(one["speculation"]["passes"] for one in answers)
        assert grown("llamacpp:n_decode_total") == passes
        drafted, accepted = total("draft_n"), total("draft_n_accepted")
        assert grown("llamacpp:spec_decode_num_draft_tokens_total") == drafted > 0
        assert grown("llamacpp:spec_decode_num_accepted_tokens_total") == accepted > 0
        of_place = "llamacpp:spec_decode_num_accepted_tokens_per_pos"
        assert sum(grown(name) for name in after if name.startswith(of_place)) == accepted
        assert grown('slipstream:answers_total{finish_reason="length"}') == 3
        assert grown('slipstream:answers_total{finish_reason="stop"}') == 1
        for name in ("none", "chain"):
            assert grown(f'slipstream:decode_seconds_total{{drafter="{name}"}}') > 0
        plain = grown('slipstream:tokens_total{drafter="none"}')
        assert plain == grown('slipstream:passes_total{drafter="none"}') == 15
        assert grown('slipstream:plain_seconds_total{drafter="chain"}') > 0
        assert after["llamacpp:requests_processing"] == 0
        assert self.read(url, "/v1/metrics") == after

    def test_a_running_answer_is_counted(self, url: str) -> None:
        endless = {"stream": True, "max_tokens": 100, "logit_bias": {END: -100}, "drafter": "none"}
        body = {"model": "pocket", "messages": ASKED, **endless}
        with HTTP.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            lines = response.iter_lines()
            next(lines)
            assert self.read(url)["llamacpp:requests_processing"] == 1
            assert "[DONE]" in [*lines][-2]
        assert self.read(url)["llamacpp:requests_processing"] == 0


class TestBackups:
    """Exactly those that were made, by name."""

    @pytest.fixture
    def history(self, tmp_path: Path) -> Iterator[History]:
        opened = History.open(tmp_path / "history.db")
        yield opened
        opened.close()

    @pytest.fixture
    def client(self, history: History) -> TestClient:
        return TestClient(create_app(FakeAssistant(history)), base_url="http://127.0.0.1")

    def test_a_copy_is_the_file(self, history: History, client: TestClient) -> None:
        history.create_conversation("Boats")
        made = history.upkeep.back_up()
        response = client.get(f"{ROUTE}/{made.name}")
        assert (response.status_code, response.content) == (200, made.read_bytes())
        assert made.name in response.headers["content-disposition"]
        assert response.headers["content-disposition"].startswith("attachment")

    @pytest.mark.parametrize(
        "name", ["history.db", "..%2Fhistory.db", "%2e%2e/history.db", "history-nothing.db", "x%00"]
    )
    def test_nothing_else_is_sent(self, history: History, client: TestClient, name: str) -> None:
        history.upkeep.back_up()
        response = client.get(f"{ROUTE}/{name}")
        assert response.status_code == 404
        assert b"SQLite format" not in response.content

    def test_another_site_reads_no_copy(self, history: History, client: TestClient) -> None:
        path = f"{ROUTE}/{history.upkeep.back_up().name}"
        assert client.get(path, headers={"host": "evil.com"}).status_code >= 400
        response = client.get(path, headers={"origin": "http://evil.com"})
        assert "access-control-allow-origin" not in response.headers  # a browser withholds it
