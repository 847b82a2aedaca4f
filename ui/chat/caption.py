"""What stands under an answer: what ran, how fast, and why; pure functions of its figures."""

from html import escape

from app.history.records import AnswerFacts
from engine.drafters import describe
from engine.request import FinishReason, tokens_per_pass

_INTERRUPTED = "Cut off: Slipstream ended while this was being written. Continue goes on from here."

LEAST_TIMED = 8  # passes; fewer tell how busy the machine was just then, not what drafting brings

_WHYS = {"asked for": "you chose this mode"}  # as the person under whose question it stands


def mode_name(drafter: str) -> str:
    """A drafter's name for people."""
    return describe(drafter).title


def caption(facts: AnswerFacts | None, reason: FinishReason | None) -> str:
    """Two lines under a whole answer; or what broke off. HTML."""
    if facts is not None and facts.error:
        return f'<p class="problem">{escape(sentence(facts.error))}</p>'
    if facts is None:
        why = _INTERRUPTED if reason is None else "Kept from another place; nothing was measured."
        return f'<p class="why">{why}</p>'
    why = _WHYS.get(facts.why, facts.why)
    return f'{_figures(facts)}<p class="why">{escape(_ending(facts, reason) + sentence(why))}</p>'


def sentence(message: str) -> str:
    """A message of an error as a sentence of its own; a file's name keeps its letters."""
    first = message.split(maxsplit=1)[0] if message.strip() else ""
    named = "." in first.rstrip(".,:;")
    text = message if named else message[:1].upper() + message[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


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
    if facts.passes:
        per_pass = tokens_per_pass(facts.passes, facts.accepted, facts.emitted)
        parts.append(f"{per_pass:.1f} tokens/pass")
    spans = "".join(f"<span>{part}</span>" for part in parts)
    return f'<p class="figures">{spans}</p>'


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _mode(facts: AnswerFacts) -> str:
    """What ran; under auto also which drafter brought most tokens."""
    name = mode_name(facts.drafter)
    same = facts.leading == facts.drafter
    return name if same else f"{name}: {mode_name(facts.leading).lower()}"


def _ending(facts: AnswerFacts, reason: FinishReason | None) -> str:
    if reason is FinishReason.CANCELLED:
        return "Stopped by you. "
    if reason is FinishReason.LENGTH:
        return f"Cut off after {facts.emitted:,} tokens. "
    return ""
