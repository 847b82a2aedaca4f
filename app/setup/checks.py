"""What software and hardware is missing on this machine, and the remedy for each."""

import asyncio
import importlib.util
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing import get_context

from app.placement.machine import known_profile, measured_profile
from app.placement.plans import torch_for_cuda
from app.settings import Settings
from engine.errors import ModelUnusable
from engine.hardware.profile import GIB, HardwareProfile
from engine.hardware.reasons import gib
from engine.models.gguf.library import Library, llama_library
from engine.platform.huge_pages import SYSTEM, switched_off
from engine.platform.toolchain import GGUF_SUPPORT, PIP, REBUILD, REORDER, compiler_found

LEAST_DISK = 5 * GIB  # a small model of 4 bits with its draft model
LEAST_RAM = 2 * GIB
VECTORS = frozenset({"avx2", "asimd"})


@dataclass(frozen=True, slots=True)
class Software:
    """What of the software that depends on a machine is there."""

    compiler: bool
    llama_cpp: bool
    torch_cuda: bool
    torch: str  # its version
    amx_left_out_by: str = ""  # the compiler because of which llama.cpp runs without AMX
    unchanged: bool = False  # llama.cpp was compiled without our flags and changes
    huge_pages: bool = True  # not switched off, where the system has them


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is missing; ``needed`` where Slipstream does not work without it."""

    what: str
    remedy: str
    needed: bool = False


def software() -> Software:
    """Checks this environment; imports torch to see whether it was built for CUDA."""
    import torch

    library = _llama_library()
    return Software(
        compiler=compiler_found(),
        llama_cpp=importlib.util.find_spec("llama_cpp") is not None,
        torch_cuda=torch.cuda.is_available(),
        torch=str(torch.__version__),
        amx_left_out_by=library.amx_left_out_by if library else "",
        unchanged=library is not None and (library.spills or library.rounds_apart),
        huge_pages=not switched_off(),
    )


def _llama_library() -> Library | None:
    try:
        return llama_library()
    except ModelUnusable:  # not installed, which is a finding of its own
        return None


def findings(profile: HardwareProfile, software: Software) -> Iterator[Finding]:
    """Everything that is missing, with its remedy."""
    if profile.ram.available < LEAST_RAM:
        yield Finding(
            f"{gib(profile.ram.available)} of memory are available, by {profile.ram.limit}",
            f"close programs or raise the limit: {gib(LEAST_RAM)} are needed",
            needed=True,
        )
    if profile.disk_free < LEAST_DISK:
        yield Finding(
            f"{gib(profile.disk_free)} are free where models go",
            f"free {gib(LEAST_DISK)} for a first download, or set SLIPSTREAM_HOME elsewhere",
        )
    if not VECTORS & set(profile.instructions):
        yield Finding(
            "the processor lists neither AVX2 nor NEON",
            "models run, several times slower; nothing but another processor helps",
        )
    if profile.gpus and not software.torch_cuda:
        yield Finding(
            f"torch {software.torch} does not use the {profile.gpus[0].name}",
            f"install the build for CUDA: {PIP} --force-reinstall torch "
            "--index-url https://download.pytorch.org/whl/cu128",
        )
    yield from _of_llama_cpp(software)
    if not software.huge_pages:
        yield Finding(
            "huge pages are switched off: reading weights waits for addresses to be translated, a few "
            "percent of every pass",
            f"allow those that are asked for: echo madvise | sudo tee {SYSTEM / 'enabled'}",
        )


def _of_llama_cpp(software: Software) -> Iterator[Finding]:
    if not software.llama_cpp:
        compiler = "" if software.compiler else "a C++ compiler first (apt install g++), then "
        yield Finding(
            "llama-cpp-python is not installed: GGUF files cannot be run",
            f"install {compiler}it: {GGUF_SUPPORT}",
        )
    if software.amx_left_out_by:
        yield Finding(
            f"llama.cpp was compiled by {software.amx_left_out_by}, which leaves the set-up of AMX "
            "out: GGUF files run without these instructions, more slowly than they could",
            f"compile it again: {REBUILD}",
        )
    elif software.unchanged:
        yield Finding(
            "llama.cpp was compiled without Slipstream's flags: verifying drafts of 4-bit GGUF files takes "
            "up to a third longer, and of K types (Q4_K_M) only three rows are verified in a pass",
            f"compile it again: {REORDER}",
        )


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
