"""The form of a race, and the commands of the Compare tab."""

from collections.abc import Sequence
from html import escape

from pydantic import Field

from app.bench.compare.race import MAX_LANES, RaceOptions
from engine.request import AUTO, PLAIN, ModelFacts
from ui.chat.caption import mode_name
from ui.chat.suggestions import Suggestion, suggestions
from ui.tab import Command
from ui.widgets import options, sentence

LENGTHS, REPEATS = (64, 128, 256, 512, 1024), (1, 3, 5)
_PRESELECTED = (AUTO, "lookup", "chain")  # if the model has them


class CompareCommand(Command):
    """The fields of a form come with its command."""

    prompt: str = ""
    drafters: list[str] = Field(default_factory=list, max_length=40)
    repeats: int = 3
    max_tokens: int = 256
    rival: str = Field(default="", max_length=1000)
    size: str = "quick"

    @property
    def race(self) -> RaceOptions:
        """The race that the form describes."""
        return RaceOptions(
            self.prompt, tuple(self.drafters), self.repeats, self.max_tokens, self.rival
        )


def form(facts: ModelFacts, rivals: Sequence[str], latest: RaceOptions | None) -> str:
    """The form of a race, with the values of the ``latest`` one; ``rivals`` are other models. HTML."""
    names = [AUTO, *(name for name in facts.drafters if name != PLAIN)]
    usual = tuple(name for name in _PRESELECTED if name in names)
    examples = suggestions(facts.parameters)
    chosen = latest or RaceOptions(examples[0].prompt, usual)
    modes = "".join(_mode(name, checked=name in chosen.drafters) for name in names)
    return (
        '<form id="race" aria-labelledby="race-title"><div class="head"><h2 id="race-title">Race</h2></div>'
        '<p class="note">One prompt, answered plainly and in other speed modes. They run one after '
        "another, so that none slows another; then you see them side by side.</p>"
        f'<label class="field"><b>Prompt</b><textarea name="prompt" rows="6">{escape(chosen.prompt)}'
        f'</textarea></label><div class="row examples"><small>Examples</small>{_examples(examples)}</div>'
        f"{_rivals(rivals, chosen.rival)}"
        f'<fieldset class="modes-of"><legend>Plain against</legend><div class="modes">{modes}</div>'
        f"<small>Choose up to {MAX_LANES - 1}.{_refused(facts)}</small></fieldset>"
        f'<div class="row numbers">{_numbers("Rounds", "repeats", REPEATS, chosen.repeats)}'
        f"{_numbers('Longest answer', 'max_tokens', LENGTHS, chosen.max_tokens, ' tokens')}</div></form>"
    )


def _rivals(names: Sequence[str], chosen: str) -> str:
    """The choice of another model, if there is one."""
    if not names:
        return ""
    label = "Speed modes of this model"
    listed = options(("", *names), chosen, lambda name: f"Another model: {name}" if name else label)
    return f'<div class="row"><label><span>Race</span><select name="rival">{listed}</select></label></div>'


def _mode(name: str, *, checked: bool) -> str:
    return (
        f'<label class="mode"><input type="checkbox" name="drafters" value="{escape(name)}"'
        f"{' checked' if checked else ''}><span>{escape(mode_name(name))}</span></label>"
    )


def _examples(examples: Sequence[Suggestion]) -> str:
    return "".join(
        f'<button type="button" class="quiet" data-do="race-prompt" data-text="{escape(one.prompt)}">'
        f"{escape(one.title)}</button>"
        for one in examples
    )


def _refused(facts: ModelFacts) -> str:
    """Why the other modes cannot run, each reason once."""
    modes: dict[str, list[str]] = {}
    for name, why in facts.refused:
        modes.setdefault(why, []).append(mode_name(name))
    reasons = (f"{', '.join(names)}: {why}" for why, names in modes.items())
    said = "".join(f" {escape(sentence(each))}" for each in reasons)
    return f" Others do not run with this model. {said}" if said else ""


def _numbers(label: str, name: str, values: Sequence[int], now: int, unit: str = "") -> str:
    listed = options(sorted({*values, now}), now, lambda value: f"{value:,}{unit}")
    return f'<label><span>{label}</span><select name="{name}">{listed}</select></label>'
