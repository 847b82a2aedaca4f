"""The commands ``doctor`` and ``plan`` as they are typed, and as frozen options."""

import argparse
import re
from dataclasses import dataclass, field

from app.errors import SettingsError
from app.settings import Settings
from engine.hardware.plan import PlanConstraints

_UNITS = {"": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)")
_MOST_TOKENS = 2**24


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    """Look at this machine; ``again`` measures rates that are remembered."""

    settings: Settings
    again: bool = False
    json: bool = False


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Which model on which machine; without memory it is this one."""

    settings: Settings
    model: str
    gpu: int | None = None  # bytes
    ram: int | None = None
    wishes: PlanConstraints = field(default_factory=PlanConstraints)
    json: bool = False
    table: bool = False


HardwareOptions = DoctorOptions | PlanOptions


def add_doctor(doctor: argparse.ArgumentParser) -> None:
    """Arguments of ``doctor``."""
    doctor.add_argument("--again", action="store_true", help="measure what is remembered")
    doctor.add_argument("--json", action="store_true", help="one line of JSON")


def add_plan(plan: argparse.ArgumentParser) -> None:
    """Arguments of ``plan``, but for --model."""
    option = plan.add_argument
    option("--gpu", metavar="SIZE", type=memory, help="of a GPU that one does not have, as 8GiB")
    option("--ram", metavar="SIZE", type=memory, help="of a machine that one does not have")
    option("--context", metavar="TOKENS", type=_tokens, help="longest conversation")
    option("--dtype", choices=("float32", "bfloat16"), help="number format of the weights")
    option("--no-draft", action="store_true", help="plan without a draft model")
    option("--json", action="store_true", help="one line of JSON")
    option("--table", action="store_true", help="published models on six machines, as Markdown")


def doctor_options(given: argparse.Namespace, settings: Settings) -> DoctorOptions:
    """What was typed after ``doctor``."""
    return DoctorOptions(settings, given.again, given.json)


def plan_options(given: argparse.Namespace, settings: Settings) -> PlanOptions:
    """What was typed after ``plan``; raises SettingsError for half a machine."""
    if given.gpu is not None and given.ram is None:
        raise SettingsError("a machine that is not this one needs --ram, too: for example 16GiB")
    wishes = PlanConstraints(context=given.context, dtype=given.dtype, draft=not given.no_draft)
    return PlanOptions(settings, given.model, given.gpu, given.ram, wishes, given.json, given.table)


def memory(text: str) -> int:
    """Bytes out of 8GiB, 512MiB or 16GB."""
    found = _SIZE.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of memory such as 8GiB")
    return int(float(found[1]) * _UNITS[found[2]])


def _tokens(text: str) -> int:
    value = int(text) if text.isdecimal() and len(text) < 10 else 0
    if not 1 <= value <= _MOST_TOKENS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of tokens")
    return value
