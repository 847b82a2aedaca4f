"""How a server opens: which keys it asks for, and its TLS."""

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from app.errors import SettingsError
from app.keys.key_file import MAKE_ONE, Keys
from app.settings import Settings


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate, with those that it builds on, and its key: files in PEM format."""

    certificate: Path
    key: Path

    @classmethod
    def of(cls, settings: Settings) -> "Tls | None":
        """The files that the settings name, if any; raises SettingsError where they do not work."""
        certificate, key = settings.tls_cert, settings.tls_key
        if certificate is None and key is None:
            return None
        if certificate is None or key is None:
            raise SettingsError("TLS needs two files; give --tls-cert and --tls-key")
        for file in (certificate, key):
            if not file.is_file():
                raise SettingsError(f"{file} is no file; give a PEM file for TLS")
        try:
            # a key with a password would ask for it on the terminal
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                certificate, key, lambda: ""
            )
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            why = getattr(error, "reason", None) or error.__class__.__name__
            raise SettingsError(
                f"{certificate} and {key} cannot be used for TLS ({why}); give a certificate and its "
                "key without a password, both as PEM"
            ) from error
        return cls(certificate, key)


@dataclass(frozen=True, slots=True)
class Opening:
    """To whom a server opens."""

    local: bool  # only this machine reaches it
    keys: Keys | None  # None: no key is asked for
    tls: Tls | None

    @classmethod
    def of(cls, host: str, settings: Settings) -> "Opening":
        """At the address ``host``; raises SettingsError where a key is needed and there is none."""
        return cls(is_local(host), keys_asked(host, settings), Tls.of(settings))

    @property
    def warning(self) -> str:
        """What a person should know who serves other machines in clear text; mostly empty."""
        if self.local or self.tls is not None:
            return ""
        return (
            "without TLS, who can read this network can read keys and conversations; "
            "give --tls-cert and --tls-key"
        )


def is_local(host: str) -> bool:
    """Whether only this machine reaches the address ``host``."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def keys_asked(host: str, settings: Settings) -> Keys | None:
    """The keys of which a server at ``host`` asks for one; None: it asks for none.

    Raises SettingsError where it must ask and there are none.
    """
    local = is_local(host)
    if local and not settings.require_key:
        return None
    keys = Keys(settings.keys_file)
    if not keys.all():
        why = "require_key is set" if local else f"{host!r} may be reached from other machines"
        raise SettingsError(f"{why}, so an API key is needed and there is none; {MAKE_ONE}")
    return keys
