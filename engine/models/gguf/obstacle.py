"""What keeps a GGUF model from running here, asked of a loaded file and of a shape before a download."""


def obstacle(*, causal: bool, keeps_state: bool) -> str:
    """Why such a model does not run; empty where it does."""
    if not causal:
        return "it is no causal language model"
    return "its recurrent layers cannot forget a refused draft" if keeps_state else ""
