"""The command: options it refuses, ports, answers to programs, an end without leftovers."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import psutil
import pytest

from app.errors import SettingsError
from tests.ui.application import COMMAND, Application, application, environment, run
from ui.launch import listen


@pytest.mark.parametrize("port", [-1, 65536])
def test_port_that_is_none_is_refused(port):
    with pytest.raises(SettingsError, match="--port"):
        listen("127.0.0.1", port)


def test_busy_port_is_one_sentence_and_status_2(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(tmp_path, "--port", str(port), "--no-browser")
    assert ended.returncode == 2
    assert len(ended.stderr.strip().splitlines()) == 1
    assert f"port {port} of 127.0.0.1 is taken" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--host", "0.0.0.0"), "slipstream keys add NAME"),
        (("--require-key",), "slipstream keys add NAME"),
        (("--tls-cert", "none.pem"), "--tls-key"),
        (("--model", "no-such-model"), "no-such-model"),
        (("--draft-model", "no-such-draft"), "no-such-draft"),
    ],
)
def test_wrong_options_are_one_sentence_and_status_2(tmp_path, arguments, told):
    ended = run(tmp_path, "--port", "0", "--no-browser", *arguments)
    assert ended.returncode == 2
    assert len(ended.stderr.strip().splitlines()) == 1
    assert told in ended.stderr


def ask(address: str, text: str) -> str:
    body = {"model": "pocket", "messages": [{"role": "user", "content": text}], "max_tokens": 16}
    response = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return json.dumps(response.json()["speculation"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_app_answers_and_a_signal_ends_every_process(tmp_path, number):
    with application(tmp_path) as app:
        assert "Slipstream" in httpx.get(app.address).text
        assert "passes" in ask(app.address, "hello")
        _, *children = app.family
        assert children
        started = time.monotonic()
        app.process.send_signal(number)
        assert app.process.wait(10) == 0
        assert time.monotonic() - started < 5
        assert not psutil.wait_procs(children, timeout=5)[1]


ODD = {
    "ALL_PROXY": "socks5://127.0.0.1:1",
    "NO_PROXY": "::1,[",
    "SSL_CERT_FILE": "/nowhere.pem",
    "SSLKEYLOGFILE": "/nowhere/keys",
    "GRADIO_ROOT_PATH": "/elsewhere",
    "GRADIO_NODE_NUM_PORTS": "many",
    "HF_HUB_ETAG_TIMEOUT": "soon",
    "TORCH_LOGS": "nonsense",
    "WEB_CONCURRENCY": "auto",
    "TMPDIR": "/nowhere",
    "XDG_CACHE_HOME": "/proc/nowhere",
    "OMP_NUM_THREADS": "many",
    "TZ": "Nowhere/Land",
    "BROWSER": "/nowhere",
}


def test_nothing_in_the_environment_keeps_the_page_from_starting(tmp_path, monkeypatch):
    client = httpx.Client(trust_env=False)  # it would break on them, too
    for name, value in ODD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HOME")
    with application(tmp_path) as app, client:
        page = client.get(app.address).text
        said = [{"role": "user", "content": "hello"}]
        body = {"model": "pocket", "messages": said, "max_tokens": 4}
        answer = client.post(f"{app.address}/v1/chat/completions", json=body, timeout=60)
    assert f'"root":"{app.address}"' in page
    assert "/elsewhere" not in page
    assert answer.status_code == 200


def test_signal_while_the_model_loads_ends_every_process(tmp_path):
    command = [*COMMAND, "--port", "0", "--no-browser"]
    with subprocess.Popen(command, cwd=tmp_path, env=environment(tmp_path)) as process:
        parent = psutil.Process(process.pid)
        while not (family := parent.children(recursive=True)):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) != 0
        assert not psutil.wait_procs(family, timeout=10)[1]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/no", 404), ("POST", "/api/chat", 404), ("POST", "/v1", 404), ("PUT", "/", 405)],
)
def test_what_the_page_does_not_have_is_refused_like_any_route(app, method, path, status):
    response = httpx.request(method, f"{app.address}{path}")
    assert (response.status_code, response.json()["type"]) == (status, "error")
    assert f"{method} {path}" in response.json()["error"]["message"]
    own = httpx.request(method, f"{app.address}/gradio_api/nothing")
    assert "detail" in own.json()  # which the page's scripts read


# --- the official client ----------------------------------------------------------------------------

CHORE = "Repeat this text exactly:\nThe quick brown fox jumps over the lazy dog near the old mill."


@pytest.fixture(scope="module")
def client(app: Application) -> Iterator[openai.OpenAI]:
    url = f"{app.address}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def asked(text: str, **more: Any) -> Any:
    return {"model": "pocket", "messages": [{"role": "user", "content": text}], **more}


def test_law_every_drafter_gives_the_same_answer_streamed_or_not(client):
    texts = set()
    for drafter in ("none", "lookup", "early_exit", "chain", "specexec", "auto"):
        request = asked(CHORE, max_tokens=48, extra_body={"drafter": drafter})
        whole = client.chat.completions.create(**request)
        stream = client.chat.completions.create(**request, stream=True)
        texts.add(whole.choices[0].message.content)
        texts.add("".join(chunk.choices[0].delta.content or "" for chunk in stream))
    assert len(texts) == 1
    assert texts != {""}


def test_answer_says_what_ran(client):
    request = asked(CHORE, max_tokens=48, extra_body={"drafter": "chain"})
    answer = client.chat.completions.create(**request)
    extra: Any = answer.model_extra
    assert extra["speculation"]["drafter"] == "chain"
    assert extra["speculation"]["reason"]
    drafted = extra["timings"].get("draft_n", 0)  # how much is worth drafting is measured
    assert 0 <= extra["timings"].get("draft_n_accepted", 0) <= drafted
    assert extra["timings"]["predicted_n"] == answer.usage.completion_tokens
