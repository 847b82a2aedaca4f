"""The door of a browser: a form, a cookie, an end; and TLS."""

import shutil
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from app.errors import SettingsError
from app.keys.key_file import Keys
from app.keys.opening import Tls
from app.server.app import create_app
from app.server.door import Access
from app.settings import Settings
from tests.app.server.fake_assistant import FakeAssistant, open_fake
from tests.app.server.serving import serving
from tests.app.server.sweep import HOST, bearer

BODY = {"model": "pocket", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no openssl on this machine, to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    made = Tls(folder / "cert.pem", folder / "key.pem")
    command = [program, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=slipstream", "-addext", f"subjectAltName=IP:{HOST}"]  # fmt: skip
    command += ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return made


class TestTls:
    def test_clients_that_trust_the_certificate_are_answered(
        self, tls: Tls, keys: Keys, made: dict[str, str]
    ) -> None:
        page = Access(keys, lambda wrong: f"<form>{wrong}</form>")
        trusted = ssl.create_default_context(cafile=str(tls.certificate))
        with serving(open_fake, HOST, page, tls) as running, httpx.Client(verify=trusted) as client:
            url = f"{running.url}/v1/chat/completions"
            answer = client.post(url, json=BODY, headers=bearer(made["anna"]))
            assert answer.status_code == 200
            own = {"origin": running.url}
            cookie = client.post(
                f"{running.url}/login", data={"key": made["anna"]}, headers=own
            ).headers["set-cookie"]
            assert {"secure", "httponly", "samesite=strict"} <= {
                part.strip().lower() for part in cookie.split(";")
            }
            other = {"origin": running.url.replace("https", "http")}
            assert client.post(url, json=BODY, headers=other).status_code == 403

    def test_files_that_do_not_work_are_one_sentence(self, tls: Tls, tmp_path: Path) -> None:
        wrong = tmp_path / "wrong.pem"
        wrong.write_text("no certificate")
        locked = tmp_path / "locked.pem"
        subprocess.run(
            ["openssl", "ec", "-in", tls.key, "-aes256", "-passout", "pass:x", "-out", locked],
            check=True,
            capture_output=True,
        )
        for certificate, key in (
            (tls.certificate, None),
            (None, tls.key),
            (tls.certificate, tmp_path / "none.pem"),
            (wrong, tls.key),
            (tls.certificate, wrong),
            (tls.certificate, locked),
            (tls.certificate, tmp_path),
        ):
            with pytest.raises(SettingsError, match=r"--tls-cert|PEM"):
                Tls.of(Settings(home=tmp_path, tls_cert=certificate, tls_key=key))
        assert Tls.of(Settings(home=tmp_path, tls_cert=tls.certificate, tls_key=tls.key)) == tls


class TestPage:
    """What a browser does: a form, a cookie, an end."""

    @pytest.fixture
    def client(self, keys: Keys) -> TestClient:
        access = Access(keys, lambda wrong: f"<form>{wrong}</form>")
        app = create_app(FakeAssistant(), HOST, access=access)
        app.add_api_route("/", lambda: "the page")
        return TestClient(app, f"http://{HOST}", headers={"accept": "text/html"})

    def log_in(self, client: TestClient, key: str, **headers: str) -> httpx.Response:
        return client.post("/login", data={"key": key}, headers=headers, follow_redirects=False)

    def test_a_form_then_the_page_then_the_form(
        self, client: TestClient, made: dict[str, str]
    ) -> None:
        asked = client.get("/anything")
        assert (asked.status_code, asked.text) == (401, "<form></form>")
        wrong = self.log_in(client, "wrong")
        assert (wrong.status_code, "withdrawn" in wrong.text) == (401, True)
        assert "set-cookie" not in wrong.headers
        entered = self.log_in(client, f" {made['anna']}\n")
        assert (entered.status_code, entered.headers["location"]) == (303, "/")
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert made["anna"].lower() not in cookie
        assert client.get("/").text == '"the page"'
        assert client.get("/login", follow_redirects=False).status_code == 303
        kept = dict(client.cookies)
        client.post("/logout")
        assert client.get("/").status_code == 401
        client.cookies.update(kept)
        assert client.get("/").status_code == 401  # the session has ended, not only its cookie

    def test_what_is_no_form_lets_nobody_in(self, client: TestClient, made: dict[str, str]) -> None:
        form = f"key={made['anna']}&x=".encode()
        for content, headers, status in (
            (b"", {}, 401),
            (b"\xff%00=key", {}, 401),
            (b"[" * 100, {}, 401),
            (form + b"a" * 10**6, {}, 401),
            (form, {"content-encoding": "br"}, 415),
            (form, {"content-encoding": "gzip"}, 400),
        ):
            response = client.post("/login", content=content, headers=headers)
            assert response.status_code == status
            assert "set-cookie" not in response.headers

    def test_a_withdrawn_key_ends_its_sessions(self, client: TestClient, keys: Keys) -> None:
        self.log_in(client, keys.add("guest"))
        assert client.get("/").status_code == 200
        keys.remove("guest")
        assert client.get("/").status_code == 401
        self.log_in(client, keys.add("guest"))
        assert client.get("/").status_code == 200
        keys.remove("guest")
        keys.add("guest")  # of the same name, and not the key that was used
        assert client.get("/").status_code == 401
        keys.remove("guest")

    def test_law_other_sites_neither_log_in_nor_use_a_session(
        self, client: TestClient, made: dict[str, str]
    ) -> None:
        for origin in ("https://evil.com", "null", f"https://{HOST}"):
            assert self.log_in(client, made["anna"], origin=origin).status_code == 403
        self.log_in(client, made["anna"], origin=f"http://{HOST}")
        assert client.get("/v1/models").status_code == 200
        foreign = {"origin": "https://evil.com"}
        assert client.get("/v1/models", headers=foreign).status_code == 401
        assert client.post("/logout", headers=foreign).status_code == 403
        assert client.get("/v1/models", headers={"x-api-key": "wrong"}).status_code == 401

    def test_programs_are_refused_as_programs_expect(self, client: TestClient) -> None:
        for path in ("/v1/models", "/gradio_api/info"):
            assert client.get(path).json()["error"]["code"] == "invalid_api_key"
