"""The command ``verify``: the table of every drafter against plain decoding."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from app.arguments import VerifyOptions
from app.catalog import resolve
from app.placement import place
from app.progress import show_progress
from app.text import ChatText
from app.verify import (
    PLAIN,
    Bench,
    Difference,
    DrafterResult,
    Verification,
    choose_drafters,
    verify,
)
from app.worker import EngineWorker
from engine.hardware.plan import Wishes
from engine.request import ModelSpec

EXACT = "float32"  # in bfloat16 a pass of many rows rounds unlike a pass of one


def prove(options: VerifyOptions) -> int:
    """Print the table; 0 when every token agrees, 1 otherwise."""
    resolved = replace(resolve(options.settings, options.model), dtype=EXACT)
    spec = place(options.settings, resolved, _exactly(resolved)).spec
    bench, verification = asyncio.run(_verified(options, spec))
    sys.stdout.writelines(f"{line}\n" for line in table(bench, verification))
    return 0 if verification.agrees else 1


def _exactly(spec: ModelSpec) -> Wishes:
    """A GGUF file has its own number format."""
    return Wishes(dtype=None if spec.backend == "llama_cpp" else EXACT)


async def _verified(options: VerifyOptions, spec: ModelSpec) -> tuple[Bench, Verification]:
    text = ChatText.load(Path(spec.folder))
    worker = EngineWorker(spec)
    try:
        facts = await worker.start()
        bench = Bench(worker, facts, text, options.max_tokens, show_progress)
        drafters = choose_drafters(options.drafters, facts)
        return bench, await verify(bench, options.prompts, drafters)
    finally:
        show_progress("")
        await worker.close()


def table(bench: Bench, verification: Verification) -> Iterator[str]:
    """The lines to print."""
    yield (
        f"{bench.facts.name}, {EXACT}, greedy, at most {bench.max_tokens} tokens an answer; "
        f"{verification.skipped} prompts skipped (past the context of {bench.facts.context})"
    )
    yield f"{'drafter':<12}{'prompts':>9}{'tokens':>9}{'agree':>9}{'tokens per pass':>18}"
    for result in verification.results:
        yield _row(result)
    for name, why in bench.facts.refused:
        yield f"{name} cannot run with this model: {why}"
    for result in verification.results:
        if result.first is not None:
            yield _sentence(bench, result.drafter, result.first)
    yield _conclusion(verification)


def _row(result: DrafterResult) -> str:
    agree = "-" if result.drafter == PLAIN else str(result.agreeing_tokens)
    return (
        f"{result.drafter:<12}{result.prompts:>9}{result.tokens:>9}{agree:>9}"
        f"{result.tokens_per_pass:>18.2f}"
    )


def _sentence(bench: Bench, drafter: str, first: Difference) -> str:
    gap = "is not known" if first.gap is None else f"is {first.gap:.6g}"
    return (
        f"{drafter} differs first in prompt {first.prompt} at token {first.token}: "
        f"plain {_token(bench, first.plain)}, drafted {_token(bench, first.drafted)}; "
        f"plain's gap between its two largest logits there {gap}"
    )


def _token(bench: Bench, token: int | None) -> str:
    return "ends" if token is None else f"{token} ({bench.text.decode([token])!r})"


def _conclusion(verification: Verification) -> str:
    if verification.agrees:
        return "every token agrees"
    if not all(result.prompts for result in verification.results):
        return "nothing was verified: no prompt fits the context"
    return "tokens differ"
