"""The command ``verify``: the table of every drafter against plain decoding."""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from app.bench.prompt_files import Turns, read_prompts
from app.bench.verify import Bench, Difference, DrafterResult, Verification, choose_drafters, verify
from app.commands.arguments import add_answer_tokens, add_dtype, add_model, add_prompts, set_command
from app.models.catalog import resolve
from app.placement.plans import INT8, dtype_name, place_with_dtype
from app.progress import show_progress
from app.request import ALL_DRAFTERS, check_drafter
from app.settings import Settings
from app.text.chat_text import ChatText
from app.worker.worker import EngineWorker
from engine.hardware.footprint import LLAMA_CPP
from engine.request import PLAIN, ModelSpec

EXACT = "float32"  # in bfloat16 a pass of many rows rounds unlike a pass of one


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """Which drafters to verify on which prompts."""

    settings: Settings
    model: str
    drafters: tuple[str, ...]  # names, or ``all``
    prompts: tuple[Turns, ...]
    max_tokens: int


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_model(parser)
    add_dtype(parser)
    parser.add_argument(
        "--draft",
        metavar="DRAFTERS",
        default=ALL_DRAFTERS,
        help="names with commas, or all (default %(default)s)",
    )
    add_prompts(parser)
    add_answer_tokens(parser)
    set_command(parser, _options, run)


def _options(given: argparse.Namespace, settings: Settings) -> VerifyOptions:
    drafters = tuple(dict.fromkeys(name.strip() for name in given.draft.split(",")))
    for name in drafters:
        if name != ALL_DRAFTERS:
            check_drafter(name)
    chosen = replace(settings, dtype=given.dtype)
    prompts = tuple(read_prompts(given.prompts, given.limit))
    return VerifyOptions(chosen, given.model, drafters, prompts, given.max_tokens)


def run(options: VerifyOptions) -> int:
    """Print the table; 0 when every token agrees, 1 otherwise."""
    spec = exact_spec(options)
    bench, verification = asyncio.run(_verified(options, spec))
    sys.stdout.writelines(f"{line}\n" for line in table(bench, verification, dtype_name(spec)))
    return 0 if verification.agrees else 1


def exact_spec(options: VerifyOptions) -> ModelSpec:
    """Settings in which a pass of many rows rounds like a pass of one, as far as possible.

    A GGUF file keeps its own number format; so only its caches are set to float32.
    """
    settings, resolved = options.settings, resolve(options.settings, options.model)
    gguf = resolved.backend == LLAMA_CPP
    spec = place_with_dtype(settings, resolved, settings.dtype or (None if gguf else EXACT)).spec
    if gguf:
        return replace(spec, kv_type="f32", flash_attention=False)
    return replace(spec, dtype=EXACT) if settings.dtype == INT8 else spec


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


def table(bench: Bench, verification: Verification, numbers: str = EXACT) -> Iterator[str]:
    """The lines to print; ``numbers`` names the format of the weights."""
    yield (
        f"{bench.facts.name}, {numbers}, greedy, at most {bench.max_tokens} tokens an answer; "
        f"{verification.skipped} prompts skipped (past the context of {bench.facts.context})"
    )
    yield f"{'drafter':<12}{'prompts':>9}{'tokens':>9}{'agree':>9}{'tokens per pass':>18}"
    for result in verification.results:
        yield _row(result)
    yield from bench.facts.notes
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
