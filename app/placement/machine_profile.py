"""This machine's profile: what it has is looked up each time, how fast it is once and remembered."""

import json
from dataclasses import asdict
from pathlib import Path

from app.files import replace_file
from app.placement.machine_name import processor
from app.settings import Settings
from engine.hardware.limits import cores, this_machine
from engine.hardware.profile import HardwareProfile, Rates, rates_from

_REMEMBERED = "hardware.json"


def known_profile(settings: Settings) -> HardwareProfile:
    """In milliseconds: without rates where none were measured on this machine yet."""
    known = this_machine(processor(), settings.models_folder)
    rates = _read(settings.home / _REMEMBERED, _fingerprint(known))
    return known if rates is None else this_machine(processor(), settings.models_folder, rates)


def measured_profile(settings: Settings, *, again: bool = False) -> HardwareProfile:
    """With rates, measured in about two seconds where they are not remembered."""
    known = known_profile(settings)
    if known.rates.memory is not None and not again:
        return known
    from engine.hardware.rates import measure  # imports torch

    rates = measure(settings.models_folder)
    stored = {"machine": _fingerprint(known), "rates": asdict(rates)}
    replace_file(settings.home / _REMEMBERED, json.dumps(stored, indent=1))
    return this_machine(processor(), settings.models_folder, rates)


def _fingerprint(known: HardwareProfile) -> str:
    """Changes with anything that would change a rate."""
    names = ", ".join(gpu.name for gpu in known.gpus)
    return f"{known.processor}, {cores():g} cores, {known.ram.total} bytes, {names or 'no GPU'}"


def _read(file: Path, machine: str) -> Rates | None:
    """What is remembered, if it can be read and is of this machine."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return rates_from(stored["rates"]) if stored["machine"] == machine else None
    except (OSError, ValueError, TypeError, KeyError):
        return None  # it is measured anew
