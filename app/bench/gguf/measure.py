"""The measuring loop of ``bench gguf``: lanes take turns at every prompt, in one process.

What a session learns on its first questions is not counted. Every repeat has a fresh engine, so
that no drafter remembers the answer that it is about to give.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from app.bench.claims.instrument import Loaded
from app.bench.claims.prompts import PromptSet
from app.bench.gguf.rivals import LOOKUP, PLAIN, Rival, Runner, Timed
from app.errors import RequestFailed
from app.prompts import Turns
from app.text import ChatText
from app.turn import Message
from engine.build import load
from engine.engine import Engine
from engine.request import Done, FinishReason, GenerationRequest, ModelSpec, Tokens

OURS, AUTO = "plain", "auto"
CHORES, PROBLEMS = "text chores", "GSM8K"
FIRST = 3  # questions and chores at the start of a session
EACH = 3  # chores, and word problems
TOKENS, REPEATS = 48, 3
DTYPE = "bfloat16"  # of a draft model in torch
Category = tuple[str, tuple[Turns, ...]]


@dataclass
class Figures:
    """Timed answers by category, lane and prompt; one for every repeat."""

    timed: dict[tuple[str, str, int], list[Timed]] = field(default_factory=dict)

    def rate(self, category: str, lane: str) -> float:
        """Tokens per second: the sum of every prompt's median seconds per token."""
        own = [t for (c, name, _), t in self.timed.items() if (c, name) == (category, lane)]
        counted = [[t for t in runs if t.tokens] for runs in own]
        each = [(median(t.tokens for t in r), median(t.seconds for t in r)) for r in counted if r]
        return sum(n for n, _ in each) / sum(s for _, s in each) if each else 0.0

    def ratio(self, category: str, lane: str, other: str) -> float:
        """Of two lanes' seconds per token: the median over prompts and repeats taken as pairs."""
        found = [
            ours.rate / theirs.rate
            for (c, name, prompt), runs in self.timed.items()
            if (c, name) == (category, lane)
            for ours, theirs in zip(runs, self.timed[c, other, prompt], strict=True)
            if ours.rate and theirs.rate
        ]
        return median(found) if found else 0.0

    def categories(self) -> list[str]:
        """In the order in which they ran."""
        return list(dict.fromkeys(category for category, _, _ in self.timed))


@dataclass(frozen=True, slots=True)
class _Ours:
    """One lane of an engine."""

    engine: Engine
    drafter: str

    def answer(self, prompt: Sequence[int], tokens: int, stops: frozenset[int]) -> Timed:
        """Seconds are the engine's, of decoding."""
        request = GenerationRequest(tuple(prompt), tokens, stop_tokens=stops, drafter=self.drafter)
        number = self.engine.submit(request)
        ids: list[int] = []
        end: Done | None = None
        while self.engine.busy:
            for _, event in self.engine.step():
                if isinstance(event, Tokens):
                    ids += event.ids
                else:
                    end = event
        if end is None or end.reason is FinishReason.ERROR:
            raise RequestFailed(f"request {number} broke: {end.error if end else 'no end'}")
        stop = end.reason is FinishReason.STOP  # its token was decoded too
        return Timed(tuple(ids), end.stats.decode_seconds, len(ids) + stop)


def categories(prompts: PromptSet) -> list[Category]:
    """Text chores, word problems, and open questions by kind; the first ones are not counted."""
    return [
        ("", prompts.problems[:FIRST] + prompts.edits[:FIRST]),
        (CHORES, prompts.edits[FIRST : FIRST + EACH]),
        (PROBLEMS, prompts.problems[FIRST : FIRST + EACH]),
        *prompts.open,
    ]


def measure_file(
    spec: ModelSpec, file: Path, prompts: PromptSet, progress: Callable[[str], None]
) -> Figures:
    """Own lanes and llama-cpp-python's on one file; raises RequestFailed."""
    progress(f"loading {file.name}")
    text = ChatText.load(Path(spec.folder))
    own = replace(
        spec, folder=str(file), backend="llama_cpp", slots=1, dtype=DTYPE, exit_layer=None,
        acceptance_head=None, threads=os.cpu_count(),
    )  # fmt: skip
    loaded = Loaded(own, *load(own))
    rivals = [Rival(file, loaded.parts.target.context, lookup=kind) for kind in (False, True)]
    figures = Figures()
    try:
        for repeat in range(REPEATS):
            engine = loaded.engine()
            runners: dict[str, Runner] = {
                OURS: _Ours(engine, "none"), AUTO: _Ours(engine, "auto"), PLAIN: rivals[0],
                LOOKUP: rivals[1],
            }  # fmt: skip
            for category, number, ids in _asked(text, categories(prompts), engine.facts.context):
                progress(f"{file.name}, repeat {repeat + 1}: {category or 'warming up'}")
                for lane in _turn(list(runners), repeat + number):
                    timed = runners[lane].answer(ids, TOKENS, text.stop_tokens)
                    if category:
                        figures.timed.setdefault((category, lane, number), []).append(timed)
    finally:
        for rival in rivals:
            rival.close()
    return figures


def _asked(
    text: ChatText, groups: Sequence[Category], context: int
) -> Iterator[tuple[str, int, tuple[int, ...]]]:
    """(category, number, ids) of every first turn that fits."""
    number = 0
    for category, group in groups:
        for turns in group:
            ids = text.encode_chat([Message("user", turns[0])])
            number += 1
            if len(ids) + TOKENS < context:
                yield category, number, ids


def _turn(lanes: list[str], start: int) -> list[str]:
    """The lanes, another one first each time."""
    first = start % len(lanes)
    return lanes[first:] + lanes[:first]
