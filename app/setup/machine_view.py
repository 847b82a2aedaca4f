"""This machine as a screen shows it: what it has, what is missing, and its speed measured anew."""

import asyncio
import importlib.util
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context

from app.placement.machine_profile import known_profile, measured_profile
from app.placement.plans import torch_for_cuda
from app.settings import Settings
from app.setup.checks import Finding, Software, findings, software
from engine.hardware.profile import HardwareProfile
from engine.platform.toolchain import compiler_found


@dataclass(frozen=True, slots=True)
class MachineView:
    """What was found at one moment."""

    profile: HardwareProfile
    missing: tuple[Finding, ...]


def look(settings: Settings) -> MachineView:
    """In milliseconds: rates are those that are remembered, and torch is not imported."""
    profile = known_profile(settings)
    there = Software(
        compiler=compiler_found(),
        llama_cpp=importlib.util.find_spec("llama_cpp") is not None,
        torch_cuda=torch_for_cuda(),
        torch=version("torch"),
    )
    return MachineView(profile, tuple(findings(profile, there)))


async def measure(settings: Settings) -> MachineView:
    """Every rate again, in a process of its own: neither answers nor pages wait for it."""
    return await asyncio.to_thread(_in_a_process, settings)


def _in_a_process(settings: Settings) -> MachineView:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_measure, settings).result()


def _measure(settings: Settings) -> MachineView:
    profile = measured_profile(settings, again=True)
    return MachineView(profile, tuple(findings(profile, software())))
