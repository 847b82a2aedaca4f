"""This machine as HTML: memory, processor, GPUs, measured rates, and what is missing."""

from collections.abc import Iterable, Iterator
from html import escape

from app.models.downloads.partial_file import shown_bytes
from app.setup.checks import Finding, MachineView
from engine.hardware.profile import HardwareProfile
from ui.widgets import bar, button, notice, sentence

Figure = tuple[str, str, str]  # value, label, and HTML below


def section(found: MachineView, message: str = "") -> str:
    """This machine now. HTML."""
    known = found.profile.rates.memory is not None
    measure = button("Measure again" if known else "Measure its speed", "measure")
    return (
        f'<section aria-labelledby="machine"><div class="head"><h2 id="machine">This machine</h2>'
        f"{measure}</div>{message}{_figures(_has(found.profile))}<h3>Speed</h3>"
        f"{_speed(found.profile)}{_missing(found.missing)}</section>"
    )


def measuring() -> str:
    """While the rates are measured. HTML."""
    return notice("Measuring in another process for some seconds; answers continue")


def _has(profile: HardwareProfile) -> Iterator[Figure]:
    ram, kinds = profile.ram, ", ".join(profile.instructions)
    limit = "" if ram.limit == "the machine" else f"limited by {ram.limit}"
    yield _memory("memory", ram.available, ram.total, limit)
    for gpu in profile.gpus:
        yield _memory(f"{gpu.name} memory", gpu.free, gpu.total, "")
    if not profile.gpus:
        yield "None", "NVIDIA GPU that can be used", ""
    cores = f"{profile.cores:g} {'core' if profile.cores == 1 else 'cores'}"
    yield cores, profile.processor, f"<small>{escape(kinds or 'no vector instructions')}</small>"
    yield shown_bytes(profile.disk_free), "of the disk free for models", ""


def _memory(what: str, free: int, total: int, more: str) -> Figure:
    taken = (total - free) / max(total, 1)
    drawn = bar(
        [("fill", taken, f"{shown_bytes(total - free)} in use")], f"{taken:.0%} of {what} in use"
    )
    below = f"{drawn}<small>{escape(more)}</small>" if more else drawn
    return shown_bytes(free), f"{what} free, of {shown_bytes(total)}", below


def _speed(profile: HardwareProfile) -> str:
    rates = profile.rates
    if rates.memory is None:
        return "<p>Not measured on this machine yet. It takes some seconds.</p>"
    rows = [
        ("Reads memory", _read(rates.memory)),
        ("Multiplies, float32", _multiplied(rates.matrix)),
        ("Reads the disk, nothing cached", _read(rates.disk)),
    ]
    for gpu in profile.gpus:
        rows += [
            (f"{gpu.name} copies", _read(gpu.copy_rate)),
            (f"{gpu.name} multiplies, bfloat16", _multiplied(gpu.matrix_rate)),
            (f"{gpu.name} is fed", _read(gpu.upload_rate)),
        ]
    shown = "".join(f"<div><dt>{escape(what)}</dt><dd>{rate}</dd></div>" for what, rate in rows)
    return f'<dl class="pairs">{shown}</dl>'


def _read(rate: float | None) -> str:
    return "not measured" if rate is None else f"{shown_bytes(rate)}/s"


def _multiplied(rate: float | None) -> str:
    return "not measured" if rate is None else f"{rate / 1e9:,.1f} GFLOP/s"


def _figures(figures: Iterable[Figure]) -> str:
    shown = "".join(
        f"<div><dd>{escape(value)}</dd><dt>{escape(what)}</dt>{f'<dd>{below}</dd>' if below else ''}</div>"
        for value, what, below in figures
    )
    return f'<dl class="totals">{shown}</dl>'


def _missing(found: Iterable[Finding]) -> str:
    shown = "".join(
        f'<li><span class="tag{" alarm" if one.needed else ""}">'
        f"{'Needed' if one.needed else 'Could be better'}</span>"
        f"<p>{escape(sentence(one.what))} {escape(sentence(one.remedy))}</p></li>"
        for one in found
    )
    if not shown:
        return '<p class="note">Nothing is missing.</p>'
    return f'<h3>What is missing</h3><ul class="lacks">{shown}</ul>'
