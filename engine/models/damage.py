"""What is said of weights that give no numbers, and by which files they are known."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from engine.errors import NumericalError
from engine.request import ModelSpec

P = ParamSpec("P")
R = TypeVar("R")


def damage(spec: ModelSpec) -> str:
    """The sentence for people: which weights, and what to do about them."""
    remedy = "get the model again"
    if spec.dtype == "float16":
        remedy = "float16 may be too narrow for this model, choose bfloat16"
    return (
        f"the weights in {spec.folder} give logits that are not finite numbers, from which no token "
        f"can be taken; {remedy}"
    )


def naming_files(judge: Callable[P, R], spec: ModelSpec) -> Callable[P, R]:
    """``judge``, whose NumericalError names the files of ``spec``."""

    @wraps(judge)
    def named(*given: P.args, **options: P.kwargs) -> R:
        try:
            return judge(*given, **options)
        except NumericalError as error:
            raise NumericalError(damage(spec)) from error

    return named
