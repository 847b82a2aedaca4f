"""The command ``export``: how to start an engine made for many machines with what was learnt here."""

import argparse
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path

from app.commands.arguments import add_json, add_model, memory, set_command, whole
from app.export import ENGINES
from app.export.drafts import asked_for, drafts_of
from app.export.serving import (
    SHARE,
    Command,
    Draft,
    ExportRefused,
    Kind,
    Serving,
    Weights,
    fitting,
    split,
)
from app.history.records import Remembered
from app.history.store import History
from app.models.catalog import CatalogEntry, find_entry, load_catalog, resolve
from app.models.library.fit import by_shape
from app.placement import plans
from app.placement.machine import known_profile
from app.settings import Settings
from app.terminal import write_lines
from engine.decoder.config import read_config
from engine.hardware.footprint import Footprint
from engine.hardware.shape import ModelShape, shape_of

AUTO, NONE = "auto", "none"
_MOST = 4096  # GPUs of a machine, and machines
_HEADING = "# for {engine}; on {where}"


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Which model for which engine, on how many machines with how many GPUs each."""

    settings: Settings
    engine: str
    model: str
    gpus: int | None = None  # None: those of this machine, or one
    nodes: int = 1
    memory: int | None = None  # bytes of one GPU; None: of this machine's, if it has one
    context: int | None = None
    sessions: int | None = None
    draft: str = AUTO
    json: bool = False


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    option = parser.add_argument
    option("--engine", choices=(*ENGINES,), required=True, help="the engine to start")
    add_model(parser)
    option("--gpus", metavar="N", type=whole(0, _MOST), help="GPUs of each machine")
    option("--nodes", metavar="N", type=whole(1, _MOST), default=1, help="machines (default: 1)")
    option("--gpu-memory", metavar="SIZE", type=memory, help="of one GPU, e.g. 80GiB")
    option("--context", metavar="TOKENS", type=whole(1, 2**24), help="longest conversation")
    option("--sessions", metavar="N", type=whole(1, 2**16), help="conversations at a time")
    option(
        "--draft",
        choices=(AUTO, NONE, *(str(kind) for kind in Kind)),
        default=AUTO,
        help="kind of drafts (default: the model's own, or what was best here)",
    )
    add_json(parser)
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> ExportOptions:
    return ExportOptions(
        settings,
        given.engine,
        given.model,
        given.gpus,
        given.nodes,
        given.gpu_memory,
        given.context,
        given.sessions,
        given.draft,
        given.json,
    )


def run(options: ExportOptions) -> int:
    """Print the command of each machine, and what to know of it."""
    found = exported(options)
    if options.json:
        write_lines([json.dumps(asdict(found))])
    else:
        write_lines(shown(found))
    return 0


def shown(found: Command) -> Iterator[str]:
    """The commands, each after a comment that says where it runs; then the notes as comments."""
    for rank, line in enumerate(found.lines):
        where = "this machine" if len(found.lines) == 1 else f"machine {rank + 1}"
        yield _HEADING.format(engine=found.engine, where=where)
        yield shlex.join(line)
    yield from (f"# {note}" for note in found.notes)


def exported(options: ExportOptions) -> Command:
    """The command with its notes; raises ExportRefused, UnknownModel, ModelUnusable."""
    settings = options.settings
    catalog = load_catalog(settings)
    entry = find_entry(catalog, options.model)
    paired = next((one for one in catalog if one.name == entry.draft), None)
    shape, form = _sizes(settings, entry)
    gpus, size = _hardware(options)
    serving = Serving(
        name=entry.name,
        weights=weights_of(entry),
        context=options.context or (form.context if form else entry.context) or 4096,
        gpus=gpus,
        nodes=options.nodes,
        split=split(shape, gpus, options.nodes),
        sessions=options.sessions,
    )
    serving, notes = _planned(serving, form, size)
    drafts = _drafts(options, entry, weights_of(paired) if paired else None)
    module, _, name = ENGINES[options.engine].partition(":")
    made: Command = getattr(import_module(module), name)(replace(serving, drafts=drafts))
    return replace(made, notes=(*notes, *made.notes))


def _drafts(
    options: ExportOptions, entry: CatalogEntry, paired: Weights | None
) -> tuple[Draft, ...]:
    if options.draft == NONE:
        return ()
    known = tuple(drafts_of(entry, paired, _measured(options.settings, entry.name)))
    return known if options.draft == AUTO else (asked_for(Kind(options.draft), known),)


def weights_of(entry: CatalogEntry) -> Weights:
    """Where an engine gets a model: from the hub, so that every machine can; else from here."""
    if entry.repo is not None:
        file = next((name for name in entry.files if name.endswith(".gguf")), "")
        return Weights(entry.repo, file)
    if entry.folder is None:
        raise ExportRefused(
            f"{entry.name} is in no repository and not on this machine; set-up fetches it: "
            "python3 -m app"
        )
    return Weights(str(entry.folder), local=True)


def _sizes(settings: Settings, entry: CatalogEntry) -> tuple[ModelShape | None, Footprint | None]:
    """What is known of a model: its shape, and what it takes on a GPU."""
    if entry.shape is not None:
        return entry.shape, by_shape(entry, None).forms[0]
    if entry.folder is None:
        return None, None
    spec = resolve(settings, entry.name if entry.repo or entry.package else str(entry.folder))
    place = Path(spec.folder)
    shape = shape_of(read_config(place), str(place)) if place.is_dir() else None
    return shape, plans.candidates(spec).forms[0]


def _hardware(options: ExportOptions) -> tuple[int, int | None]:
    """GPUs of each machine, and bytes of one where they are known."""
    here = known_profile(options.settings).gpus
    gpus = options.gpus if options.gpus is not None else max(1, len(here))
    return gpus, options.memory or (here[0].total if here else None)


def _planned(
    serving: Serving, form: Footprint | None, size: int | None
) -> tuple[Serving, list[str]]:
    """With a context and a number of conversations that fit; raises ExportRefused."""
    if not serving.gpus:
        return serving, []
    if form is None:
        return serving, ["memory: not checked, as the catalogue has no shape of this model"]
    if size is None:
        return serving, ["memory: not checked; --gpu-memory SIZE says what one GPU has"]
    total = serving.gpus * serving.nodes
    context, sessions = fitting(form, serving.context, total, size)
    notes = []
    if context < serving.context:
        notes.append(f"context: {context} of {serving.context} tokens fit")
    if (serving.sessions or 1) > sessions:
        notes.append(
            f"conversations: {sessions} of {serving.sessions} fit at their longest; "
            "others wait or start again"
        )
    return replace(serving, context=context, memory=SHARE), notes


def _measured(settings: Settings, model: str) -> list[Remembered]:
    if not settings.database.exists():
        return []
    history = History.open(settings.database)
    try:
        return history.measurements.remembered(model)
    finally:
        history.close()
