"""Expected failures of the product; every message is shown to people as it is."""

from collections.abc import Iterable

from app.model_names import did_you_mean

MOST_NAMES = 8  # in one sentence
UNEXPECTED = "something unexpected failed; the log has the details, please try again"


class AppError(Exception):
    """Root of all expected failures outside the engine."""


class WorkerCrashed(AppError):
    """The engine's process ended unexpectedly, during an answer or while it loaded."""


class RequestFailed(AppError):
    """The engine failed on one request unexpectedly; other requests continue."""


class RemoteFailed(AppError):
    """An engine on another machine cannot be reached, refused a request, or broke an answer off.

    ``status``, ``code`` and the seconds after which to ask again are what programs get.
    """

    def __init__(
        self,
        message: str,
        status: int = 502,
        code: str | None = None,
        retry_after: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after


class UnknownModel(AppError):
    """Neither a name that is known nor what else works in that place, which ``also`` says."""

    def __init__(self, name: str, known: Iterable[str], also: str = "") -> None:
        names = [*known]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        listed = f"; known models: {', '.join(names[:MOST_NAMES]) or 'none'}{more}"
        hint = f" ({also} works too)" if also else ""
        super().__init__(
            f"there is no model named {name!r}{did_you_mean(name, names) or listed}{hint}"
        )


class UnknownDrafter(AppError):
    """No drafter of that name exists."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no drafter named {name!r}; choose from {', '.join(known)}")


class UnknownConversation(AppError):
    """History holds no conversation, or no message, of that id."""


class AttachmentRefused(AppError):
    """An attached file is too large or not text."""


class ConversationFileError(AppError):
    """An imported file is not a conversation."""


class PromptFileError(AppError):
    """A file of prompts is missing, unreadable, or not JSON lines with turns."""


class LaneError(AppError):
    """A lane of a benchmark is not written as one."""


class OutputFileError(AppError):
    """A file that a command is asked to write cannot be written."""


class SettingsError(AppError):
    """A setting of the user or of the environment cannot be used."""


class HistoryError(AppError):
    """The history database cannot be opened or written."""


class HubError(AppError):
    """The hub cannot be reached, or its answer cannot be used."""


class UnknownRepository(HubError):
    """The hub has no such repository, or not the files that were asked for."""


class AccessDenied(HubError):
    """The hub requires accepted terms or a token for these files."""


class DownloadFailed(AppError):
    """A download failed; what arrived is kept unless its digest is wrong."""


class ChecksumMismatch(DownloadFailed):
    """A file's digest differs from the one that the hub states."""


class DiskFull(DownloadFailed):
    """The disk has too little space for the rest of the download."""


class ModelNotLoaded(AppError):
    """This needs a model in this machine's memory, and another engine answers."""


class ModelInUse(AppError):
    """A model cannot be removed while something uses it."""
