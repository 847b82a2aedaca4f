"""The command ``keys``: make, list and withdraw the API keys of a server that other machines reach."""

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from app.commands.arguments import set_command, whole
from app.keys.key_file import Key, Keys
from app.settings import Settings
from app.terminal import notify, write_lines

Action = Callable[[Keys, argparse.Namespace], Iterator[str]]


@dataclass(frozen=True, slots=True)
class KeysOptions:
    """One action with its arguments."""

    settings: Settings
    action: Action
    given: argparse.Namespace


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of every action."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    make = actions.add_parser("add", help="make a key and print it, once")
    make.add_argument("name", metavar="NAME", help="who or what it is for")
    make.add_argument(
        "--at-a-time", type=whole(1), metavar="N", help="most requests at a time (default: any)"
    )
    make.add_argument(
        "--per-minute", type=whole(1), metavar="N", help="most requests per minute (default: any)"
    )
    _set_action(make, _add)

    listing = actions.add_parser("list", help="list the keys by name")
    listing.add_argument("--json", action="store_true", help="print one line of JSON")
    _set_action(listing, _list)

    remove = actions.add_parser("remove", help="withdraw a key; its sessions end at once")
    remove.add_argument("name", metavar="NAME")
    _set_action(remove, _remove)


def _set_action(parser: argparse.ArgumentParser, action: Action) -> None:
    set_command(parser, lambda given, settings: KeysOptions(settings, action, given), run)


def run(options: KeysOptions) -> int:
    """Print the lines of the action; returns the exit code."""
    write_lines(options.action(Keys(options.settings.keys_file), options.given))
    return 0


def _add(keys: Keys, given: argparse.Namespace) -> Iterator[str]:
    """Only the key goes to standard output, for scripts."""
    yield keys.add(given.name, given.at_a_time, given.per_minute)
    notify(
        f"This is the key of {given.name}. Only its hash is kept: copy it now, it is not shown again."
    )


def _list(keys: Keys, given: argparse.Namespace) -> Iterator[str]:
    if given.json:
        rows = [asdict(key) for key in keys.all()]
        yield json.dumps([{n: v for n, v in row.items() if n != "digest"} for row in rows])
        return
    if not keys.all():
        notify("There are no keys; make one with: slipstream keys add NAME")
    for key in keys.all():
        yield f"{key.name:<24} made {key.created[:10]}{_limits(key)}"


def _limits(key: Key) -> str:
    limits = ((key.at_a_time, "at a time"), (key.per_minute, "per minute"))
    return "".join(f", {most} {what}" for most, what in limits if most is not None)


def _remove(keys: Keys, given: argparse.Namespace) -> Iterator[str]:
    keys.remove(given.name)
    yield (
        f"The key {given.name} is withdrawn. Its conversations are kept: a new key of that name opens "
        "them again."
    )
