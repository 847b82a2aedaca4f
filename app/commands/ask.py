"""The command ``ask``: one answer, streamed to the terminal."""

import asyncio
import json
import sys
from contextlib import aclosing

from app.chat.assistant import Assistant
from app.commands.options import AskOptions
from app.errors import RequestFailed
from app.progress import waiting
from app.request import Completion, Delta


def ask(options: AskOptions) -> int:
    """Answer on standard output; returns the exit code."""
    report = asyncio.run(_answer(options))
    if report.text and not report.text.endswith("\n"):
        sys.stdout.write("\n")
    if options.json:
        sys.stdout.write(as_json(report) + "\n")
    sys.stdout.flush()
    if report.error is not None:
        raise RequestFailed(report.error)
    return 0


def as_json(report: Completion) -> str:
    """The last line for programs."""
    stats = report.stats
    return json.dumps(
        {
            "token_ids": report.token_ids,
            "text": report.text,
            "drafter": stats.drafter,
            "reason": stats.why,
            "passes": stats.passes,
            "drafted": stats.drafted,
            "accepted": stats.accepted,
            "seconds": round(report.seconds, 6),
            "tokens_per_second": round(report.tokens_per_second, 3),
            "finish_reason": report.finish_reason.value,
            "prompt_tokens": stats.prompt_tokens,
        }
    )


async def _answer(options: AskOptions) -> Completion:
    opening = Assistant.open(options.settings, options.model)
    assistant = await waiting(f"loading {options.model}", opening)
    for notice in (assistant.history.notice, *assistant.facts.notes):
        if notice:
            sys.stderr.write(f"{notice}\n")
    try:
        async with aclosing(assistant.reply(options.turn)) as deltas:
            async for delta in deltas:
                if isinstance(delta, Completion):
                    return delta
                _show(delta)
    finally:
        await assistant.close()
    raise AssertionError("an answer ends with a report")


def _show(delta: Delta) -> None:
    sys.stdout.write(delta.tagged)
    sys.stdout.flush()
