"""A race as HTML: lanes side by side while it runs, then its result."""

import json
from collections.abc import Sequence
from html import escape

from app.bench.compare.race import LaneResult, LiveLane, Race
from app.bench.measure import Difference
from engine.request import AUTO
from ui.chat import markdown
from ui.chat.caption import mode_name
from ui.compare.plots import plots
from ui.history.charts import percent, times
from ui.widgets import bar, counted, sentence

_HEADS = ("Lane", "Speed-up", "Tokens/s", "First token", "Per pass", "Accepted", "Tokens")
SHORTEST, LONGEST = 4.0, 20.0  # seconds of a replay of the slowest lane


def status(race: Race | None, *, busy: bool, waiting: bool) -> str:
    """What happens now, in one sentence. HTML."""
    if race is None or not busy:
        return ""
    if waiting:
        return "Waiting: an answer in the chat goes first."
    if race.options.rival and not any(one.running or one.last for one in race.lanes.values()):
        return f"Loading {escape(race.options.rival)}."
    if not race.round:
        return "Warm-up, not counted."
    return f"Round {race.round} of {race.options.repeats}."


def title(race: Race, name: str) -> str:
    """A lane's name for people: a mode or a model."""
    return name if race.options.rival else mode_name(name)


def lanes(race: Race | None, *, busy: bool) -> str:
    """Every lane with its text, speed and bar. HTML."""
    if race is None:
        return ""
    results = {one.name: one for one in race.results}
    shown = "".join(
        _lane(at, lane, race, results.get(name), busy=busy)
        for at, (name, lane) in enumerate(race.lanes.items())
    )
    state = "running" if busy else "over" if results else "stopped"
    replay = _replay(race.results)
    button = (
        '<div class="row again"><button type="button" class="soft" data-do="replay">Watch again</button>'
        f"<small>{_pace(race.results)}</small></div>"
    )
    return (
        f'<section aria-label="Lanes"><div class="lanes" data-state="{state}"{replay}>{shown}</div>'
        f"{button if results else ''}</section>"
    )


def _lane(place: int, lane: LiveLane, race: Race, result: LaneResult | None, *, busy: bool) -> str:
    name = escape(title(race, lane.name))
    goal = race.goal or race.options.max_tokens
    tokens, text = lane.tokens, lane.text
    if result is not None:
        tokens = len(result.shown.ids)
        text = "".join(one.text for one in result.shown.passes)
    share = min(1.0, tokens / goal) if goal else 0.0
    now = " now" if lane.running and busy else ""
    return (
        f'<article class="lane hue-{place}{now}"><div class="head"><h3><i class="dot hue-{place}"></i>'
        f"{name}</h3>{_speedup(result)}</div>"
        f'<p class="pace"><b>{_rate(lane, result)}</b> tokens/s</p>'
        f"{bar([('reach', share, f'{tokens} tokens')], f'{name}: {tokens} tokens')}"
        f'<div class="written" tabindex="0" role="region" aria-label="Answer of {name}">'
        f'{escape(text)}</div><p class="note">{_tokens(tokens, result)}</p></article>'
    )


def _speedup(result: LaneResult | None) -> str:
    if result is None or result.speedup is None:
        return ""
    kind = " good" if result.speedup > 1 else ""
    return f'<span class="tag{kind}">{times(result.speedup)}</span>'


def _rate(lane: LiveLane, result: LaneResult | None) -> str:
    if result is not None:
        return f"{result.rate:,.0f}"
    rate = lane.rate if lane.running else lane.last.rate if lane.last else None
    return "\u2013" if rate is None else f"{rate:,.0f}"


def _tokens(tokens: int, result: LaneResult | None) -> str:
    if result is None:
        return f"{tokens:,} tokens"
    return f"{tokens:,} tokens, {result.counts.tokens_per_pass:.1f} per pass"


def _replay(results: Sequence[LaneResult]) -> str:
    """For compare.js: every pass of every lane as [seconds, tokens, text]. An attribute."""
    if not results:
        return ""
    passes = [[[p.seconds, p.tokens, p.text] for p in one.shown.passes] for one in results]
    return f' data-slow="{_slow(results):.4f}" data-replay="{escape(json.dumps(passes))}"'


def _slow(results: Sequence[LaneResult]) -> float:
    """The factor of the replay's seconds to the measured ones."""
    last = max((one.shown.passes[-1].seconds for one in results if one.shown.passes), default=1.0)
    return min(max(last, SHORTEST), LONGEST) / last


def _pace(results: Sequence[LaneResult]) -> str:
    slow = _slow(results) if results else 1.0
    if slow > 1.05:
        return f"Each lane's median run, {slow:.1f} times slower than it was."
    if slow < 0.95:
        return f"Each lane's median run, {1 / slow:.1f} times faster than it was."
    return "Each lane's median run, as fast as it was."


def answers(race: Race | None) -> str:
    """What the lanes wrote, with its formulas drawn; nothing where it has none. Markdown."""
    results = race.results if race is not None else ()
    texts = dict.fromkeys("".join(one.text for one in each.shown.passes) for each in results)
    drawn = [text for text in map(markdown.shown, texts) if markdown.has_formulas(text)]
    return "\n\n---\n\n".join(drawn)


def verdict(race: Race | None) -> str:
    """Which lane was fastest, whether the tokens are identical, figures and charts. HTML."""
    if race is None or not race.results:
        return ""
    names = [title(race, one.name) for one in race.results]
    return (
        f'<section aria-labelledby="verdict"><h2 id="verdict">{_headline(race)}</h2>'
        f"{_agreement(race)}{_table(race)}{plots(race.results, names)}{_why(race.results)}"
        f'<p class="note">{_conditions(race)}</p></section>'
    )


def _headline(race: Race) -> str:
    timed = [(one.speedup, one) for one in race.results if one.speedup is not None]
    if not timed:
        return "Nothing could be timed: the answer is too short"
    speedup, best = max(timed, key=lambda pair: pair[0])
    name, first = (escape(title(race, one.name)) for one in (best, race.results[0]))
    if race.options.rival:
        return f"{name} wrote {speedup:.2f} times as many tokens a second as {first}"
    if speedup <= 1:
        return f"No mode was faster than plain: {name} came closest, at {times(speedup)}"
    return f"{name} was {speedup:.2f} times as fast as plain"


def _agreement(race: Race) -> str:
    if race.options.rival:
        return (
            '<p id="agreement">Two models, so their tokens are not compared. A token of one may be longer '
            "than a token of the other.</p>"
        )
    different = [(one, one.difference) for one in race.results if one.difference is not None]
    tokens = len(race.results[0].shown.ids)
    if not different:
        return (
            f'<p id="agreement" class="same"><b>Identical tokens.</b> Every lane wrote the same {tokens:,} '
            "tokens in every round.</p>"
        )
    texts = "".join(f"<p>{_difference(one, found)}</p>" for one, found in different)
    return f'<div id="agreement" class="different">{texts}</div>'


def _difference(result: LaneResult, found: Difference) -> str:
    ours, theirs = (
        "the end" if token is None else f"<q>{escape(text)}</q>"
        for token, text in zip((found.plain, found.drafted), result.words, strict=True)
    )
    gap = ""
    if found.gap is not None:
        gap = (
            f" The logits of plain's two likeliest tokens there differ by {found.gap:.3g}: near 0 it is a tie that "
            "rounding decides, as passes of different widths add numbers in another order."
        )
    return (
        f"<b>{escape(mode_name(result.name))} first differs at token {found.token + 1:,}</b> of round "
        f"{found.repeat}: plain wrote {ours}, it wrote {theirs}.{gap}"
    )


def _table(race: Race) -> str:
    heads = _HEADS[:-1] if race.options.rival else _HEADS
    head = "".join(f'<th scope="col">{one}</th>' for one in heads)
    rows = "".join(_row(title(race, one.name), one, len(heads) - 1) for one in race.results)
    return (
        '<div class="wide" tabindex="0" role="region" aria-label="Figures of the race">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(name: str, one: LaneResult, wide: int) -> str:
    spread = ""
    if one.speedups:
        spread = f"<small>{min(one.speedups):.2f} to {max(one.speedups):.2f}</small>"
    cells = (
        "\u2013" if one.speedup is None else f"{times(one.speedup)}{spread}",
        f"{one.rate:,.0f}",
        f"{one.first_seconds * 1000:,.0f} ms",
        f"{one.counts.tokens_per_pass:.2f}",
        percent(one.counts.accepted / one.counts.drafted if one.counts.drafted else None),
        "identical" if one.difference is None else f"differ at {one.difference.token + 1:,}",
    )
    shown = "".join(f"<td>{cell}</td>" for cell in cells[:wide])
    return f'<tr><th scope="row">{escape(name)}</th>{shown}</tr>'


def _why(results: Sequence[LaneResult]) -> str:
    why = next((one.shown.stats.why for one in results if one.name == AUTO), "")
    return f'<p class="note">{escape(sentence(why))}</p>' if why else ""


def _conditions(race: Race) -> str:
    rounds = counted(race.options.repeats, "timed round")
    over = escape(race.model) if race.options.rival else "plain"
    return (
        f"{rounds} after a warm-up that is not counted. Every lane ran once a round, and the order changed "
        "from round to round. Before each run all caches were emptied, and the drafters had not seen "
        f"this answer. Figures are medians; speed-up is over {over} in the same round, decoding only."
    )
