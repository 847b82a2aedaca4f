"""What ``ask`` and ``chat`` share: their options, and the assistant that answers."""

import argparse
from dataclasses import replace

from app.chat.assistant import Assistant
from app.chat.loader import Loader
from app.commands.arguments import (
    add_dtype,
    add_loading,
    add_model,
    add_sampling,
    number,
    sampling,
    whole,
    with_loading,
)
from app.request import AS_TAUGHT, SAMPLING, THINKING, ReplyOptions, check_drafter
from app.settings import Settings
from app.terminal import notify, waiting
from engine.request import AUTO


def add_answering(parser: argparse.ArgumentParser) -> None:
    """Options of a command that answers people; ``answering`` reads them."""
    add = parser.add_argument
    add_model(parser)
    add_dtype(parser)
    add_loading(parser)
    add("--draft", metavar="DRAFTER", default=AUTO, help="drafter (default %(default)s)")
    add_sampling(parser, "the same seed gives the same tokens (default: random)", "the model's own")
    add(
        "--repeat-penalty",
        dest="repeat",
        type=number(0.1, 10),
        help="1 is off (default: the model's own)",
    )
    add("--max-tokens", type=whole(1), help="longest answer (default: the rest of the context)")
    add(
        "--thinking",
        choices=THINKING,
        default=AS_TAUGHT,
        help="reasoning effort, for models that support it (default: the model's own)",
    )


def answering(given: argparse.Namespace, settings: Settings) -> tuple[Settings, ReplyOptions]:
    """What the options of ``add_answering`` make of ``settings``, and of an answer.

    Raises UnknownDrafter.
    """
    check_drafter(given.draft)
    wanted = sampling(given)
    reply = ReplyOptions(
        temperature=wanted.temperature,
        max_tokens=given.max_tokens,
        drafter=given.draft,
        seed=wanted.seed,
        top_k=wanted.top_k,
        top_p=wanted.top_p,
        min_p=wanted.min_p,
        repeat=1.0 if given.repeat is None else given.repeat,
        thinking=given.thinking,
        unset=frozenset(name for name in SAMPLING if getattr(given, name) is None),
    )
    return with_loading(given, replace(settings, dtype=given.dtype)), reply


async def opened(settings: Settings, model: str, *, keeps: bool = True) -> Assistant:
    """The assistant with ``model`` loaded; a bar shows how far the load is.

    ``keeps`` is False where no conversation is kept. Raises UnknownModel, ModelUnusable, WorkerCrashed.
    """
    loader = Loader()
    opening = Assistant.open(settings, model, loader=loader, keeps=keeps)
    assistant = await waiting(f"loading {model}", opening, lambda: loader.share)
    notify(assistant.history.notice, *assistant.facts.notes)
    return assistant
