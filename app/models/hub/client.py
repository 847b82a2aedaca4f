"""Requests to the hub: follows redirects itself, sends the token to the hub alone, keeps the token."""

import ipaddress
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from urllib.request import getproxies, proxy_bypass

import httpx

from app.errors import AccessDenied, HubError, SettingsError, UnknownRepository
from app.settings import Settings

MOST_REDIRECTS = 5
TIMEOUT = httpx.Timeout(30.0, connect=10.0)  # of one read: a connection that gives nothing is dead
PAUSES = (1.0, 2.0, 4.0)  # seconds before a busy hub is asked again, at least
LONGEST_PAUSE = 30.0  # seconds: a person waits for a listing
TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})
BROKEN_OFF = (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)
_LOST = {"EntryNotFound": "file", "RevisionNotFound": "revision"}
_LOOK = "look at its page for what is there now"
RESET = re.compile(r"\bt=(\d{1,6})")  # seconds, in the header of the newer standard
# Compressed bodies have other lengths and ranges than the file.
HEADERS = {"User-Agent": "slipstream", "Accept-Encoding": "identity"}


class Hub:
    """One hub, at ``endpoint``; safe to use from several threads. Nothing is asked before a call."""

    def __init__(
        self,
        endpoint: str,
        token: str | None = None,
        timeout: httpx.Timeout = TIMEOUT,
        *,
        offline: bool = False,
    ) -> None:
        self.endpoint, self._offline = endpoint.rstrip("/"), offline
        self._token = token
        self._stale = False  # the hub does not know the token, and is asked without it
        self._origin = _origin(_address(self.endpoint))
        self._timeout = timeout
        self._http: httpx.Client | None = None
        self._making = threading.Lock()

    def use_token(self, token: str | None) -> None:
        """Send another token, or none, from the next request on."""
        self._token, self._stale = token, False

    def page(self, repo: str) -> str:
        """The address that a person opens to read about ``repo`` and to accept its terms."""
        return f"{self.endpoint}/{repo}"

    def file_address(self, repo: str, commit: str, name: str) -> str:
        """Where the content of one file at one commit is."""
        return f"{self.endpoint}/{repo}/resolve/{commit}/{quote(name)}"

    def ask(self, path: str, query: Mapping[str, Any], repo: str | None = None) -> Any:
        """The JSON at ``path`` of the hub's interface; raises HubError and its kinds."""
        address = str(httpx.URL(f"{self.endpoint}/api/{path}", params=dict(query)))
        found = self.read(address, repo)
        if found.lstrip().startswith(b"<"):
            raise HubError(self._page_came(httpx.codes.OK))
        try:
            return json.loads(found)
        except (ValueError, RecursionError) as error:
            raise HubError(f"{self.host} did not answer with JSON; try again later") from error

    def read(self, address: str, repo: str | None = None) -> bytes:
        """All that is at ``address``, which is little; raises HubError and its kinds.

        A hub that is busy is asked again, after the time that it names, and so is one that broke off.
        One that does not know the token, as a login ends some day, is asked without it.
        """
        for pause in (*PAUSES, None):
            read, asked = self._read_once(address, repo, last=pause is None)
            if read is not None:
                return read
            time.sleep(max(pause or 0.0, asked))
        raise AssertionError("the last try raises")

    def _read_once(
        self, address: str, repo: str | None, *, last: bool
    ) -> tuple[bytes | None, float]:
        """The body, or None with the seconds that the hub asks to wait."""
        try:
            with self.stream(address) as response:
                if response.status_code == httpx.codes.OK:
                    return response.read(), 0.0
                if self._is_stranger(response):
                    self._stale = True
                    return None, 0.0
                asked = asked_to_wait(response)
                if last or response.status_code not in TEMPORARY or asked > LONGEST_PAUSE:
                    self.refuse(response, repo)
                return None, asked
        except httpx.TransportError as error:
            if isinstance(error, BROKEN_OFF) and not last:
                return None, 0.0
            raise HubError(f"{self.host} cannot be reached: {self._reason(error)}") from error

    @contextmanager
    def stream(
        self, address: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """The final answer to a GET, its body not read yet; raises httpx.TransportError, HubError."""
        client, url = self._client(), httpx.URL(address)
        for _ in range(MOST_REDIRECTS + 1):
            request = client.build_request("GET", url, headers=dict(headers or {}))
            if (
                self._sends_token and _origin(url) == self._origin
            ):  # never to the host of a redirect
                request.headers["Authorization"] = f"Bearer {self._token}"
            response = client.send(request, stream=True)
            try:
                if not response.has_redirect_location:
                    yield response
                    return
                url = self._redirected(url, response.headers["location"])
            finally:
                response.close()
        raise HubError(f"{self.host} redirects more than {MOST_REDIRECTS} times; try again later")

    def is_own(self, response: httpx.Response) -> bool:
        """Whether the hub itself answered, and not a host that it redirected to."""
        return _origin(response.url) == self._origin

    def refuse(self, response: httpx.Response, repo: str | None) -> None:
        """Raise what a status that is no success means."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        if repo is not None and code in _LOST:
            name = unquote(response.url.path.rpartition("/")[2])
            raise UnknownRepository(f"{repo} has no {_LOST[code]} {name} on {self.host}; {_LOOK}")
        if not code and status == httpx.codes.FORBIDDEN and _is_page(response):
            raise HubError(self._page_came(status))
        if repo is not None and (status == httpx.codes.NOT_FOUND or code == "RepoNotFound"):
            raise UnknownRepository(
                f"{self.host} has no repository {repo}, or it is private; check the spelling"
            )
        if repo is not None and status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise AccessDenied(self._terms(repo))
        if status == httpx.codes.TOO_MANY_REQUESTS:
            asked = asked_to_wait(response)
            wait = f"in {asked:.0f} seconds" if asked else "in some minutes"
            login = "" if self._sends_token else ", or keep a token, with which it allows more"
            raise HubError(f"{self.host} gets too many requests from here; try again {wait}{login}")
        advice = (
            "try again later" if response.is_server_error else f"open {self.endpoint} to see why"
        )
        named = f"{status} {response.reason_phrase}".strip()
        raise HubError(f"{self.host} answered with status {named}; {advice}")

    def _page_came(self, status: int) -> str:
        return (
            f"a web page came in place of what {self.host} holds (status {status}), perhaps of the network's "
            f"login or of a firewall; open {self.endpoint} to see it"
        )

    def _reason(self, error: httpx.TransportError) -> str:
        """What happened, and what helps; what stands between is named."""
        said = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in said:
            return (
                "its certificate is not trusted here; where a firewall reads what is sent, set "
                "SSL_CERT_FILE to a file with its certificates"
            )
        if "WRONG_VERSION_NUMBER" in said:
            return "it does not speak https; correct HF_ENDPOINT, or the address of the proxy"
        proxy = _proxy(self._origin)
        between = f" by the proxy {proxy}" if proxy else ""
        return f"{said}{between}; check the network and try again, models on this machine work without it"

    @property
    def _sends_token(self) -> bool:
        return bool(self._token) and not self._stale

    def _is_stranger(self, response: httpx.Response) -> bool:
        """Whether the hub refuses the token itself: what is gated or not there has a code."""
        refused = response.status_code == httpx.codes.UNAUTHORIZED
        return refused and self._sends_token and "x-error-code" not in response.headers

    @property
    def host(self) -> str:
        """The hub's name as people know it."""
        return self._origin[1]

    def close(self) -> None:
        """Give back every connection."""
        if self._http is not None:
            self._http.close()

    def _client(self) -> httpx.Client:
        """Made for the first request: what the environment says of proxies may be past use."""
        if self._offline:
            raise HubError(
                "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set, so nothing is asked of the network; "
                "unset it to search and download"
            )
        with self._making:
            if self._http is None:
                self._http = _client(self._timeout)
            return self._http

    def _terms(self, repo: str) -> str:
        opened = f"open {self.page(repo)}, accept the terms there"
        if self._stale:
            return (
                f"{repo} is gated and {self.host} does not know the kept token; {opened} and give "
                "another one with: slipstream models token"
            )
        if self._token:
            return f"{repo} is gated and the kept token has no access yet; {opened} and try again"
        return f"{repo} is gated; {opened} and give a token with: slipstream models token"

    def _redirected(self, url: httpx.URL, location: str) -> httpx.URL:
        try:
            target = url.join(location)
        except httpx.InvalidURL as error:
            raise HubError(f"{self.host} redirects to an address that cannot be read") from error
        if _origin(target) == self._origin:
            return target
        trusted = target.scheme == "https" or self._origin[0] == target.scheme
        if not trusted or (_is_local(target.host) and not _is_local(self._origin[1])):
            raise HubError(f"{self.host} redirects to {target.host}, which is not safe to follow")
        return target


def asked_to_wait(response: httpx.Response) -> float:
    """Seconds until the next try, as the server says in one of three ways; 0 where it does not."""
    text = response.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text)
    if text:
        try:
            until = parsedate_to_datetime(text)
        except ValueError:
            return 0.0
        return max(0.0, until.timestamp() - time.time())
    found = RESET.search(response.headers.get("ratelimit", ""))
    return (
        float(found[1]) if found and response.status_code == httpx.codes.TOO_MANY_REQUESTS else 0.0
    )


def _client(timeout: httpx.Timeout) -> httpx.Client:
    """Raises HubError where proxies or certificates of the environment cannot be used."""
    try:
        return httpx.Client(timeout=timeout, headers=HEADERS)
    except ImportError as error:
        named = [name for name, proxy in getproxies().items() if proxy.startswith("socks")]
        raise HubError(
            f"{' and '.join(f'{name.upper()}_PROXY' for name in named)} names a SOCKS proxy, which "
            "cannot be used here; name an HTTP proxy, or unset it"
        ) from error
    except OSError as error:
        raise HubError(
            f"what SSL_CERT_FILE or SSL_CERT_DIR or SSLKEYLOGFILE names cannot be read "
            f"({error.strerror or error}); name a file that is there, or unset it"
        ) from error
    except (httpx.InvalidURL, ValueError) as error:
        raise HubError(
            f"HTTP_PROXY, HTTPS_PROXY, ALL_PROXY or NO_PROXY holds an address that cannot be read "
            f"({error}); correct it, NO_PROXY takes names such as localhost,::1"
        ) from error


def _address(endpoint: str) -> httpx.URL:
    try:
        found, why = httpx.URL(endpoint), "it is no address on the web"
    except httpx.InvalidURL as error:
        found, why = httpx.URL(), str(error)
    if found.scheme not in ("http", "https") or not found.host or re.search(r"\s", endpoint):
        raise HubError(
            f"the address of the hub, {endpoint!r}, cannot be read ({why}); correct HF_ENDPOINT"
        )
    return found


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _is_page(response: httpx.Response) -> bool:
    return str(response.headers.get("content-type", "")).startswith("text/html")


def _proxy(origin: tuple[str, str, int | None]) -> str:
    """The host of the proxy that an address is asked through, without its password; or empty."""
    scheme, host, _ = origin
    found = getproxies()
    proxy = "" if proxy_bypass(host) else found.get(scheme) or found.get("all") or ""
    return proxy.rpartition("@")[2].rpartition("//")[2].rstrip("/")


def _is_local(host: str) -> bool:
    """Whether a host is this machine or its network, which a hub has no business to name."""
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    try:
        return not ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        return False


OWNER_ONLY = 0o600


def read_token(settings: Settings) -> str | None:
    """The kept token, else the environment's, else that of a login with ``hf``, else None."""
    try:
        kept = settings.token_file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        kept = ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"the token in {settings.token_file} cannot be read; give it again with: "
            "slipstream models token"
        ) from error
    token = kept or settings.hub_token
    if token and not _can_be_sent(token):
        raise SettingsError(
            f"what {settings.token_file if kept else 'HF_TOKEN'} holds is no token: it has spaces, line "
            "ends or characters outside ASCII; keep the right one with: slipstream models token"
        )
    return token or _login(settings.hub_login)


def _can_be_sent(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token


def has_token(settings: Settings) -> bool:
    """Whether there is one that can be read."""
    try:
        return read_token(settings) is not None
    except SettingsError:  # said when it is needed
        return False


def _login(file: Path | None) -> str | None:
    """Another program's file: one that cannot be read is no token."""
    try:
        found = "" if file is None else file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return found if found and _can_be_sent(found) else None


def keep_token(settings: Settings, token: str) -> None:
    """Store ``token``, or forget the kept one when it is empty; raises SettingsError."""
    token = token.strip("\ufeff \t\r\n")
    if not token:
        settings.token_file.unlink(missing_ok=True)
        return
    if not _can_be_sent(token):
        raise SettingsError("that is not a token: it has spaces or characters outside ASCII")
    try:
        _write(settings.token_file, token)
    except OSError as error:
        raise SettingsError(
            f"the token cannot be kept in {settings.token_file} ({error.strerror}); "
            "check free space and permissions"
        ) from error


def _write(file: Path, token: str) -> None:
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)  # O_EXCL: the mode below counts only for a file made here
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="ascii") as out:
            out.write(f"{token}\n")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
