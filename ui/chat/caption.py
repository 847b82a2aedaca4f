"""The caption under an answer: what drafting did, how fast, and why; pure functions of its figures."""

from html import escape

from app.chat.remote.answer import REMOTE
from app.history.records import AnswerFacts
from engine.drafters import describe
from engine.request import FinishReason, tokens_per_pass
from ui.widgets import sentence

_INTERRUPTED = "Cut off: Slipstream ended during this answer. Use Continue to complete it."
_IMPORTED = "Imported: nothing was measured."

LEAST_TIMED = 8  # passes; a speed-up over fewer is mostly chance

_ABOUT = (
    "Drafting guesses the next tokens; the model checks them all in one pass and keeps only its own. "
    "A token is a word or a part of one. Click for the figures."
)
_TIPS = {
    "away": "The model that answered: its engine may be another machine",
    "plain": "Compared with decoding without drafts, by the measured time of a pass",
    "rate": "Tokens of the answer for each second; reading your message is not counted",
    "first": "From your message to the first token of the answer",
    "accepted": "Drafted tokens that the model accepted, of those that were drafted",
    "ties": "Two tokens were nearly equally likely, so the model looked again, without a draft",
    "passes": "Tokens of the answer for each pass of the model; without drafts it is one",
}
_HIDE = (
    '<button type="button" class="quiet" data-do="captions" title="Settings show them again">'
    "Hide these lines</button>"
)

_WHYS = {"asked for": "you chose this mode"}


def mode_name(drafter: str) -> str:
    """A drafter's name for people."""
    return describe(drafter).title


def caption(facts: AnswerFacts | None, reason: FinishReason | None) -> str:
    """One sentence under a whole answer, and its figures on a click; or what failed. HTML.

    What is not about speed has the class ``told``, and stays where the lines are hidden.
    """
    if facts is not None and facts.error:
        return f'<p class="problem">{escape(sentence(facts.error))}</p>'
    if facts is None:
        return (
            f'<p class="about told">{_INTERRUPTED}</p>'
            if reason is None
            else f'<p class="about">{_IMPORTED}</p>'
        )
    why = _WHYS.get(facts.why, facts.why)
    told = _away(facts) if facts.drafter == REMOTE else summary(facts)
    ending = _ending(facts, reason)
    said = escape(ending + told)
    kind = "about told" if ending or facts.drafter == REMOTE else "about"
    return (
        f'<details class="{kind}"><summary data-tip="{escape(_ABOUT)}">{said}</summary>'
        f'{_figures(facts)}<p class="why">{escape(sentence(why))} {_HIDE}</p></details>'
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


def _away(facts: AnswerFacts) -> str:
    """Where an answer came from that did not come from this machine, and what was told of its drafts."""
    came = f"From {facts.model}, on another engine"
    if not facts.drafted:
        return f"{came}."
    return f"{came}, which accepted {facts.accepted:,} of {facts.drafted:,} drafted tokens."


def _figures(facts: AnswerFacts) -> str:
    leading = (facts.model, _TIPS["away"]) if facts.drafter == REMOTE else (
        _mode(facts), describe(facts.leading).summary
    )  # fmt: skip
    parts = [_figure(f"<b>{escape(leading[0])}</b>", leading[1])]
    if facts.speedup is not None and facts.drafted and facts.passes >= LEAST_TIMED:
        parts.append(_figure(f"<b>{facts.speedup:.1f}\u00d7 plain</b>", _TIPS["plain"]))
    if facts.decode_seconds > 0:
        rate = f"{facts.emitted / facts.decode_seconds:,.0f} tokens/s"
        parts.append(_figure(rate, _TIPS["rate"]))
    if facts.first_token_seconds is not None:
        parts.append(_figure(f"first token {_seconds(facts.first_token_seconds)}", _TIPS["first"]))
    if facts.drafted:
        taken = f"{facts.accepted:,}/{facts.drafted:,} drafted accepted"
        parts.append(_figure(taken, _TIPS["accepted"]))
    if facts.near_ties:
        parts.append(_figure(f"near ties decoded again: {facts.near_ties:,}", _TIPS["ties"]))
    if facts.passes:
        per_pass = tokens_per_pass(facts.passes, facts.accepted, facts.emitted)
        parts.append(_figure(f"{per_pass:.1f} tokens/pass", _TIPS["passes"]))
    return f'<p class="figures">{"".join(parts)}</p>'


def _figure(html: str, tip: str) -> str:
    """A figure, explained where the pointer or the focus is. HTML."""
    return f'<span tabindex="0" data-tip="{escape(tip)}" aria-description="{escape(tip)}">{html}</span>'


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
