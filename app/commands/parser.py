"""The grammar of the command line: commands, options and the ranges of their values."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from typing_extensions import override

from app.commands.hardware_options import add_doctor, add_plan
from app.placement.dtype import DTYPES
from app.request import ALL_DRAFTERS, AS_TAUGHT, THINKING
from app.settings import Settings
from engine.request import AUTO

ANSWER_TOKENS = 256  # of ``verify`` and ``bench``: enough to tell, short enough to wait for
HEAD_MINUTES = 20.0
GGUF_TYPES = ("f32", "bf16", "f16", "q8_0", "q4_k_m")
LARGEST = 2**31 - 1
BAD_USAGE = 2


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    @override
    def error(self, message: str) -> NoReturn:
        self.exit(BAD_USAGE, f"{self.prog}: {message}\n")


def parser(settings: Settings) -> argparse.ArgumentParser:
    """Everything that can be typed after ``slipstream``."""
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
        "--draft-model",
        metavar="MODEL",
        help="draft model, if not the model's usual one; layers:N: a GGUF file's own first N layers",
    )
    _add_dtype(parser, default=None)
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    parser.add_argument(
        "--no-reading-ahead",
        action="store_true",
        help="read a conversation or a file only once something is asked; spares a battery",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_ask(commands.add_parser("ask", help="answer one question in the terminal"))
    _add_verify(commands.add_parser("verify", help="prove that drafted answers are plain's"))
    _add_bench(commands.add_parser("bench", help="measure drafters against plain decoding"))
    _add_train_head(
        commands.add_parser("train-head", help="train what ends a draft when it will be refused")
    )
    _add_export_gguf(commands.add_parser("export-gguf", help="a model's folder as one GGUF file"))
    add_doctor(commands.add_parser("doctor", help="what this machine has, and what is missing"))
    plan = commands.add_parser("plan", help="how a model would run, here or on another machine")
    _add_model(plan)
    add_plan(plan)
    _add_history(commands.add_parser("history", help="what was measured of the drafters"))
    _add_models(commands.add_parser("models", help="search, download, import, list, remove models"))
    return parser


def _add_model(parser: argparse.ArgumentParser, default: str = argparse.SUPPRESS) -> None:
    """A command's own --model without default, or it would hide the one before the command."""
    parser.add_argument(
        "--model", default=default, help="a name of models.yaml, or a model's folder"
    )


def _add_dtype(parser: argparse.ArgumentParser, default: str | None = argparse.SUPPRESS) -> None:
    """As with --model, one of a command's own has no default."""
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        default=default,
        help="number format of the weights (default: what suits this machine; GGUF has its own)",
    )


def _add_law(parser: argparse.ArgumentParser) -> None:
    """How tokens are drawn."""
    number = parser.add_argument
    number("--temperature", type=_number(0, 100), default=0.0, help="0 is greedy (default)")
    number("--top-p", type=_number(0, 1), default=1.0, help="keep this share (1 is off)")
    number("--top-k", type=_whole(0), default=0, help="keep this many tokens (0 is off)")
    number("--min-p", type=_number(0, 1), default=0.0, help="least share of the best (0 is off)")


def _add_ask(ask: argparse.ArgumentParser) -> None:
    ask.add_argument("prompt", metavar="TEXT", help="what to ask")
    _add_model(ask)
    _add_dtype(ask)
    ask.add_argument("--draft", metavar="DRAFTER", default=AUTO, help="drafter (default auto)")
    number = ask.add_argument
    _add_law(ask)
    number(
        "--repeat-penalty", type=_number(0.1, 10), default=1.0, help="on what was said (1 is off)"
    )
    number("--max-tokens", type=_whole(1), help="default: what is left of the context")
    number("--seed", type=_whole(0), help="same seed, same tokens")
    number(
        "--format",
        metavar="json|FILE",
        help="answer with a JSON object; of FILE, as the JSON Schema or grammar (.gbnf) in it says",
    )
    number(
        "--thinking",
        choices=THINKING,
        default=AS_TAUGHT,
        help="how much to think before the answer, of models that can be told (default: as they do)",
    )
    number("--json", action="store_true", help="end with one line of JSON")


def _add_verify(verify: argparse.ArgumentParser) -> None:
    _add_model(verify)
    _add_dtype(verify)
    verify.add_argument(
        "--draft", metavar="DRAFTERS", default=ALL_DRAFTERS, help="all, or names with commas"
    )
    _add_prompts(verify)
    _add_answer_tokens(verify)


def _add_bench(bench: argparse.ArgumentParser) -> None:
    option = bench.add_argument
    option(
        "what",
        nargs="?",
        choices=("seeds", "offload", "gguf"),
        help="seeds: show what each built-in method claims, with lanes and prompts of its own; "
        "offload: a model of more than 4 GB in 1 GB of memory; "
        "gguf: GGUF files of several types beside llama-cpp-python",
    )
    option(
        "--folder", type=Path, help="of offload and gguf: keep large models here, or find them here"
    )
    option(
        "--only",
        metavar="CLAIMS",
        help="of seeds: only these claims, of gguf: types; names with commas",
    )
    _add_model(bench)
    _add_prompts(bench, required=False)
    _add_answer_tokens(bench)
    option(
        "--lane",
        action="append",
        metavar="[NAME=]DRAFTER[:KEY=VALUE,...]",
        help="what to measure; again for more. Keys: length, depth, nodes, or a drafter's own",
    )
    option("--repeats", type=_whole(1), default=3, help="runs of a prompt (default %(default)s)")
    option("--concurrent", metavar="B", type=_whole(1), default=1, help="prompts at once")
    _add_law(bench)
    option("--seed", type=_whole(0), help="same seed, same tokens; default: drawn afresh")
    option("--dtype", choices=DTYPES, help=f"default {DTYPES[0]}; a GGUF file has its own")
    option(
        "--inflate",
        metavar="M",
        type=_whole(1),
        default=1,
        help="widen the model M times: the same answers at a larger cost",
    )
    option("--json", metavar="OUT", type=Path, help="also write every number to this file")


def _add_train_head(train: argparse.ArgumentParser) -> None:
    option = train.add_argument
    option("--target", metavar="MODEL", required=True, help="the model that checks drafts")
    option("--draft", metavar="MODEL", required=True, help="the model that drafts")
    _add_prompts(train)
    option("--out", metavar="FOLDER", type=Path, required=True, help="where the head goes")
    option(
        "--minutes",
        type=_number(0, 10_000),
        default=HEAD_MINUTES,
        help="longest training (default %(default)s)",
    )


def _add_export_gguf(export: argparse.ArgumentParser) -> None:
    option = export.add_argument
    option("--model", required=True, help="a name of models.yaml, or a folder of safetensors")
    option("--type", choices=GGUF_TYPES, required=True, help="of the weights")
    option("--out", metavar="FILE", type=Path, required=True, help="the file to write, *.gguf")


def _add_history(history: argparse.ArgumentParser) -> None:
    history.add_argument("--reset", action="store_true", help="forget what was measured")
    history.add_argument("--model", dest="only", metavar="MODEL", help="of this model only")


def _add_models(models: argparse.ArgumentParser) -> None:
    actions = models.add_subparsers(dest="action", metavar="ACTION", required=True)
    search = actions.add_parser("search", help="find models in the catalogue and on the hub")
    search.add_argument("words", metavar="WORDS", nargs="+", help="what the name should hold")
    search.add_argument("--limit", type=_whole(1, 100), default=20, help="default %(default)s")
    pull = actions.add_parser("pull", help="download a model with its draft, or go on with it")
    pull.add_argument("name", metavar="MODEL", help="a name of models.yaml, or OWNER/REPOSITORY")
    pull.add_argument("--file", action="append", metavar="PATTERN", help="these files only")
    pull.add_argument("--no-draft", action="store_true", help="without the model that drafts")
    listing = actions.add_parser("list", help="models on this machine, unfinished ones too")
    listing.add_argument("--available", action="store_true", help="what could be downloaded")
    remove = actions.add_parser("rm", help="remove a model, or an unfinished download")
    remove.add_argument("name", metavar="MODEL")
    bring = actions.add_parser("import", help="use a model that is on a disk already")
    bring.add_argument("path", metavar="PATH", type=Path, help="a folder or a GGUF file")
    bring.add_argument("--name", help="what it is called here; default: the file's own name")
    way = bring.add_mutually_exclusive_group()
    way.add_argument("--copy", action="store_true", help="copy it; the usual way is a link")
    way.add_argument("--reference", action="store_true", help="leave it where it is")
    actions.add_parser("token", help="keep a token for gated models, read from standard input")


def _add_prompts(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    command.add_argument(
        "--prompts", metavar="FILE", type=Path, required=required, help="JSON lines with turns"
    )
    command.add_argument("--limit", type=_whole(1), help="only the first so many lines of FILE")


def _add_answer_tokens(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--max-tokens",
        type=_whole(1),
        default=ANSWER_TOKENS,
        help="longest answer (default %(default)s)",
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
