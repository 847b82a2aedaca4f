"""A person's token for gated models: a file of its own that nobody else can read."""

import os
from pathlib import Path

from app.errors import SettingsError
from app.settings import Settings

OWNER_ONLY = 0o600


def read_token(settings: Settings) -> str | None:
    """The kept token, else the environment's, else None."""
    try:
        kept = settings.token_file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return settings.hub_token
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"the token in {settings.token_file} cannot be read; give it again with: "
            "slipstream models token"
        ) from error
    return kept or settings.hub_token


def keep_token(settings: Settings, token: str) -> None:
    """Store ``token``, or forget the kept one when it is empty; raises SettingsError."""
    token = token.strip()
    if not token:
        settings.token_file.unlink(missing_ok=True)
        return
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise SettingsError("that is not a token: it has spaces or characters outside ASCII")
    _write(settings.token_file, token)


def _write(file: Path, token: str) -> None:
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)  # O_EXCL: the mode below counts only for a file made here
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(descriptor, "w", encoding="ascii") as out:
        out.write(f"{token}\n")
    draft.replace(file)
