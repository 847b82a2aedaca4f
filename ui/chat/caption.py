"""The caption under an answer: what drafting did, how fast, and why; pure functions of its figures."""

from html import escape

from app.history.records import AnswerFacts
from engine.drafters import describe
from engine.request import FinishReason, tokens_per_pass
from ui.widgets import sentence

_INTERRUPTED = "Cut off: Slipstream ended during this answer. Use Continue to complete it."
_IMPORTED = "Imported: nothing was measured."

LEAST_TIMED = 8  # passes; a speed-up over fewer is mostly chance

_WHYS = {"asked for": "you chose this mode"}


def mode_name(drafter: str) -> str:
    """A drafter's name for people."""
    return describe(drafter).title


def caption(facts: AnswerFacts | None, reason: FinishReason | None) -> str:
    """One sentence under a whole answer, and its figures on a click; or what failed. HTML."""
    if facts is not None and facts.error:
        return f'<p class="problem">{escape(sentence(facts.error))}</p>'
    if facts is None:
        return f'<p class="about">{_INTERRUPTED if reason is None else _IMPORTED}</p>'
    why = _WHYS.get(facts.why, facts.why)
    return (
        f'<details class="about"><summary>{escape(_ending(facts, reason) + summary(facts))}</summary>'
        f'{_figures(facts)}<p class="why">{escape(sentence(why))}</p></details>'
    )


def summary(facts: AnswerFacts) -> str:
    """What drafting did for an answer, in one sentence."""
    if not facts.drafted:
        chosen = facts.drafter == "none"
        return (
            "Plain decoding, as you chose."
            if chosen
            else "Plain decoding: drafting was not faster here."
        )
    if not facts.accepted:
        return "No guessed token was right."
    way = describe(facts.leading).accepted
    copied = f"{facts.accepted:,} of {facts.emitted:,} tokens {way}"
    if facts.speedup is None or facts.passes < LEAST_TIMED:
        return f"{copied}."
    pace = f"{facts.speedup:.1f}"
    if facts.speedup >= 1.05:
        return f"{pace}\u00d7 faster than plain decoding: {copied}."
    if pace == "1.0":
        return f"As fast as plain decoding: {copied}."
    return f"{pace}\u00d7 the speed of plain decoding, though {copied}."


def _figures(facts: AnswerFacts) -> str:
    parts = [f"<b>{escape(_mode(facts))}</b>"]
    if facts.speedup is not None and facts.drafted and facts.passes >= LEAST_TIMED:
        parts.append(f"<b>{facts.speedup:.1f}\u00d7 plain</b>")
    if facts.decode_seconds > 0:
        parts.append(f"{facts.emitted / facts.decode_seconds:,.0f} tokens/s")
    if facts.first_token_seconds is not None:
        parts.append(f"first token {_seconds(facts.first_token_seconds)}")
    if facts.drafted:
        parts.append(f"{facts.accepted:,}/{facts.drafted:,} drafted accepted")
    if facts.near_ties:
        parts.append(f"near ties decoded again: {facts.near_ties:,}")
    if facts.passes:
        per_pass = tokens_per_pass(facts.passes, facts.accepted, facts.emitted)
        parts.append(f"{per_pass:.1f} tokens/pass")
    spans = "".join(f"<span>{part}</span>" for part in parts)
    return f'<p class="figures">{spans}</p>'


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _mode(facts: AnswerFacts) -> str:
    """The mode; for auto also the drafter of most tokens."""
    name = mode_name(facts.drafter)
    same = facts.leading == facts.drafter
    return name if same else f"{name}: {mode_name(facts.leading).lower()}"


def _ending(facts: AnswerFacts, reason: FinishReason | None) -> str:
    if reason is FinishReason.CANCELLED:
        return "Stopped by you. "
    if reason is FinishReason.LENGTH:
        return f"Cut off after {facts.emitted:,} tokens. "
    return ""
