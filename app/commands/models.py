"""The command ``models``: search, pull, list, rm, import and token, in the terminal."""

import argparse
import getpass
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typing_extensions import override

from app.commands.arguments import add_json, set_action, whole, words
from app.errors import DownloadFailed
from app.models.catalog import CatalogEntry, load_catalog
from app.models.downloads.job import Snapshot, State
from app.models.downloads.manifest import Manifest, manifests_for
from app.models.downloads.partial_file import shown_bytes
from app.models.downloads.queue import Downloads, open_downloads, open_hub
from app.models.downloads.staging import Staging, abandoned, unfinished
from app.models.hub.client import keep_token
from app.models.hub.search import Found, search
from app.models.library.fit import best, fits
from app.models.library.importing import Import, Way, add_model, typed_path
from app.models.library.installed import Installed, installed_models, remove_model
from app.models.library.other_programs import found_models
from app.models.library.type_advice import TypeAdvice
from app.placement.machine import known_profile
from app.settings import Settings
from app.terminal import notify

REDRAW = 0.2  # seconds


class _Speed(ProgressColumn):
    """In the units of the sizes next to it; Rich has only powers of ten."""

    @override
    def render(self, task: Task) -> Text:
        return Text(f"{shown_bytes(task.speed)}/s" if task.speed else "", "progress.data.speed")


class Row(NamedTuple):
    """A model in a list; the fields are those of ``--json``."""

    name: str
    bytes: int | None
    about: str
    ready: bool = True
    more: tuple[str, ...] = ()


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of every action."""
    actions = parser.add_subparsers(
        dest="action", metavar="search|pull|list|rm|import|token", required=True
    )
    search = actions.add_parser("search", help="find models in the catalogue and on the hub")
    search.add_argument(
        "words", metavar="WORDS", type=words, nargs="+", help="words in the model's name"
    )
    search.add_argument(
        "--limit", type=whole(1, 100), default=20, help="most results (default %(default)s)"
    )
    add_json(search)
    set_action(search, _search)

    pull = actions.add_parser("pull", help="download a model and its draft model, or resume")
    pull.add_argument(
        "name",
        metavar="MODEL",
        help="a name of models.yaml, OWNER/REPOSITORY[:Q4_K_M], or an address of the hub",
    )
    pull.add_argument(
        "--file", action="append", default=[], metavar="PATTERN", help="only these files"
    )
    pull.add_argument("--no-draft", action="store_true", help="without the draft model")
    set_action(pull, _pull)

    listing = actions.add_parser(
        "list", help="list models on this machine and unfinished downloads"
    )
    listing.add_argument("--available", action="store_true", help="list what can be downloaded")
    add_json(listing)
    set_action(listing, _list)

    remove = actions.add_parser("rm", help="remove a model or an unfinished download")
    remove.add_argument("name", metavar="MODEL")
    set_action(remove, _remove)

    _add_import(actions.add_parser("import", help="use a model that is on a disk already"))

    token = actions.add_parser(
        "token", help="keep a token for gated models, read from standard input"
    )
    set_action(token, _keep_token)


def _add_import(bring: argparse.ArgumentParser) -> None:
    bring.add_argument("path", metavar="PATH", help="a folder or a GGUF file")
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
    set_action(bring, _import)


def _search(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    asked = " ".join(given.words)
    parts = asked.lower().split()
    rows: list[Row] = []
    for entry in load_catalog(settings):
        text = f"{entry.name} {entry.repo or ''}".lower()
        if entry.repo is not None and all(word in text for word in parts):
            rows.append(_catalogue_row(entry))
    with closing(open_hub(settings)) as hub:
        found = search(hub, asked, given.limit)
    if not found:
        notify(f"{hub.host} has no text model that matches {asked!r} and can be run here.")
    yield from _shown([*rows, *map(_found_row, found)], given)


def _pull(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    """Download every manifest; raises DownloadFailed with the reasons if any fails."""
    with closing(open_downloads(settings, open_hub(settings))) as downloads:
        orders = _orders(settings, given, downloads)
        yield from (order.describe() for order in orders)
        downloads.add(orders)
        try:
            ended = _watch(downloads, [order.name for order in orders])
        except KeyboardInterrupt:
            notify(
                "slipstream: stopped; what arrived is kept, the same command resumes the download"
            )
            raise
    for snapshot in ended:
        if snapshot.state is State.DONE:
            yield f"{snapshot.name} is ready: slipstream --model {snapshot.name}"
    if errors := [snapshot.error for snapshot in ended if snapshot.error]:
        raise DownloadFailed("; ".join(errors))


def _orders(
    settings: Settings, given: argparse.Namespace, downloads: Downloads
) -> Sequence[Manifest]:
    """Resume an unfinished download at its own commit; otherwise ask the hub."""
    name, draft = given.name, not given.no_draft
    catalog = load_catalog(settings)
    begun = {order.name: order for order in unfinished(settings.models_folder)}
    if given.file or name not in begun:
        orders = manifests_for(downloads.hub, catalog, name, tuple(given.file))
        return orders if draft else orders[:1]
    entries = {entry.name: entry for entry in catalog}
    drafter = entries.get(entries[name].draft or "") if name in entries else None
    if drafter is None or drafter.folder is not None or not draft:
        return [begun[name]]
    if drafter.name in begun:
        return [begun[name], begun[drafter.name]]
    return [begun[name], *manifests_for(downloads.hub, catalog, drafter.name)]


def _watch(downloads: Downloads, names: Sequence[str]) -> list[Snapshot]:
    """Wait for the end of these; show progress bars if standard error is a terminal."""
    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        _Speed(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        bars = {name: progress.add_task(name, total=None) for name in names}
        while True:
            ended = downloads.wait(REDRAW)
            seen = {one.name: one for one in downloads.snapshots() if one.name in bars}
            for name, one in seen.items():
                state = "" if one.state is State.DOWNLOADING else f" ({one.state})"
                progress.update(
                    bars[name], description=name + state, completed=one.done, total=one.total
                )
            if ended:
                return [seen[name] for name in names]


def _list(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    if given.available:
        yield from _available(settings, given)
    else:
        yield from _shown(_here(settings), given)


def _here(settings: Settings) -> Iterator[Row]:
    here = installed_models(settings)
    for model in here:
        yield Row(model.entry.name, model.size, _kept(model))
    for order in unfinished(settings.models_folder):
        done = order.total - Staging(settings.models_folder, order.name).remaining(order)
        how = f"of {shown_bytes(order.total)}; resume with: slipstream models pull {order.name}"
        yield Row(order.name, done, how, ready=False)
    for left in abandoned(settings.models_folder):
        how = f"of an import that was stopped; remove it with: slipstream models rm {left.name}"
        yield Row(left.name, left.size(), how, ready=False)
    folders = [model.entry.folder for model in here if model.entry.folder is not None]
    for other in found_models(settings.others, folders):
        path = shlex.quote(str(other.path))
        how = f"use it with: slipstream models import {path} --name {other.name}"
        yield Row(other.name, other.size, f"in {other.program}; {how}", ready=False)


def _shown(rows: Iterable[Row], given: argparse.Namespace) -> Iterator[str]:
    """A line for each model with more lines below it, or one line of JSON."""
    if given.json:
        yield json.dumps([row._asdict() for row in rows])
        return
    for row in rows:
        size = "-" if row.bytes is None else shown_bytes(row.bytes)
        yield f"{row.name:<36} {size:>9}  {row.about}".rstrip()
        yield from (f"{'':<36} {line}" for line in row.more)


def _kept(model: Installed) -> str:
    """What is wrong with it; where its files are, if removing the model would not free them all."""
    if model.bundled:
        return "bundled"
    shared = "other programs use its files, too" if model.frees < model.size else ""
    place = f"used at {model.entry.folder}" if model.reference else shared
    return "; ".join(filter(None, (place, model.fault)))


def _available(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    """With the drafter that each one would get here, where its weights would be, and a faster type."""
    offered, types = (
        fits(load_catalog(settings), known_profile(settings)),
        TypeAdvice.read(settings),
    )
    chosen = best(offered)
    rows: list[Row] = []
    for fit in offered:
        mode = f"{fit.planned.drafter}: " if fit.planned else ""
        first = "best for this machine; " if fit is chosen else ""
        advice = types.of_entry(fit.entry)
        more = (f"{first}{mode}{fit.where}", *([advice] if advice else []))
        rows.append(_catalogue_row(fit.entry)._replace(more=more))
    yield from _shown(rows, given)
    if types.missing:
        notify(types.missing)


def _remove(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    removed = remove_model(settings, given.name)
    yield f"{removed.name} is removed; {removed.room}."
    if removed.idle_draft is not None:
        yield (
            f"No other model here uses the draft model {removed.idle_draft}; remove it with: "
            f"slipstream models rm {removed.idle_draft}"
        )


def _import(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    name = add_model(settings, Import(typed_path(given.path), given.name, given.way))
    yield f"{name} is ready: slipstream --model {name}"


def _keep_token(settings: Settings, _: argparse.Namespace) -> Iterator[str]:
    """Read from standard input, never from an argument, which every process can see."""
    if sys.stdin.isatty():
        token = getpass.getpass("Token (empty: forget the stored one): ")
    else:
        token = sys.stdin.readline()
    keep_token(settings, token)
    if token.strip():
        yield f"The token is kept in {settings.token_file}, readable by you only."
    else:
        yield "The token is forgotten."


def _catalogue_row(entry: CatalogEntry) -> Row:
    facts = _listed(entry.licence, "gated" if entry.gated else "")
    return Row(entry.name, entry.size, f"{entry.repo}{facts}", ready=entry.folder is not None)


def _found_row(found: Found) -> Row:
    facts = _listed("GGUF" if found.gguf else "", found.licence, "gated" if found.gated else "")
    return Row(found.repo, found.size, f"{found.downloads} downloads{facts}", ready=False)


def _listed(*facts: str | None) -> str:
    """What is known, in brackets."""
    known = ", ".join(filter(None, facts))
    return f" ({known})" if known else ""
