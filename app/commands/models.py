"""The command ``models``: search, pull, list, rm, import and token, in the terminal."""

import argparse
import getpass
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from app.commands.arguments import OptionsT, Parse, set_command, whole
from app.errors import DownloadFailed
from app.models.catalog import CatalogEntry, load_catalog
from app.models.downloads.job import Snapshot, State
from app.models.downloads.manifest import Manifest, manifests_for
from app.models.downloads.partial_file import shown_bytes
from app.models.downloads.queue import Downloads, open_downloads, open_hub
from app.models.downloads.staging import Staging, abandoned, unfinished
from app.models.gguf_check import check_gguf, gguf_file
from app.models.hub.client import keep_token
from app.models.hub.search import Found, search
from app.models.library.fit import best, fits
from app.models.library.importing import Import, Way, import_model
from app.models.library.installed import installed_models, remove_model
from app.models.library.other_programs import found_models
from app.placement.machine import known_profile
from app.settings import Settings, expanded

REDRAW = 0.2  # seconds


@dataclass(frozen=True, slots=True)
class SearchModels:
    """Find models whose name holds ``words``, at most ``limit`` of the hub."""

    settings: Settings
    words: str
    limit: int


@dataclass(frozen=True, slots=True)
class PullModel:
    """Download a model of the catalogue, or a repository; ``files`` limits what is fetched."""

    settings: Settings
    name: str
    files: tuple[str, ...]
    draft: bool


@dataclass(frozen=True, slots=True)
class ListModels:
    """Show what is on this machine, or what could be downloaded."""

    settings: Settings
    available: bool


@dataclass(frozen=True, slots=True)
class RemoveModel:
    """Remove a model or an unfinished download."""

    settings: Settings
    name: str


@dataclass(frozen=True, slots=True)
class ImportModel:
    """Use a folder or a GGUF file that is on a disk."""

    settings: Settings
    path: Path
    name: str | None
    way: Way


@dataclass(frozen=True, slots=True)
class KeepToken:
    """Read a token from standard input and keep it; an empty one is forgotten."""

    settings: Settings


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of every action."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    search = actions.add_parser("search", help="find models in the catalogue and on the hub")
    search.add_argument("words", metavar="WORDS", nargs="+", help="words in the model's name")
    search.add_argument(
        "--limit", type=whole(1, 100), default=20, help="most results (default %(default)s)"
    )
    _set_action(
        search, lambda given, s: SearchModels(s, " ".join(given.words), given.limit), _search
    )

    pull = actions.add_parser("pull", help="download a model and its draft model, or resume")
    pull.add_argument("name", metavar="MODEL", help="a name of models.yaml, or OWNER/REPOSITORY")
    pull.add_argument("--file", action="append", metavar="PATTERN", help="only these files")
    pull.add_argument("--no-draft", action="store_true", help="without the draft model")
    _set_action(
        pull,
        lambda given, s: PullModel(s, given.name, tuple(given.file or ()), not given.no_draft),
        _pull,
    )

    listing = actions.add_parser(
        "list", help="list models on this machine and unfinished downloads"
    )
    listing.add_argument("--available", action="store_true", help="list what can be downloaded")
    _set_action(listing, lambda given, s: ListModels(s, given.available), _list)

    remove = actions.add_parser("rm", help="remove a model or an unfinished download")
    remove.add_argument("name", metavar="MODEL")
    _set_action(remove, lambda given, s: RemoveModel(s, given.name), _remove)

    bring = actions.add_parser("import", help="use a model that is on a disk already")
    bring.add_argument("path", metavar="PATH", type=Path, help="a folder or a GGUF file")
    bring.add_argument("--name", help="its name here (default: the file's own name)")
    way = bring.add_mutually_exclusive_group()
    way.add_argument(
        "--copy",
        dest="way",
        action="store_const",
        const=Way.COPY,
        default=Way.LINK,
        help="copy the files (default: link them)",
    )
    way.add_argument(
        "--reference",
        dest="way",
        action="store_const",
        const=Way.REFERENCE,
        help="use the files where they are",
    )
    _set_action(bring, lambda given, s: ImportModel(s, given.path, given.name, given.way), _import)

    token = actions.add_parser(
        "token", help="keep a token for gated models, read from standard input"
    )
    _set_action(token, lambda _, s: KeepToken(s), _keep_token)


def _set_action(
    parser: argparse.ArgumentParser,
    parse: Parse[OptionsT],
    action: Callable[[OptionsT], Iterator[str]],
) -> None:
    """Print the lines of ``action`` as they come."""

    def run(options: OptionsT) -> int:
        for line in action(options):
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        return 0

    set_command(parser, parse, run)


def _search(options: SearchModels) -> Iterator[str]:
    words = options.words.lower().split()
    for entry in load_catalog(options.settings):
        text = f"{entry.name} {entry.repo or ''}".lower()
        if entry.repo is not None and all(word in text for word in words):
            yield _catalogue_line(entry)
    with closing(open_hub(options.settings)) as hub:
        found = search(hub, options.words, options.limit)
    if not found:
        yield f"{hub.host} has no text model that matches {options.words!r} and can be run here."
    yield from map(_found_line, found)


def _pull(options: PullModel) -> Iterator[str]:
    """Download every manifest; raises DownloadFailed with the reasons if any fails."""
    hub = open_hub(options.settings)
    with closing(open_downloads(options.settings, hub)) as downloads:
        orders = _orders(options, downloads)
        yield from (order.describe() for order in orders)
        downloads.add(orders)
        names = [order.name for order in orders]
        try:
            _watch(downloads, names)
        except KeyboardInterrupt:
            sys.stderr.write(
                "slipstream: stopped; what arrived is kept, the same command resumes the download\n"
            )
            raise
        ended = [_named(downloads.snapshots(), name) for name in names]
    for snapshot in ended:
        if snapshot.state is State.DONE:
            yield f"{snapshot.name} is ready: slipstream --model {snapshot.name}"
    if errors := [snapshot.error for snapshot in ended if snapshot.error]:
        raise DownloadFailed("; ".join(errors))


def _orders(options: PullModel, downloads: Downloads) -> Sequence[Manifest]:
    """Resume an unfinished download at its own commit; otherwise ask the hub."""
    catalog = load_catalog(options.settings)
    unfinished_ones = {order.name: order for order in unfinished(options.settings.models_folder)}
    if options.files or options.name not in unfinished_ones:
        orders = manifests_for(downloads.hub, catalog, options.name, options.files)
        return orders if options.draft else orders[:1]
    entries = {entry.name: entry for entry in catalog}
    draft = entries.get(entries[options.name].draft or "") if options.name in entries else None
    if draft is None or draft.folder is not None or not options.draft:
        return [unfinished_ones[options.name]]
    rest = (
        [unfinished_ones[draft.name]]
        if draft.name in unfinished_ones
        else manifests_for(downloads.hub, catalog, draft.name)
    )
    return [unfinished_ones[options.name], *rest]


def _watch(downloads: Downloads, names: Sequence[str]) -> None:
    """Wait; show progress bars if standard error is a terminal."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        bars = {name: progress.add_task(name, total=None) for name in names}
        while not downloads.wait(REDRAW):
            _draw(progress, bars, downloads.snapshots())
        _draw(progress, bars, downloads.snapshots())


def _draw(progress: Progress, bars: dict[str, TaskID], snapshots: Iterable[Snapshot]) -> None:
    for snapshot in snapshots:
        if snapshot.name in bars:
            shown = snapshot.name if snapshot.state is State.DOWNLOADING else f"{snapshot.name} ({snapshot.state})"  # fmt: skip
            progress.update(
                bars[snapshot.name],
                description=shown,
                completed=snapshot.done,
                total=snapshot.total,
            )


def _named(snapshots: Iterable[Snapshot], name: str) -> Snapshot:
    return next(snapshot for snapshot in snapshots if snapshot.name == name)


def _list(options: ListModels) -> Iterator[str]:
    settings = options.settings
    if options.available:
        yield from _available(settings)
        return
    here = installed_models(settings)
    for model in here:
        kind = "bundled" if model.bundled else f"frees {shown_bytes(model.frees)}"
        place = f"used at {model.entry.folder}" if model.reference else kind
        yield f"{model.entry.name:<36} {shown_bytes(model.size):>9}  {place}"
    for order in unfinished(settings.models_folder):
        rest = Staging(settings.models_folder, order.name).remaining(order)
        yield (
            f"{order.name:<36} {shown_bytes(order.total - rest):>9}  of {shown_bytes(order.total)}; "
            f"resume with: slipstream models pull {order.name}"
        )
    for left in abandoned(settings.models_folder):
        yield (
            f"{left.name:<36} {shown_bytes(left.size()):>9}  of an import that was stopped; remove it "
            f"with: slipstream models rm {left.name}"
        )
    folders = [model.entry.folder for model in here if model.entry.folder is not None]
    for other in found_models(settings.others, folders):
        yield (
            f"{other.name:<36} {shown_bytes(other.size):>9}  in {other.program}; use it with: "
            f"slipstream models import {other.path} --name {other.name}"
        )


def _available(settings: Settings) -> Iterator[str]:
    """With the drafter that each one would get here, and where its weights would be."""
    offered = fits(load_catalog(settings), known_profile(settings))
    chosen = best(offered)
    for fit in offered:
        yield _catalogue_line(fit.entry)
        mode = f"{fit.planned.drafter}: " if fit.planned else ""
        first = "best for this machine; " if fit is chosen else ""
        yield f"{'':<36} {first}{mode}{fit.where}"


def _remove(options: RemoveModel) -> Iterator[str]:
    removed = remove_model(options.settings, options.name)
    yield f"{removed.name} is removed; {shown_bytes(removed.freed)} are free again."
    if removed.idle_draft is not None:
        yield (
            f"No other model here uses the draft model {removed.idle_draft}; remove it with: "
            f"slipstream models rm {removed.idle_draft}"
        )


def _import(options: ImportModel) -> Iterator[str]:
    place = gguf_file(expanded(options.path).absolute())
    if place is not None:
        check_gguf(options.settings, place)
    name = import_model(options.settings, Import(options.path, options.name, options.way))
    yield f"{name} is ready: slipstream --model {name}"


def _keep_token(options: KeepToken) -> Iterator[str]:
    """Read from standard input, never from an argument, which every process can see."""
    hidden = sys.stdin.isatty()
    token = (
        getpass.getpass("Token (empty: forget the stored one): ")
        if hidden
        else sys.stdin.readline()
    )
    keep_token(options.settings, token)
    kept = (
        f"kept in {options.settings.token_file}, readable by you only"
        if token.strip()
        else "forgotten"
    )
    yield f"The token is {kept}."


def _catalogue_line(entry: CatalogEntry) -> str:
    gated = ", gated" if entry.gated else ""
    size = shown_bytes(entry.size or 0)
    return f"{entry.name:<36} {size:>9}  {entry.repo} ({entry.licence}{gated})"


def _found_line(found: Found) -> str:
    size = "GGUF" if found.gguf else "-" if found.size is None else shown_bytes(found.size)
    gated = ", gated" if found.gated else ""
    return f"{found.repo:<36} {size:>9}  {found.downloads} downloads ({found.licence or 'licence unknown'}{gated})"
