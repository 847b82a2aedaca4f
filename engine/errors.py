"""Expected failures. The message states what happened, with numbers, and what to do."""


class EngineError(Exception):
    """Root of all expected failures inside the engine."""


class InvalidRequest(EngineError):
    """The request itself cannot be served: empty prompt, bad sampling value, unknown drafter."""


class ContextOverflow(InvalidRequest):
    """The prompt does not fit the model's context."""

    def __init__(self, needed: int, holds: int) -> None:
        super().__init__(
            f"the prompt needs {needed} tokens, the model holds {holds} (one is kept for the "
            "answer); shorten it or choose a model with a longer context"
        )
        self.needed, self.holds = needed, holds


class ModelUnusable(EngineError):
    """A model folder cannot be loaded: missing files, unknown family, damaged weights."""


class NumericalError(EngineError):
    """The model produced logits that are not finite."""
