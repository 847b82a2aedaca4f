"""What is said of weights that give no numbers, and by which files they are known."""

from engine.request import ModelSpec


def damage(spec: ModelSpec) -> str:
    """The sentence for people: which weights, and what to do about them."""
    remedy = "get the model again"
    if spec.dtype == "float16":
        remedy = "float16 may be too narrow for this model, choose bfloat16"
    return (
        f"the weights in {spec.folder} give logits that are not finite numbers, from which no token "
        f"can be taken; {remedy}"
    )
