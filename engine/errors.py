"""Expected failures. The message states what happened, with numbers, and what to do."""

from typing import ClassVar


class EngineError(Exception):
    """Root of all expected failures inside the engine; ``code`` names the kind for programs."""

    code: ClassVar[str] = "generation_failed"


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


class TooLarge(ModelUnusable):
    """Memory does not suffice, as far as is known before loading; a person may try all the same."""


class LayerUnreadable(EngineError):
    """The weights of a layer could not be read while they were needed."""

    code = "layer_unreadable"

    def __init__(self, layer: int, tensor: str, file: str, why: str) -> None:
        super().__init__(
            f"layer {layer} could not be read ({tensor} of {file}): {why}; check the disk, or load "
            "the model again if its files were replaced"
        )
        self.layer = layer


class OutOfMemory(EngineError):
    """The device has too little memory for a pass; sizes in bytes."""

    code = "out_of_memory"

    def __init__(self, needed: int, free: int, total: int, tried: str = "") -> None:
        mib = 2**20
        super().__init__(
            f"the device is out of memory: {needed / mib:.1f} MiB were needed, {free / mib:.1f} of "
            f"{total / mib:.1f} MiB were free{'; ' if tried else ''}{tried}; shorten the "
            "conversation, choose a smaller context or model, or close what else uses the device"
        )
        self.needed, self.free, self.total = needed, free, total


class Aborted(EngineError):
    """A pass ended because it was asked to; some of its rows may be cached."""


class Stuck(EngineError):
    """No token of the vocabulary satisfies the grammar."""

    code = "format_stuck"

    def __init__(self) -> None:
        super().__init__(
            "no token in this model's vocabulary satisfies the grammar at this point; ask for the "
            "format in the prompt and check the answer"
        )


class Ambiguous(InvalidRequest):
    """A grammar takes too much work at some place of a text; ``why`` is llguidance's sentence."""

    code = "format_ambiguous"

    def __init__(self, why: str = "") -> None:
        super().__init__(
            f"the grammar is too ambiguous{': ' if why else ''}{why}; avoid nested repetitions and give "
            "alternatives different first characters, or ask for the format in the prompt and check "
            "the answer"
        )


class NumericalError(EngineError):
    """The model produced logits that are not finite."""

    code = "numerical_error"
