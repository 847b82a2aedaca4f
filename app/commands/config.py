"""The command ``config``: the settings in effect, and where each one comes from."""

import argparse
from dataclasses import dataclass

from app.commands.arguments import set_command
from app.settings import Settings, config_file, setting_sources
from app.terminal import write_lines


@dataclass(frozen=True, slots=True)
class ConfigOptions:
    """Show the settings."""

    settings: Settings


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: none."""
    set_command(parser, lambda _, settings: ConfigOptions(settings), run)


def run(options: ConfigOptions) -> int:
    """Print one line per setting; returns the exit code."""
    file = config_file()
    there = "" if file.exists() else " (no such file)"
    write_lines([f"config file  {file}{there}"])
    for name, source in setting_sources().items():
        value = getattr(options.settings, name)
        shown = "never" if name == "keep_alive" and value is None else value
        write_lines([f"{name:<12} {'automatic' if shown is None else shown}  ({source})"])
    return 0
