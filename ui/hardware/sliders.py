"""The what-if sliders of the hardware tab: memory of a GPU and RAM of a machine one does not have."""

import json
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.models.library.simulation import Memory
from engine.errors import InvalidRequest
from engine.hardware.profile import HardwareProfile
from ui.hardware.plans import legend
from ui.widgets import GIB, gib

_GPUS = (0, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 80, 96)  # GiB that machines are sold with
_RAMS = (4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)

# A slider stands on one of its sizes. Rows that are open stay open when they are planned anew.
SLIDERS = """
const sliders = () => [...element.querySelectorAll('input[type="range"]')];
const label = (slider) => JSON.parse(slider.dataset.labels)[slider.value];
const show = (slider) => {
  slider.setAttribute('aria-valuetext', label(slider));
  slider.closest('label').querySelector('.value').textContent = label(slider);
};
const plan = () => {
  const asked = { open: [...document.querySelectorAll('#hardware details[open]')].map((row) => row.dataset.key) };
  for (const slider of sliders()) asked[slider.name] = JSON.parse(slider.dataset.sizes)[slider.value];
  trigger('click', { asked: JSON.stringify(asked) });
};
element.addEventListener('input', ({ target }) => { if (target.type === 'range') show(target); });
element.addEventListener('change', plan);
element.addEventListener('click', ({ target }) => {
  if (!target.closest('[data-here]')) return;
  for (const slider of sliders()) {
    slider.value = slider.dataset.here;
    show(slider);
  }
  plan();
});
"""


class Imagined(BaseModel):
    """What the sliders say, in GiB; None is what this machine has. ``open`` are rows of plans."""

    model_config = ConfigDict(extra="forbid")

    gpu: int | None = Field(default=None, ge=0, le=4096)
    ram: int | None = Field(default=None, ge=1, le=4096)
    open: list[str] = Field(default_factory=list, max_length=1000)

    @classmethod
    def read(cls, written: object) -> "Imagined":
        """From JSON; raises InvalidRequest."""
        try:
            return cls.model_validate_json(str(written))
        except ValidationError as error:
            raise InvalidRequest("this page sent something unreadable; reload it") from error

    @property
    def memory(self) -> Memory:
        """In bytes."""
        return Memory(*(None if size is None else size * GIB for size in (self.gpu, self.ram)))


def section(profile: HardwareProfile) -> str:
    """Both sliders, standing on this machine's own sizes. HTML."""
    gpu = profile.gpu
    return (
        '<section aria-labelledby="what-if"><div class="head"><h2 id="what-if">What if</h2>'
        '<button type="button" class="quiet" data-here>Back to this machine</button></div>'
        '<p class="note">Other memory, the same programs running beside it. Plans come from the '
        "headers of the files, and nothing is loaded.</p>"
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
    return gib(size) if size % GIB else f"{size // GIB} GiB"
