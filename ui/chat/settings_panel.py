"""The settings of a chat: system prompt, presets, sampling, how answers look."""

from collections.abc import Sequence

from app.history.records import Preset
from ui.widgets import icon, options

_RANGES = (
    ("temperature", "Temperature", "0 gives the same answer every time", 0, 2, 0.05),
    ("top_p", "Top p", "Total probability of the tokens to sample from; 1 is off", 0.05, 1, 0.05),
    ("min_p", "Min p", "Least share of the likeliest token's probability; 0 is off", 0, 0.5, 0.01),
    ("repeat", "Repeat penalty", "Makes repeated tokens less likely; 1 is off", 1, 2, 0.05),
)
_NUMBERS = (
    ("top_k", "Top k", "Number of tokens to sample from; 0 is off", ""),
    ("max_tokens", "Longest answer", "In tokens; empty is half of the context", ""),
    ("seed", "Seed", "The same number gives the same answer; empty is random", ""),
)


HEAD = f"""
<header><h2>Settings</h2>
<button type="button" class="act" data-do="panel" aria-label="Close settings">{icon("cross")}</button></header>
"""


def panel() -> str:
    """The fixed parts; the script keeps their values in the browser. HTML."""
    ranges = "".join(_range(*each) for each in _RANGES)
    numbers = "".join(_number(*each) for each in _NUMBERS)
    return f"""
<label class="field" for="system"><b>System prompt</b>
<textarea id="system" rows="4" placeholder="Describe the assistant's role and style"></textarea></label>
{ranges}<div class="numbers">{numbers}</div>
<label class="field"><b>Show answers as</b><select data-setting="look">
<option value="auto">What suits the model<option value="markdown">Markdown<option value="text">Plain text
</select></label>
<label class="check"><input type="checkbox" data-setting="overlay"> Colour drafted words</label>
<p class="legend"><mark class="drafted">drafted and accepted</mark> <mark class="own">the model's own</mark></p>
<label class="check"><input type="checkbox" data-setting="captions"> Explain under each answer what drafting did</label>
<button type="button" class="quiet" data-do="defaults">Back to the defaults</button>"""


def presets(kept: Sequence[Preset]) -> str:
    """Choosing, saving and deleting presets. HTML."""
    names = options(one.name for one in kept)
    delete = '<button type="button" class="quiet" data-do="preset-delete">Delete</button>'
    return f"""
<label class="field"><b>Preset</b><select id="preset" data-do="preset-use">
<option value="">None{names}</select></label>
<div class="row"><input id="preset-name" aria-label="Name of a preset" placeholder="Save these settings as">
<button type="button" class="quiet" data-do="preset-save">Save</button>{delete if kept else ""}</div>"""


def _range(name: str, label: str, hint: str, low: float, high: float, step: float) -> str:
    return (
        f'<label class="field"><b>{label}<span class="out"></span></b><input type="range" min="{low}" '
        f'max="{high}" step="{step}" data-setting="{name}"><small>{hint}</small></label>'
    )


def _number(name: str, label: str, hint: str, value: str) -> str:
    return (
        f'<label class="field"><b>{label}</b><input type="number" min="0" step="1" value="{value}" '
        f'placeholder="auto" data-setting="{name}"><small>{hint}</small></label>'
    )
