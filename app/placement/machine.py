"""This machine: its name in measurements, keys of what was measured, and rates, measured once."""

import hashlib
import json
import logging
import platform
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from app.files import replace_file
from app.settings import Settings
from engine.hardware.limits import this_machine
from engine.hardware.profile import HardwareProfile, Rates, rates_from
from engine.platform.cores import usable_cores, usable_threads
from engine.platform.instructions import instruction_sets
from engine.request import ModelSpec

log = logging.getLogger(__name__)

CPU_INFO = Path("/proc/cpuinfo")  # Linux; elsewhere the standard library knows the name
CPU_FIELDS = ("model name", "Model", "Hardware", "cpu model")  # x86, ARM boards, MIPS


def machine_name(device: str, dtype: str, cpu_info: Path = CPU_INFO) -> str:
    """Processor, cores that this process may use, device and number format of the weights."""
    count = usable_threads()
    noun = "core" if count == 1 else "cores"
    return f"{processor(cpu_info)}, {count} {noun}, {device}, {dtype}"


def processor(cpu_info: Path = CPU_INFO) -> str:
    """The name that the maker gave it, as far as it is known."""
    named = _fields(cpu_info)
    found = next((named[field] for field in CPU_FIELDS if named.get(field)), None)
    return " ".join((found or platform.processor() or platform.machine() or "cpu").split())


def _fields(cpu_info: Path) -> dict[str, str]:
    """Fields of the file; none where there is no such file."""
    try:
        text = cpu_info.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


_LIBRARIES = ("torch", "transformers", "llama-cpp-python")
_CALIBRATED = 4  # grows when something else is measured, or otherwise


def price_key(spec: ModelSpec) -> str:
    """A digest that changes with the files' sizes and times, the machine, libraries and settings."""
    place = Path(spec.folder)
    files = [place] if place.is_file() else sorted(place.glob("*.safetensors"))
    states = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    machine = (machine_name(spec.device, spec.dtype), instruction_sets())
    told = (
        _CALIBRATED,
        replace(spec, calibration=None, measure_later=False),
        states,
        machine,
        [installed_state(name) for name in _LIBRARIES],
    )
    return hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()


def installed_state(package: str) -> str:
    """Changes with every installation that changes a file: llama.cpp is compiled on this machine."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        return ""
    record = found.read_text("RECORD") or ""  # has each file's digest
    return f"{found.version} {hashlib.sha256(record.encode()).hexdigest()[:16]}"


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
    try:
        replace_file(settings.home / _REMEMBERED, json.dumps(stored, indent=1))
    except OSError:
        log.exception("what was measured of this machine is not kept")
    return this_machine(processor(), settings.models_folder, rates)


def _fingerprint(known: HardwareProfile) -> str:
    """Changes with anything that would change a rate."""
    names = ", ".join(gpu.name for gpu in known.gpus)
    return (
        f"{known.processor}, {usable_cores():g} cores, {known.ram.total} bytes, {names or 'no GPU'}"
    )


def _read(file: Path, machine: str) -> Rates | None:
    """What is remembered, if it can be read and is of this machine."""
    try:
        stored = json.loads(file.read_text(encoding="utf-8"))
        return rates_from(stored["rates"]) if stored["machine"] == machine else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None  # it is measured again
