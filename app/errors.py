"""Expected failures of the product; every message is shown to people as it is."""

from collections.abc import Iterable

UNEXPECTED = "something unexpected failed; the log has the details, please try again"


class AppError(Exception):
    """Root of all expected failures outside the engine."""


class WorkerCrashed(AppError):
    """The engine's process ended by itself, in the middle of an answer or while it loaded."""


class RequestFailed(AppError):
    """The engine failed on one request in a way that nothing expected; it goes on with others."""


class UnknownModel(AppError):
    """Neither a name of the catalogue nor a folder with a model."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(
            f"there is no model named {name!r}; known models: {', '.join(known) or 'none'} "
            "(the path of a folder with config.json and *.safetensors works too)"
        )
        self.name = name


class UnknownDrafter(AppError):
    """No drafter of that name exists."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"there is no drafter named {name!r}; choose from {', '.join(known)}")
        self.name = name


class UnknownConversation(AppError):
    """History holds no conversation, or no message, of that id."""


class AttachmentRefused(AppError):
    """A file that was to be put in front of a message is too large, or no text."""


class ConversationFileError(AppError):
    """A file that was to become a conversation is not one."""


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
    """The hub cannot be reached, or answers what cannot be used."""


class UnknownRepository(HubError):
    """The hub has no such repository, or not the files that were asked for."""


class AccessDenied(HubError):
    """The hub wants a person's agreement, or a token, before it gives these files."""


class DownloadFailed(AppError):
    """A download ended without its file; what arrived is kept unless it is known to be wrong."""


class ChecksumMismatch(DownloadFailed):
    """What arrived is not what the hub says it holds."""


class DiskFull(DownloadFailed):
    """The disk has too little room for what is still to come."""


class ModelInUse(AppError):
    """A model cannot be removed while something uses it."""
