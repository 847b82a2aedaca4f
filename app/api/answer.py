"""One answer as bodies and chunks: OpenAI's fields, llama-server's timings, our speculation."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.turn import Report
from engine.request import Logprob, Stats

Body = dict[str, Any]
Spelling = Callable[[int], bytes]
IMPOSSIBLE = -9999.0  # OpenAI's number for it; JSON has no infinity


def usage(report: Report) -> Body:
    """Token counts; cached tokens are part of the prompt's, those of a prediction are there with one."""
    stats, told = report.stats, report.foretold
    details = {} if told is None else {
        "completion_tokens_details": {
            "accepted_prediction_tokens": told.accepted,
            "rejected_prediction_tokens": told.rejected,
        }
    }  # fmt: skip
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.emitted,
        "total_tokens": stats.prompt_tokens + stats.emitted,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        **details,
    }


def _pace(name: str, count: int, seconds: float) -> Body:
    return {
        f"{name}_n": count,
        f"{name}_ms": round(seconds * 1000, 3),
        f"{name}_per_token_ms": round(seconds * 1000 / count, 3) if count else 0.0,
        f"{name}_per_second": round(count / seconds, 2) if seconds > 0 else 0.0,
    }


def timings(stats: Stats) -> Body:
    """Times under llama-server's names; the draft's are there only when something was drafted."""
    fresh = stats.prompt_tokens - stats.cached_tokens
    drafted = {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return {
        "cache_n": stats.cached_tokens,
        **_pace("prompt", fresh, stats.prompt_seconds),
        **_pace("predicted", stats.emitted, stats.decode_seconds),
        **(drafted if stats.drafted else {}),
    }


def speculation(report: Report) -> Body:
    """What ran, and why."""
    return {
        "drafter": report.stats.drafter,
        "reason": report.stats.why,
        "passes": report.stats.passes,
        "tokens_per_pass": round(report.tokens_per_pass, 3),
    }


def log_probabilities(told: Sequence[Logprob], spelt: Spelling) -> Body | None:
    """Of every token and the likeliest in its place; None where nobody asked."""
    if not told:
        return None
    content = [
        {
            **_entry(one.token, one.value, spelt),
            "top_logprobs": [_entry(token, value, spelt) for token, value in one.likeliest],
        }
        for one in told
    ]
    return {"content": content, "refusal": None}


def _entry(token: int, value: float, spelt: Spelling) -> Body:
    """A part of a character has its bytes, and a replacement character to look at."""
    said = spelt(token)
    text = said.decode(errors="replace")
    return {"token": text, "logprob": max(value, IMPOSSIBLE), "bytes": list(said)}


@dataclass(frozen=True, slots=True)
class Answer:
    """What every body and chunk of one answer repeats."""

    model: str
    spelt: Spelling  # the bytes of a token
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    def _body(self, kind: str, choices: list[Body]) -> Body:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": None,
            "choices": choices,
        }

    def completion(self, report: Report) -> Body:
        """The whole answer at once."""
        message = {"role": "assistant", "content": report.text, "refusal": None}
        reason = report.finish_reason.value
        told = log_probabilities(report.logprobs, self.spelt)
        choice = {"index": 0, "message": message, "logprobs": told, "finish_reason": reason}
        return {
            **self._body("chat.completion", [choice]),
            "usage": usage(report),
            "timings": timings(report.stats),
            "speculation": speculation(report),
        }

    def chunk(
        self,
        delta: Mapping[str, str],
        finish_reason: str | None = None,
        told: Sequence[Logprob] = (),
    ) -> Body:
        """One step of a stream."""
        choice = {
            "index": 0,
            "delta": dict(delta),
            "logprobs": log_probabilities(told, self.spelt),
            "finish_reason": finish_reason,
        }
        return self._body("chat.completion.chunk", [choice])

    def last_chunk(self, report: Report) -> Body:
        """The step that says why the answer ended, and how it went."""
        return {
            **self.chunk({}, report.finish_reason.value),
            "timings": timings(report.stats),
            "speculation": speculation(report),
        }

    def usage_chunk(self, report: Report) -> Body:
        """The extra step with token counts and no choice, sent only to those who asked."""
        return {**self._body("chat.completion.chunk", []), "usage": usage(report)}
