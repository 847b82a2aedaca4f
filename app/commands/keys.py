"""The command ``keys``: make, list and withdraw the API keys of a server that other machines reach."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict

from app.commands.arguments import add_json, set_action, whole
from app.keys.key_file import Key, Keys
from app.settings import Settings
from app.terminal import notify


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of every action."""
    actions = parser.add_subparsers(dest="action", metavar="add|list|remove", required=True)
    make = actions.add_parser("add", help="make a key and print it, once")
    make.add_argument("name", metavar="NAME", help="who or what it is for")
    make.add_argument(
        "--at-a-time", type=whole(1), metavar="N", help="most requests at a time (default: any)"
    )
    make.add_argument(
        "--per-minute", type=whole(1), metavar="N", help="most requests per minute (default: any)"
    )
    set_action(make, _add)

    listing = actions.add_parser("list", help="list the keys by name")
    add_json(listing)
    set_action(listing, _list)

    remove = actions.add_parser("remove", help="withdraw a key; its sessions end at once")
    remove.add_argument("name", metavar="NAME")
    set_action(remove, _remove)


def _keys(settings: Settings) -> Keys:
    return Keys(settings.keys_file)


def _add(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    """Only the key goes to standard output, for scripts."""
    yield _keys(settings).add(given.name, given.at_a_time, given.per_minute)
    notify(
        f"This is the key of {given.name}. Only its hash is kept: copy it now, it is not shown again."
    )


def _list(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    keys = _keys(settings).all()
    if given.json:
        rows = [asdict(key) for key in keys]
        yield json.dumps([{n: v for n, v in row.items() if n != "digest"} for row in rows])
        return
    if not keys:
        notify("There are no keys; make one with: slipstream keys add NAME")
    for key in keys:
        yield f"{key.name:<24} made {key.created[:10]}{_limits(key)}"


def _limits(key: Key) -> str:
    limits = ((key.at_a_time, "at a time"), (key.per_minute, "per minute"))
    return "".join(f", {most} {what}" for most, what in limits if most is not None)


def _remove(settings: Settings, given: argparse.Namespace) -> Iterator[str]:
    _keys(settings).remove(given.name)
    yield (
        f"The key {given.name} is withdrawn. Its conversations are kept: a new key of that name opens "
        "them again."
    )
