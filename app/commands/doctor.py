"""The command ``doctor``: what this machine has, what is missing, and the remedy for it."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from app.commands.arguments import add_json, set_command
from app.models.downloads.partial_file import shown_bytes
from app.placement.machine import measured_profile
from app.placement.row_table import known_table, measured_table
from app.settings import Settings
from app.setup.checks import Finding, findings, software
from app.terminal import show_progress, write_lines
from engine.hardware.profile import HardwareProfile
from engine.hardware.reasons import gib
from engine.models.gguf.file_types import USUAL, WIDTHS, RowTable


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Look at this machine; ``types`` measures its row table if need be, ``again`` all in any case."""

    settings: Settings
    again: bool = False
    json: bool = False
    types: bool = False


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--again", action="store_true", help="measure the machine's speed again")
    add_json(parser)
    parser.add_argument(
        "--types",
        action="store_true",
        help="measure which type of a GGUF file is fastest, a minute",
    )
    set_command(
        parser, lambda given, s: DoctorOptions(s, given.again, given.json, given.types), run
    )


def run(options: DoctorOptions) -> int:
    """Print the profile and what is missing; returns 1 if something needed is missing."""
    profile = measured_profile(options.settings, again=options.again)
    table = _table(options)
    found = tuple(findings(profile, software()))
    if options.json:
        content = {
            "profile": asdict(profile),
            "types": None if table is None else {"rows": WIDTHS, "seconds": dict(table.seconds)},
            "missing": [asdict(finding) for finding in found],
        }
        write_lines([json.dumps(content)])
    else:
        write_lines(lines(profile, found, table))
    return 1 if any(finding.needed for finding in found) else 0


def _table(options: DoctorOptions) -> RowTable | None:
    if not options.types:
        return known_table(options.settings)
    try:
        return measured_table(options.settings, show_progress, again=options.again)
    finally:
        show_progress("")


def lines(
    profile: HardwareProfile, found: tuple[Finding, ...], table: RowTable | None = None
) -> Iterator[str]:
    """The profile, the row table and the findings as text."""
    rates, ram = profile.rates, profile.ram
    yield f"processor    {profile.processor}, {profile.cores:g} cores"
    yield f"instructions {', '.join(profile.instructions) or 'none of those that matter'}"
    yield f"memory       {gib(ram.available)} of {gib(ram.total)} available, by {ram.limit}"
    yield f"             reads {_rate(rates.memory)}; {_operations(rates.matrix)} in float32"
    yield f"disk         {gib(profile.disk_free)} free, reads {_rate(rates.disk)}"
    for gpu in profile.gpus:
        yield f"GPU          {gpu.name}, {gib(gpu.free)} of {gib(gpu.total)} free"
        yield (
            f"             copies {_rate(gpu.copy_rate)}; {_operations(gpu.matrix_rate)} in "
            f"bfloat16; is fed {_rate(gpu.upload_rate)}"
        )
    if not profile.gpus:
        yield "GPU          none of NVIDIA that can be used"
    yield from _types(table)
    yield ""
    if not found:
        yield "Nothing is missing."
    for finding in found:
        yield f"{'needed' if finding.needed else 'could be better'}: {finding.what}."
        yield f"  {finding.remedy}."


def _types(table: RowTable | None) -> Iterator[str]:
    """Milliseconds of a pass by type of a GGUF file, the fastest first, and compared with the usual."""
    if table is None:
        yield "GGUF types   not measured; slipstream doctor --types does it in a minute"
        return
    rows = ", ".join(map(str, WIDTHS))
    yield f"GGUF types   ms of passes of {rows} rows of a small model, and in {USUAL.upper()}'s time"
    for kind, seconds in sorted(table.seconds.items(), key=lambda item: item[1]):
        times = "".join(f"{1e3 * value:8.1f}" for value in seconds)
        shares = "".join(f"{share:7.2f}" for share in table.shares(kind, USUAL))
        yield f"  {kind.upper():<10}{times}  {shares}"


def _rate(rate: float | None) -> str:
    return "not measured" if rate is None else f"{shown_bytes(rate)}/s"


def _operations(rate: float | None) -> str:
    return "not measured" if rate is None else f"{rate / 1e9:.1f} GFLOP/s"
