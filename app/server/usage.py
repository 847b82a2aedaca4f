"""What every protocol reports of an answer: OpenAI's counts, llama-server's timings, our speculation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from app.request import Completion
from engine.request import Logprob, Stats

Body = dict[str, Any]
TokenBytes = Callable[[int], bytes]
IMPOSSIBLE = -9999.0  # OpenAI's number for it; JSON has no infinity


def usage(completion: Completion) -> Body:
    """Token counts; those of reasoning and of a prediction only where there is one.

    Cached tokens are part of the prompt's, reasoning tokens part of the answer's.
    """
    stats, prediction = completion.stats, completion.prediction
    details: Body = {}
    if completion.reasoning_tokens:
        details["reasoning_tokens"] = completion.reasoning_tokens
    if prediction is not None:
        details["accepted_prediction_tokens"] = prediction.accepted
        details["rejected_prediction_tokens"] = prediction.rejected
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.emitted,
        "total_tokens": stats.prompt_tokens + stats.emitted,
        "prompt_tokens_details": {"cached_tokens": stats.cached_tokens},
        **({"completion_tokens_details": details} if details else {}),
    }


def summed_up(completions: Sequence[Completion], each: int | None = None) -> Completion:
    """The answers to one request as one: sums of counts, a prompt once, the longest of the times.

    ``each`` answers have the same prompt; None: all of them.
    """
    if len(completions) == 1:
        return completions[0]
    stats = [one.stats for one in completions]
    predictions = [one.prediction for one in completions if one.prediction is not None]
    counts = {
        name: sum(getattr(one, name) for one in stats)
        for name in ("emitted", "passes", "drafted", "accepted", "near_ties")
    }
    for name in ("prompt_tokens", "cached_tokens"):
        counts[name] = sum(getattr(one, name) for one in stats[:: each or len(stats)])
    seconds = {
        name: max(getattr(one, name) for one in stats)
        for name in ("prompt_seconds", "decode_seconds")
    }
    prediction = replace(
        predictions[0],
        accepted=sum(one.accepted for one in predictions),
        rejected=sum(one.rejected for one in predictions),
    ) if predictions else None  # fmt: skip
    return replace(
        completions[0],
        stats=replace(stats[0], **counts, **seconds),
        prediction=prediction,
        reasoning_tokens=sum(one.reasoning_tokens for one in completions),
    )


def _pace(name: str, count: int, seconds: float) -> Body:
    return {
        f"{name}_n": count,
        f"{name}_ms": round(seconds * 1000, 3),
        f"{name}_per_token_ms": round(seconds * 1000 / count, 3) if count else 0.0,
        f"{name}_per_second": round(count / seconds, 2) if seconds > 0 else 0.0,
    }


def timings(stats: Stats) -> Body:
    """Times under llama-server's names; those of drafts only where something was drafted."""
    fresh = stats.prompt_tokens - stats.cached_tokens
    drafted = {"draft_n": stats.drafted, "draft_n_accepted": stats.accepted}
    return {
        "cache_n": stats.cached_tokens,
        **_pace("prompt", fresh, stats.prompt_seconds),
        **_pace("predicted", stats.emitted, stats.decode_seconds),
        **(drafted if stats.drafted else {}),
    }


def timings_and_speculation(completion: Completion) -> Body:
    """Times, and what drafted."""
    speculation = {
        "drafter": completion.stats.drafter,
        "reason": completion.stats.why,
        "passes": completion.stats.passes,
        "tokens_per_pass": round(completion.tokens_per_pass, 3),
        "near_ties": completion.stats.near_ties,
    }
    return {"timings": timings(completion.stats), "speculation": speculation}


def log_probabilities(logprobs: Sequence[Logprob], token_bytes: TokenBytes) -> Body | None:
    """Of every token and the likeliest in its place; None where none were requested."""
    if not logprobs:
        return None
    content = [
        {
            **_entry(one.token, one.value, token_bytes),
            "top_logprobs": [_entry(token, value, token_bytes) for token, value in one.likeliest],
        }
        for one in logprobs
    ]
    return {"content": content, "refusal": None}


def _entry(token: int, value: float, token_bytes: TokenBytes) -> Body:
    """A part of a character has its bytes, and a replacement character as text."""
    found = token_bytes(token)
    text = found.decode(errors="replace")
    return {"token": text, "logprob": max(value, IMPOSSIBLE), "bytes": list(found)}
