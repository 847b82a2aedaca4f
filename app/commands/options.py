"""Command-line arguments as frozen options, checked as far as no model is needed."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.bench.lanes import parse_lane, with_baseline
from app.bench.options import (
    CLAIMS,
    GGUF_KINDS,
    BenchOptions,
    Conditions,
    GgufOptions,
    OffloadOptions,
    SeedsOptions,
    check_output,
)
from app.bench.prompt_files import Turns, read_prompts
from app.commands.hardware_options import HardwareOptions, doctor_options, plan_options
from app.commands.models_options import (
    ImportModel,
    KeepToken,
    ListModels,
    ModelsOptions,
    PullModel,
    RemoveModel,
    SearchModels,
)
from app.commands.parser import parser
from app.errors import LaneError
from app.request import ALL_DRAFTERS, ChatRequest, Message, check_drafter, check_request
from app.settings import Settings
from app.text.formats.format_file import read_format
from engine.request import Penalties, SamplingParams


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
    turn: ChatRequest
    json: bool


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Which drafters to prove on which prompts."""

    settings: Settings
    model: str
    drafters: tuple[str, ...]  # names, or ``all``
    prompts: tuple[Turns, ...]
    max_tokens: int


@dataclass(frozen=True, slots=True)
class TrainHeadOptions:
    """Which pair of models an acceptance head is trained for, on which prompts, how long."""

    settings: Settings
    target: str  # a name of models.yaml, or a folder
    draft: str  # likewise
    prompts: tuple[Turns, ...]
    out: Path  # folder that the head is written to
    minutes: float


@dataclass(frozen=True, slots=True)
class ExportGgufOptions:
    """Which folder of safetensors becomes which GGUF file."""

    settings: Settings
    model: str
    type: str  # of the weights: one of GGUF_TYPES
    out: Path


@dataclass(frozen=True, slots=True)
class HistoryOptions:
    """Show what was measured of the drafters, or forget it."""

    settings: Settings
    reset: bool
    model: str | None  # None is every model


Options = (
    ServeOptions
    | AskOptions
    | VerifyOptions
    | BenchOptions
    | SeedsOptions
    | OffloadOptions
    | GgufOptions
    | TrainHeadOptions
    | ExportGgufOptions
    | HistoryOptions
    | ModelsOptions
    | HardwareOptions
)


def parse(argv: Sequence[str] | None, settings: Settings) -> Options:
    """The options; leaves with exit code 2 on bad usage, raises AppError or InvalidRequest."""
    given = parser(settings).parse_args(argv)
    commands: dict[str, Callable[[argparse.Namespace, Settings], Options]] = {
        "ask": _ask,
        "verify": _verify,
        "bench": _bench,
        "train-head": _train_head,
        "export-gguf": _export_gguf,
        "history": _history,
        "models": _models,
        "doctor": doctor_options,
        "plan": plan_options,
    }
    return commands.get(given.command, _serve)(given, settings)


def parse_drafters(asked: str) -> tuple[str, ...]:
    """``all``, or names with commas between; raises UnknownDrafter."""
    names = tuple(dict.fromkeys(name.strip() for name in asked.split(",")))
    for name in names:
        if name != ALL_DRAFTERS:
            check_drafter(name)
    return names


def _serve(given: argparse.Namespace, settings: Settings) -> ServeOptions:
    return ServeOptions(
        replace(settings, dtype=given.dtype, read_ahead=not given.no_reading_ahead),
        given.host,
        given.port,
        given.model,
        given.draft_model,
        not given.no_browser,
    )


def _ask(given: argparse.Namespace, settings: Settings) -> AskOptions:
    turn = ChatRequest(
        messages=(Message("user", given.prompt),),
        sampling=replace(
            _law(given),
            penalties=None if given.repeat_penalty == 1 else Penalties(repeat=given.repeat_penalty),
        ),
        max_tokens=given.max_tokens,
        drafter=given.draft,
        grammar=None if given.format is None else read_format(given.format),
        thinking=given.thinking,
    )
    check_request(turn)
    return AskOptions(replace(settings, dtype=given.dtype), given.model, turn, given.json)


def _law(given: argparse.Namespace) -> SamplingParams:
    return SamplingParams(
        temperature=given.temperature,
        top_k=given.top_k,
        top_p=given.top_p,
        min_p=given.min_p,
        seed=given.seed,
    )


def _verify(given: argparse.Namespace, settings: Settings) -> VerifyOptions:
    drafters = parse_drafters(given.draft)
    chosen = replace(settings, dtype=given.dtype)
    return VerifyOptions(chosen, given.model, drafters, _prompts(given), given.max_tokens)


def _bench(
    given: argparse.Namespace, settings: Settings
) -> BenchOptions | SeedsOptions | OffloadOptions | GgufOptions:
    if given.what == "seeds":
        return _seeds(given, settings)
    if given.what == "offload":
        return _offload(given, settings)
    if given.what == "gguf":
        return _gguf(given, settings)
    if not given.lane or given.prompts is None:
        raise LaneError("bench needs at least one --lane and the --prompts to measure on")
    lanes = with_baseline([parse_lane(text) for text in given.lane])
    sampling = _law(given)
    sampling.check()
    if given.json is not None:
        check_output(given.json)
    return BenchOptions(
        settings=settings,
        model=given.model,
        prompts=_prompts(given),
        lanes=lanes,
        conditions=Conditions(sampling, given.max_tokens, given.repeats, given.concurrent),
        dtype=given.dtype,
        inflate=given.inflate,
        json=given.json,
    )


def _seeds(given: argparse.Namespace, settings: Settings) -> SeedsOptions:
    only = tuple(name.strip() for name in given.only.split(",")) if given.only else ()
    if unknown := [name for name in only if name not in CLAIMS]:
        raise LaneError(f"there is no claim {unknown[0]!r}; known are {', '.join(CLAIMS)}")
    if given.prompts is not None:
        _prompts(given)  # read now: a bad file is told before anything is measured
    if given.json is not None:
        check_output(given.json)
    return SeedsOptions(settings, given.model, given.prompts, given.json, only)


def _offload(given: argparse.Namespace, settings: Settings) -> OffloadOptions:
    prompts = () if given.prompts is None else _prompts(given)
    if given.json is not None:
        check_output(given.json)
    return OffloadOptions(settings, given.model, prompts, given.json, given.folder)


def _gguf(given: argparse.Namespace, settings: Settings) -> GgufOptions:
    only = tuple(name.strip() for name in given.only.split(",")) if given.only else ()
    if unknown := [name for name in only if name not in GGUF_KINDS]:
        raise LaneError(f"there is no type {unknown[0]!r}; known are {', '.join(GGUF_KINDS)}")
    if given.prompts is not None:
        _prompts(given)  # read now: a bad file is told before anything is measured
    if given.json is not None:
        check_output(given.json)
    return GgufOptions(settings, given.model, given.prompts, given.json, given.folder, only)


def _train_head(given: argparse.Namespace, settings: Settings) -> TrainHeadOptions:
    return TrainHeadOptions(
        settings, given.target, given.draft, _prompts(given), given.out, given.minutes
    )


def _history(given: argparse.Namespace, settings: Settings) -> HistoryOptions:
    return HistoryOptions(settings, given.reset, given.only)


def _models(given: argparse.Namespace, settings: Settings) -> ModelsOptions:
    match given.action:
        case "search":
            return SearchModels(settings, " ".join(given.words), given.limit)
        case "pull":
            return PullModel(settings, given.name, tuple(given.file or ()), not given.no_draft)
        case "rm":
            return RemoveModel(settings, given.name)
        case "import":
            return ImportModel(settings, given.path, given.name, given.copy, given.reference)
        case "token":
            return KeepToken(settings)
        case _:
            return ListModels(settings, given.available)


def _export_gguf(given: argparse.Namespace, settings: Settings) -> ExportGgufOptions:
    return ExportGgufOptions(settings, given.model, given.type, given.out)


def _prompts(given: argparse.Namespace) -> tuple[Turns, ...]:
    return tuple(read_prompts(given.prompts, given.limit))
