"""The what-if sliders of the Hardware tab: plan for other GPU memory and RAM."""

import json
from collections.abc import Sequence

from pydantic import Field

from app.models.downloads.partial_file import shown_bytes
from app.models.library.simulation import Memory
from engine.hardware.profile import HardwareProfile
from ui.hardware.plans import legend
from ui.tab import Command
from ui.widgets import GIB

_GPUS = (0, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 80, 96)  # GiB, common sizes
_RAMS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


class HardwareCommand(Command):
    """Memory to plan for, in GiB; None is what this machine has. ``open`` are the plans that are open."""

    gpu: int | None = Field(default=None, ge=0, le=4096)
    ram: int | None = Field(default=None, ge=1, le=4096)
    open: list[str] = Field(default_factory=list, max_length=1000)

    @property
    def memory(self) -> Memory:
        """In bytes."""
        return Memory(*(None if size is None else size * GIB for size in (self.gpu, self.ram)))


def section(profile: HardwareProfile) -> str:
    """Both sliders, at this machine's own sizes. HTML."""
    gpu = profile.gpu
    return (
        '<section aria-labelledby="what-if"><div class="head"><h2 id="what-if">What if</h2>'
        '<button type="button" class="quiet" data-here>Back to this machine</button></div>'
        '<p class="note">Other memory, with the same programs running. Plans come from the '
        "headers of the files; nothing is loaded.</p>"
        f'<div class="sliders">{_slider("gpu", "GPU memory", _GPUS, gpu.total if gpu else 0)}'
        f'{_slider("ram", "RAM", _RAMS, profile.ram.total)}</div><p class="key">{legend()}</p></section>'
    )


def _slider(name: str, label: str, sizes: Sequence[int], own: int) -> str:
    others = [size for size in sizes if size * GIB != own]
    here = sum(size * GIB < own for size in others)
    sent: list[int | None] = [*others[:here], None, *others[here:]]
    labels = [
        _label(size * GIB) if size is not None else f"{_label(own)}, as here" for size in sent
    ]
    return (
        f'<label><b>{label}<span class="value">{labels[here]}</span></b><input type="range" name="{name}" '
        f'min="0" max="{len(sent) - 1}" value="{here}" data-here="{here}" '
        f"data-sizes='{json.dumps(sent)}' data-labels='{json.dumps(labels)}' "
        f'aria-label="{label}" aria-valuetext="{labels[here]}"></label>'
    )


def _label(size: int) -> str:
    if not size:
        return "none"
    return shown_bytes(size) if size % GIB else f"{size // GIB} GiB"
