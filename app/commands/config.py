"""The command ``config``: the settings in effect, and where each one comes from."""

import argparse
import json
from dataclasses import dataclass

from app.commands.arguments import add_json, set_command
from app.settings import Settings, config_file, setting_sources
from app.terminal import write_lines

_UNSET = {"keep_alive": "never", "tls_cert": "none", "tls_key": "none"}  # what no value means


@dataclass(frozen=True, slots=True)
class ConfigOptions:
    """Show the settings."""

    settings: Settings
    json: bool


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_json(parser)
    set_command(parser, lambda given, settings: ConfigOptions(settings, given.json), run)


def run(options: ConfigOptions) -> int:
    """Print one line per setting; returns the exit code."""
    file, found = config_file(), setting_sources().items()
    values = {name: getattr(options.settings, name) for name, _ in found}
    if options.json:
        shown = {name: {"value": values[name], "source": source} for name, source in found}
        write_lines([json.dumps({"config_file": str(file), "settings": shown}, default=str)])
        return 0
    there = "" if file.exists() else " (no such file)"
    write_lines([f"config file  {file}{there}"])
    for name, source in found:
        write_lines([f"{name:<12} {_shown(name, values[name])}  ({source})"])
    return 0


def _shown(name: str, value: object) -> str:
    if value is None:
        return _UNSET.get(name, "automatic")
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)
