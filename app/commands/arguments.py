"""What the commands share: argument types with ranges, groups of options, the parser itself."""

import argparse
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from typing_extensions import override

from app.model_names import did_you_mean
from app.settings import DTYPES, Settings
from app.terminal import harmless, write_lines
from app.text.decoding import decoded
from engine.request import SamplingParams

ANSWER_TOKENS = 256  # default of ``verify`` and ``bench``
LARGEST = 2**31 - 1
BAD_USAGE = 2
_PREFIXES = "kmgt"
_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{end}": base ** (power + 1)
    for power, prefix in enumerate(_PREFIXES)
    for end, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_NO_CHOICE = re.compile(r"(argument \S+: )invalid choice: '?(.*?)'? \(choose from (.*)\)")
_BESIDE_COMMANDS = (
    "--help",
    "--version",
    "models list",
    "models pull",
    "models rm",
    "models import",
)
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)")


class Options(Protocol):
    """The arguments of one command, checked."""

    @property
    def settings(self) -> Settings:
        """The settings, with the command's own flags applied."""
        ...


OptionsT = TypeVar("OptionsT", bound=Options)
Parse = Callable[[argparse.Namespace, Settings], OptionsT]
Run = Callable[[OptionsT], int]


class CommandParser(argparse.ArgumentParser):
    """A parser that reports a mistake in one line and declares its arguments when it is used."""

    declare: Callable[["CommandParser"], None] | None = None

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, harmless(f"{self.prog}: {_closer(message)}\n"))

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        declare, self.declare = self.declare, None
        if declare is not None:
            declare(self)
        return super().parse_known_args(args, namespace)


def _closer(message: str) -> str:
    """What argparse says of a choice that there is none of, shorter where one comes close to it."""
    found = _NO_CHOICE.fullmatch(message)
    if found is None:
        return message
    more = _BESIDE_COMMANDS if found[1] == "argument COMMAND: " else ()
    meant = did_you_mean(found[2], [*more, *re.findall(r"[\w-]+", found[3])])
    return f"{found[1]}there is no {found[2]!r}{meant}" if meant else message


def set_command(
    parser: argparse.ArgumentParser, parse: Parse[OptionsT], run: Run[OptionsT]
) -> None:
    """Make ``parser`` yield the options of ``parse``, for ``run`` to act on."""
    parser.set_defaults(parse=parse, run=run)


Action = Callable[[Settings, argparse.Namespace], Iterator[str]]  # yields lines to print


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """One action of a command that has several, with its arguments."""

    settings: Settings
    action: Action
    given: argparse.Namespace


def set_action(parser: argparse.ArgumentParser, action: Action) -> None:
    """Make ``parser`` print the lines of an action as they come."""
    set_command(parser, lambda given, settings: ActionOptions(settings, action, given), _print)


def _print(options: ActionOptions) -> int:
    write_lines(options.action(options.settings, options.given))
    return 0


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def add_model(parser: argparse.ArgumentParser, default: str = argparse.SUPPRESS) -> None:
    """--model; a command has no default of its own, which would hide a --model before it."""
    parser.add_argument(
        "--model", default=default, help="a name of models.yaml, or the path of a model"
    )


def add_dtype(parser: argparse.ArgumentParser, default: str | None = argparse.SUPPRESS) -> None:
    """--dtype; a command has no default of its own, as with --model."""
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=default,
        help="number format of the weights (default: the fastest here that fits; GGUF has its own)",
    )


def add_loading(parser: argparse.ArgumentParser) -> None:
    """Options of a command that loads a model to talk with; ``with_loading`` reads them."""
    add = parser.add_argument
    add(
        "--chat-template",
        metavar="NAME|FILE",
        default=argparse.SUPPRESS,
        help="chat template for a model that brings none, or a broken one (such as chatml)",
    )
    add(
        "--context",
        metavar="TOKENS",
        type=whole(256),
        default=argparse.SUPPRESS,
        help="longest conversation (default: what memory allows)",
    )
    add(
        "--load-anyway",
        action="store_true",
        default=argparse.SUPPRESS,
        help="load a model also where memory seems too small for it",
    )


def with_loading(given: argparse.Namespace, settings: Settings) -> Settings:
    """``settings`` with what was given of the options of ``add_loading``."""
    names = ("chat_template", "context", "load_anyway")
    return replace(settings, **{name: getattr(given, name) for name in names if name in given})


def add_sampling(parser: argparse.ArgumentParser, seed_help: str, usual: str = "0") -> None:
    """The options that ``sampling`` reads; ``usual`` says what is the temperature without one."""
    add = parser.add_argument
    add("--temperature", type=number(0, 100), help=f"0 is greedy (default: {usual})")
    add("--top-p", type=number(0, 1), help="sample from this probability mass (1: all)")
    add("--top-k", type=whole(0), help="sample from this many tokens (0: all)")
    add("--min-p", type=number(0, 1), help="least share of the best token (0: off)")
    add("--seed", type=whole(0), help=seed_help)


def sampling(given: argparse.Namespace) -> SamplingParams:
    """The sampling parameters that were given; the others are off."""
    names = ("temperature", "top_k", "top_p", "min_p", "seed")
    found = {name: getattr(given, name) for name in names}
    return SamplingParams(**{name: value for name, value in found.items() if value is not None})


def add_prompts(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """--prompts and --limit, which ``read_prompts`` takes."""
    parser.add_argument(
        "--prompts", metavar="FILE", type=Path, required=required, help="JSON lines with 'turns'"
    )
    parser.add_argument("--limit", type=whole(1), help="use only the first LIMIT lines of FILE")


def add_answer_tokens(parser: argparse.ArgumentParser) -> None:
    """--max-tokens of a command that measures."""
    parser.add_argument(
        "--max-tokens",
        type=whole(1),
        default=ANSWER_TOKENS,
        help="longest answer (default %(default)s)",
    )


def words(text: str) -> str:
    """An argument type: what a person says, in any encoding, unlike a path, which is bytes."""
    if text.isascii() or text.encode(errors="ignore").decode() == text:
        return text
    try:
        found = decoded(os.fsencode(text))
    except UnicodeEncodeError:  # half a character
        found = None
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no text in an encoding that is known here")
    return found


def number(least: float, most: float) -> Callable[[str], float]:
    """An argument type: a finite number in a range."""

    def convert(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:  # also false for nan
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return value

    return convert


def whole(least: int, most: int = LARGEST) -> Callable[[str], int]:
    """An argument type: a whole number in a range."""

    def convert(text: str) -> int:
        value = int(text) if text.isdecimal() and len(text) < 20 else -1
        if not least <= value <= most:
            limits = f"from {least}" + (f" to {most}" if most < LARGEST else "")
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number {limits}")
        return value

    return convert


def memory(text: str) -> int:
    """An argument type: bytes, written as 8GiB, 512MiB, 16GB or 8g."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory such as 8GiB")
    return int(float(found[1]) * _UNITS[found[2]])
