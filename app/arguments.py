"""Command-line arguments as frozen options, checked as far as no model is needed."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

from app.prompts import Turns, read_prompts
from app.settings import Settings
from app.turn import AUTO, Message, Turn, check_drafter, check_turn
from engine.request import SamplingParams

ALL_DRAFTERS = "all"
VERIFIED_TOKENS = 256
LARGEST = 2**31 - 1
BAD_USAGE = 2


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How the page and the endpoint are started."""

    settings: Settings
    host: str
    port: int
    model: str
    draft_model: str | None  # None is the catalogue's choice
    browser: bool


@dataclass(frozen=True, slots=True)
class AskOptions:
    """One question, answered in the terminal."""

    settings: Settings
    model: str
    turn: Turn
    json: bool


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Which drafters to prove on which prompts."""

    settings: Settings
    model: str
    drafters: tuple[str, ...]  # names, or ``all``
    prompts: tuple[Turns, ...]
    max_tokens: int


Options = ServeOptions | AskOptions | VerifyOptions


def parse(argv: Sequence[str] | None, settings: Settings) -> Options:
    """The options; leaves with exit code 2 on bad usage, raises AppError or InvalidRequest."""
    given = _parser(settings).parse_args(argv)
    if given.command == "ask":
        turn = _turn(given)
        check_turn(turn)
        return AskOptions(settings, given.model, turn, given.json)
    if given.command == "verify":
        drafters = parse_drafters(given.draft)
        prompts = tuple(read_prompts(given.prompts, given.limit))
        return VerifyOptions(settings, given.model, drafters, prompts, given.max_tokens)
    return ServeOptions(
        settings, given.host, given.port, given.model, given.draft_model, not given.no_browser
    )


def parse_drafters(asked: str) -> tuple[str, ...]:
    """``all``, or names with commas between; raises UnknownDrafter."""
    names = tuple(dict.fromkeys(name.strip() for name in asked.split(",")))
    for name in names:
        if name != ALL_DRAFTERS:
            check_drafter(name)
    return names


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"{self.prog}: {message}\n")


def _parser(settings: Settings) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="slipstream",
        allow_abbrev=False,
        description="A local assistant that answers faster without changing the answer. "
        "Without a command it opens the chat page and serves an OpenAI-style endpoint.",
    )
    parser.add_argument("--host", default=settings.host, help="address (default %(default)s)")
    parser.add_argument(
        "--port", type=_whole(0, 65535), default=settings.port, help="port (default %(default)s)"
    )
    _add_model(parser, settings.model)
    parser.add_argument(
        "--draft-model", metavar="MODEL", help="draft model, if not the model's usual one"
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_ask(commands.add_parser("ask", help="answer one question in the terminal"))
    _add_verify(commands.add_parser("verify", help="prove that drafted answers are plain's"))
    return parser


def _add_model(parser: argparse.ArgumentParser, default: str = argparse.SUPPRESS) -> None:
    """A command's own --model without default, or it would hide the one before the command."""
    parser.add_argument(
        "--model", default=default, help="a name of models.yaml, or a model's folder"
    )


def _add_ask(ask: argparse.ArgumentParser) -> None:
    ask.add_argument("prompt", metavar="TEXT", help="what to ask")
    _add_model(ask)
    ask.add_argument("--draft", metavar="DRAFTER", default=AUTO, help="drafter (default auto)")
    number = ask.add_argument
    number("--temperature", type=_number(0, 100), default=0.0, help="0 is greedy (default)")
    number("--top-p", type=_number(0, 1), default=1.0, help="keep this share (1 is off)")
    number("--top-k", type=_whole(0), default=0, help="keep this many tokens (0 is off)")
    number("--min-p", type=_number(0, 1), default=0.0, help="least share of the best (0 is off)")
    number("--max-tokens", type=_whole(1), help="default: what is left of the context")
    number("--seed", type=_whole(0), help="same seed, same tokens")
    number("--json", action="store_true", help="end with one line of JSON")


def _add_verify(verify: argparse.ArgumentParser) -> None:
    _add_model(verify)
    verify.add_argument(
        "--draft", metavar="DRAFTERS", default=ALL_DRAFTERS, help="all, or names with commas"
    )
    verify.add_argument(
        "--prompts", metavar="FILE", type=Path, required=True, help="JSON lines with turns"
    )
    verify.add_argument(
        "--max-tokens",
        type=_whole(1),
        default=VERIFIED_TOKENS,
        help="longest answer (default %(default)s)",
    )
    verify.add_argument("--limit", type=_whole(1), help="only the first so many lines of FILE")


def _turn(given: argparse.Namespace) -> Turn:
    sampling = SamplingParams(
        temperature=given.temperature,
        top_k=given.top_k,
        top_p=given.top_p,
        min_p=given.min_p,
        seed=given.seed,
    )
    return Turn(
        messages=(Message("user", given.prompt),),
        sampling=sampling,
        max_tokens=given.max_tokens,
        drafter=given.draft,
    )


def _number(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:  # nan is not
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return value

    return number


def _whole(least: int, most: int = LARGEST) -> Callable[[str], int]:
    def whole(text: str) -> int:
        value = int(text) if text.isdecimal() and len(text) < 20 else -1
        if not least <= value <= most:
            reach = f"from {least}" + (f" to {most}" if most < LARGEST else "")
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {reach}")
        return value

    return whole
