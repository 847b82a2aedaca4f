"""Redirects, the token and where it is kept, and the sentences for a hub that refuses."""

import socket
import sys
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from app.environment import QUIET
from app.errors import AccessDenied, HubError, SettingsError, UnknownRepository
from app.models.downloads.queue import open_hub
from app.models.hub.client import Hub, keep_token, read_token
from app.models.hub.repository import read_repository
from app.settings import Settings, load_settings
from tests.app.models.downloads.hub import COMMIT

FILE = "model.safetensors"


def status(hub: Hub, repo: str = "org/tiny") -> int:
    with closing(hub), hub.stream(hub.file_address(repo, COMMIT, FILE)) as response:
        response.read()
        if response.status_code != 200:
            hub.refuse(response, repo)
        return response.status_code


def test_the_token_goes_to_the_hub_only(stand_in):
    stand_in.repos["org/tiny"].gated = True
    assert status(Hub(stand_in.url, stand_in.token)) == 200
    seen = {request.host: request.authorization for request in stand_in.requests}
    assert seen == {"hub": "Bearer hf_secret", "cdn": None}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:1080", "^ALL_PROXY names a SOCKS proxy"),
        ("HTTPS_PROXY", "gopher://x", "HTTPS_PROXY, .*Unknown scheme .*; correct it"),
        (
            "NO_PROXY",
            "localhost,[::1]",
            r"NO_PROXY holds an address .*Invalid port.* localhost,::1",
        ),
        ("SSL_CERT_FILE", "/nowhere.pem", r"SSL_CERT_FILE or .* cannot be read \(No such file"),
        ("SSL_CERT_FILE", __file__, r"SSL_CERT_FILE or .* cannot be read \(.*NO_CERTIFICATE"),
    ],
)
def test_a_wrong_variable_of_the_environment_is_named(stand_in, monkeypatch, name, value, said):
    """It was a traceback, of the page, too, which asks the hub for nothing."""
    monkeypatch.setitem(sys.modules, "socksio", None)  # as where it is not installed
    monkeypatch.setenv(name, value)
    with closing(Hub(stand_in.url)) as hub, pytest.raises(HubError, match=said):
        hub.ask("models", {})


def test_an_address_of_the_hub_that_is_none():
    for address in ("http://x:port", "ftp://x", "http:", "https://a b.c", "https:///x"):
        with pytest.raises(HubError, match=f"'{address}', cannot be read .*; correct HF_ENDPOINT"):
            Hub(address)


@pytest.mark.parametrize("name", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize(
    ("value", "asks"), [("1", False), ("True", False), ("0", True), ("", True)]
)
def test_who_wants_no_network_gets_none(stand_in, tmp_path, name, value, asks):
    environ = {"HF_ENDPOINT": stand_in.url, "SLIPSTREAM_HOME": str(tmp_path), name: value}
    with closing(open_hub(load_settings(environ))) as hub:
        if asks:
            assert hub.ask("models", {}) == []
        else:
            with pytest.raises(HubError, match="is set, so nothing is asked of the network"):
                hub.ask("models", {})
    assert bool(stand_in.requests) is asks


def test_what_is_set_for_libraries_is_no_wish_of_the_person():
    assert not load_settings(QUIET).offline


def test_a_gated_repository_names_its_page_and_the_command(stand_in):
    stand_in.repos["org/tiny"].gated = True
    with pytest.raises(AccessDenied, match="org/tiny is gated; open http://") as caught:
        status(Hub(stand_in.url))
    assert f"{stand_in.url}/org/tiny" in str(caught.value)
    assert "slipstream models token" in str(caught.value)
    with pytest.raises(AccessDenied, match="the kept token has no access yet") as caught:
        status(Hub(stand_in.url, "hf_wrong"))
    assert "hf_wrong" not in str(caught.value)


def test_an_unknown_repository_is_named(hub):
    with pytest.raises(UnknownRepository, match="has no repository org/none"):
        read_repository(hub, "org/none")


def test_a_hub_that_is_not_there():
    with pytest.raises(HubError, match=r"127.0.0.1 cannot be reached: .* work without it"):
        read_repository(Hub("http://127.0.0.1:9"), "org/tiny")


@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/x", "https://10.0.0.1/x", "https://localhost/x", "https://[::1]/x",
     "http://cdn.example.com/x", "file:///etc/passwd"],
)  # fmt: skip
def test_a_redirect_into_the_own_network_or_off_tls_is_not_followed(monkeypatch, target):
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"Location": target})

    client = partial(httpx.Client, transport=httpx.MockTransport(answer))
    monkeypatch.setattr("app.models.hub.client.httpx.Client", client)
    with (
        closing(Hub("https://hub.example.com", "hf_secret")) as hub,
        pytest.raises(HubError, match="not safe to follow"),
    ):
        hub.read("https://hub.example.com/a")
    assert asked == ["https://hub.example.com/a"]


def test_redirects_end(stand_in):
    stand_in.redirect = f"{stand_in.url}/org/tiny/resolve/{COMMIT}/{FILE}"
    with pytest.raises(HubError, match="redirects more than 5 times"):
        status(Hub(stand_in.url))
    assert len(stand_in.requests) == 6


def test_the_token_is_in_no_text_about_the_hub():
    hub = Hub("https://hub.example.com", "hf_secret")
    assert "hf_secret" not in repr(hub) + str(hub)


@pytest.fixture
def settings(tmp_path):
    return Settings(home=tmp_path, hub_token="from-environment")


@pytest.mark.parametrize("given", [" hf_abc\n", "\ufeffhf_abc\r\n", "\thf_abc"])
def test_a_kept_token_is_its_owners_alone(settings, given):
    settings.token_file.touch(mode=0o644)
    keep_token(settings, given)
    assert settings.token_file.stat().st_mode & 0o777 == 0o600
    assert read_token(settings) == "hf_abc"
    assert [file.name for file in settings.home.iterdir()] == ["hub-token"]


def test_an_empty_one_is_forgotten_and_then_the_environment_counts(settings):
    keep_token(settings, "hf_abc")
    keep_token(settings, "")
    keep_token(settings, "")
    assert read_token(settings) == "from-environment"
    assert read_token(Settings(home=settings.home)) is None


@pytest.mark.parametrize("token", ["two words", "caf\u00e9", "a\nb", "a\tb"])
def test_what_is_no_token_is_refused_without_repeating_it(settings, token):
    with pytest.raises(SettingsError) as caught:
        keep_token(settings, token)
    assert token not in str(caught.value)
    assert not settings.token_file.exists()


@pytest.mark.parametrize("token", ["a\nb", "two words", "\u201chf_abc\u201d"])
def test_what_cannot_be_sent_is_refused_wherever_it_is_from_and_not_repeated(tmp_path, token):
    """It was a fault in a header, which showed the token, or a traceback."""
    told = Settings(home=tmp_path, hub_token=token, hub_login=tmp_path / "login")
    with pytest.raises(SettingsError, match="what HF_TOKEN holds is no token") as caught:
        read_token(told)
    assert token not in str(caught.value)
    told.hub_login.write_text(token, encoding="utf-8")
    assert read_token(replace(told, hub_token=None)) is None
    if token.isascii():
        told.token_file.write_text(token, encoding="ascii")
        with pytest.raises(SettingsError, match=r"what .*hub-token holds is no token"):
            read_token(told)


def test_settings_never_show_it():
    settings = load_settings({"HF_TOKEN": "hf_abc", "HF_ENDPOINT": "http://127.0.0.1:1/"})
    assert (settings.hub_token, settings.hub) == ("hf_abc", "http://127.0.0.1:1")
    assert "hf_abc" not in repr(settings)


BREAKS_OFF = 0  # in place of a status


class Busy:
    """A hub that answers a listing with these statuses first."""

    def __init__(self, *answers: tuple[int, dict[str, str]]) -> None:
        self.answers, self.asked = [*answers], 0
        self.tokens: list[str | None] = []

    @contextmanager
    def running(self):
        busy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                busy.asked += 1
                busy.tokens.append(self.headers["authorization"])
                status, headers = busy.answers.pop(0) if busy.answers else (200, {})
                if status == BREAKS_OFF:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(status)
                for name, value in {**headers, "content-length": "2"}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(b"[]")

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=[0.02])
            thread.start()
            with closing(Hub(f"http://127.0.0.1:{server.server_port}")) as hub:
                yield hub
            server.shutdown()
            thread.join()


LATER = {"retry-after": "0"}


@pytest.mark.parametrize(
    "answers",
    [
        [(429, LATER)],
        [(429, {}), (503, LATER)],
        [(502, {}), (504, {}), (429, {"ratelimit": '"api";r=0;t=0'})],
        [(429, {"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT"})],
        [(BREAKS_OFF, {})],
        [(BREAKS_OFF, {}), (429, LATER), (BREAKS_OFF, {})],
    ],
)
def test_a_busy_hub_is_asked_again(monkeypatch, answers):
    monkeypatch.setattr("app.models.hub.client.PAUSES", (0.0, 0.0, 0.0))
    busy = Busy(*answers)
    with busy.running() as hub:
        assert hub.ask("models", {}) == []
    assert busy.asked == len(answers) + 1


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (403, r"a web page came in place of what 127.0.0.1 holds \(status 403\), perhaps"),
        (451, "answered with status 451 Unavailable For Legal Reasons; open http://127"),
        (407, "answered with status 407 Proxy Authentication Required; open http"),
        (501, "answered with status 501 Not Implemented; try again later"),
    ],
)
def test_another_status_is_told_with_what_it_means(status, said):
    """A page of a firewall was a gated model, and what never comes was to be tried again later."""
    busy = Busy((status, {"content-type": "text/html"}))
    with busy.running() as hub, pytest.raises(HubError, match=said):
        hub.ask("models/org/tiny", {}, "org/tiny")


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate", "is not trusted here; .* SSL_CERT_FILE"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong", "does not speak https; correct HF_ENDPOINT"),
        ("[Errno 111] Connection refused", "reached: Connection refused by the proxy p:1; check"),
    ],
)
def test_what_stands_between_is_named(monkeypatch, said, remedy):
    def fail(request):
        raise httpx.ConnectError(said)

    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@p:1/")
    monkeypatch.delenv("NO_PROXY", raising=False)
    client = partial(httpx.Client, transport=httpx.MockTransport(fail))
    monkeypatch.setattr("app.models.hub.client.httpx.Client", client)
    with closing(Hub("https://hub.example.com")) as hub, pytest.raises(HubError, match=remedy):
        hub.ask("models", {})


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("RepoNotFound", "has no repository org/tiny, or it is private"),
        ("EntryNotFound", "org/tiny has no file m v1.gguf on 127.0.0.1; look at its page"),
        ("RevisionNotFound", "org/tiny has no revision m v1.gguf on"),
    ],
)
def test_what_is_not_there_is_named(code, said):
    """A file or a revision that was taken away was called a repository that is not there."""
    busy = Busy((404, {"x-error-code": code}))
    with busy.running() as hub, pytest.raises(UnknownRepository, match=said):
        hub.read(f"{hub.endpoint}/org/tiny/resolve/main/m%20v1.gguf", "org/tiny")


@pytest.mark.parametrize(
    ("answer", "said", "asked"),
    [
        ((429, {"retry-after": "900"}), "too many requests from here; try again in 900 seconds", 1),
        ((429, {"ratelimit": '"api";r=0;t=240'}), "in 240 seconds, or keep a token", 1),
        ((429, {}), "try again in some minutes", 4),
        ((404, {}), "status 404", 1),
    ],
)
def test_a_hub_that_stays_busy_says_until_when(monkeypatch, answer, said, asked):
    monkeypatch.setattr("app.models.hub.client.PAUSES", (0.0, 0.0, 0.0))
    busy = Busy(*[answer] * 9)
    with busy.running() as hub, pytest.raises(HubError, match=said):
        hub.ask("models", {})
    assert busy.asked == asked


def test_a_hub_that_breaks_off_every_time_cannot_be_reached(monkeypatch):
    monkeypatch.setattr("app.models.hub.client.PAUSES", (0.0, 0.0, 0.0))
    busy = Busy(*[(BREAKS_OFF, {})] * 9)
    with busy.running() as hub, pytest.raises(HubError, match="cannot be reached"):
        hub.ask("models", {})
    assert busy.asked == 4


def test_a_token_that_the_hub_does_not_know_any_more_keeps_nobody_from_what_is_public(monkeypatch):
    monkeypatch.setattr("app.models.hub.client.PAUSES", (0.0, 0.0, 0.0))
    busy = Busy((401, {}), (200, {}), (401, {"x-error-code": "GatedRepo"}))
    with busy.running() as hub:
        hub.use_token("hf_old")
        assert hub.ask("models", {}) == []
        with pytest.raises(AccessDenied, match="does not know the kept token; .* another one"):
            hub.ask("models/org/gated", {}, "org/gated")
        hub.use_token("hf_new")
        assert hub.ask("models", {}) == []
    assert busy.tokens == ["Bearer hf_old", None, None, "Bearer hf_new"]


@pytest.mark.parametrize("code", ["GatedRepo", "RepoNotFound"])
def test_a_token_that_the_hub_knows_is_sent_again(code):
    busy = Busy((401, {"x-error-code": code}))
    with busy.running() as hub:
        hub.use_token("hf_good")
        with pytest.raises((AccessDenied, UnknownRepository)):
            hub.ask("models/org/x", {}, "org/x")
        assert hub.ask("models", {}) == []
    assert busy.tokens == ["Bearer hf_good"] * 2


def test_a_token_that_cannot_be_kept_is_one_sentence_and_leaves_no_half(tmp_path):
    (tmp_path / "hub-token").mkdir()  # in place of a full disk
    with pytest.raises(SettingsError, match=r"cannot be kept in .*hub-token .*check free space"):
        keep_token(Settings(home=tmp_path), "hf_abc")
    assert [file.name for file in tmp_path.iterdir()] == ["hub-token"]


def test_a_login_with_hf_is_used_last(tmp_path):
    login = tmp_path / "token"
    login.write_text("hf_login\n")
    settings = Settings(home=tmp_path, hub_login=login)
    assert read_token(settings) == "hf_login"
    assert read_token(replace(settings, hub_token="hf_variable")) == "hf_variable"
    keep_token(settings, "hf_kept")
    assert read_token(replace(settings, hub_token="hf_variable")) == "hf_kept"
    keep_token(settings, "")
    login.write_bytes(b"\xff\xfe")
    assert read_token(settings) is None
