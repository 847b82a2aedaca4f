"""The command ``doctor``: what this machine has, what is missing, and the remedy for it."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from app.hardware import measured_profile
from app.hardware_options import DoctorOptions
from engine.errors import ModelUnusable
from engine.hardware.profile import GIB, HardwareProfile
from engine.hardware.reasons import gib
from engine.models.gguf.compiler import REBUILD, REORDER, compiler_found
from engine.models.gguf.library import Library, llama_library
from engine.models.huge_pages import SYSTEM, switched_off

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
    spills: bool = False  # llama.cpp's kernels for 4-bit weights are slower than they could be
    huge_pages: bool = True  # not switched off, where the system has them


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is missing; ``needed`` where Slipstream does not work without it."""

    what: str
    remedy: str
    needed: bool = False


def doctor(options: DoctorOptions) -> int:
    """Print the profile and what is missing; 1 when something is missing that is needed."""
    profile = measured_profile(options.settings, again=options.again)
    found = tuple(findings(profile, software()))
    if options.json:
        content = {"profile": asdict(profile), "missing": [asdict(finding) for finding in found]}
        sys.stdout.write(json.dumps(content) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(profile, found))
    return 1 if any(finding.needed for finding in found) else 0


def software() -> Software:
    """Asked of this environment; importing torch tells whether it was built for CUDA."""
    import torch

    library = _llama_library()
    return Software(
        compiler=compiler_found(),
        llama_cpp=importlib.util.find_spec("llama_cpp") is not None,
        torch_cuda=torch.cuda.is_available(),
        torch=str(torch.__version__),
        amx_left_out_by=library.amx_left_out_by if library else "",
        spills=library is not None and library.spills,
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
            "install the build for CUDA: pip install --force-reinstall torch "
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
            f"install {compiler}it: pip install 'slipstream[gguf]'",
        )
    if software.amx_left_out_by:
        yield Finding(
            f"llama.cpp was compiled by {software.amx_left_out_by}, which leaves the set-up of AMX "
            "out: GGUF files run without these instructions, more slowly than they could",
            f"compile it again: {REBUILD}",
        )
    elif software.spills:
        yield Finding(
            "llama.cpp was compiled by GCC as it comes: checking drafts of 4-bit GGUF files takes up to "
            "a third longer than it could",
            f"compile it again: {REORDER}",
        )


def lines(profile: HardwareProfile, found: tuple[Finding, ...]) -> Iterator[str]:
    """The profile and the findings as text."""
    rates, ram = profile.rates, profile.ram
    yield f"processor    {profile.processor}, {profile.cores:g} cores"
    yield f"instructions {', '.join(profile.instructions) or 'none of those that matter'}"
    yield f"memory       {gib(ram.available)} of {gib(ram.total)} available, by {ram.limit}"
    yield f"             reads {_rate(rates.memory)}; {_rate(rates.matrix, 'GFLOP/s')} in float32"
    yield f"disk         {gib(profile.disk_free)} free, reads {_rate(rates.disk)}"
    for gpu in profile.gpus:
        yield f"GPU          {gpu.name}, {gib(gpu.free)} of {gib(gpu.total)} free"
        yield (
            f"             copies {_rate(gpu.copy_rate)}; {_rate(gpu.matrix_rate, 'GFLOP/s')} in "
            f"bfloat16; is fed {_rate(gpu.upload_rate)}"
        )
    if not profile.gpus:
        yield "GPU          none that CUDA knows"
    yield ""
    if not found:
        yield "Nothing is missing."
    for finding in found:
        yield f"{'needed' if finding.needed else 'could be better'}: {finding.what}."
        yield f"  {finding.remedy}."


def _rate(rate: float | None, unit: str = "GB/s") -> str:
    return "not measured" if rate is None else f"{rate / 1e9:.1f} {unit}"
