"""What a draft model learns from: text that its target writes itself (DistillSpec, on-policy data).

A draft is read behind the target's own tokens, not behind the text that the target was taught. So
the target answers thousands of prompts, half of them greedily, and the draft model learns its
distribution on every token of those answers.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.build import assemble
from engine.errors import NumericalError
from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import Target
from engine.request import FinishReason, GenerationRequest, ModelSpec, SamplingParams, Tokens

TEMPERATURES = (0.0, 1.0, 0.0, 0.6)  # of the n-th prompt, in turns
TOGETHER = 64  # prompts that are answered in one batch, and written at once


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt as token ids, and how it is to be answered."""

    prompt: tuple[int, ...]
    law: SamplingParams


@dataclass(frozen=True, slots=True)
class Answered:
    """A prompt and what the target said to it, token ids with the end token if it came."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def plain_answers(
    target: Target, asked: Sequence[Asked], limit: int, stop_tokens: frozenset[int]
) -> list[tuple[int, ...]]:
    """Answers of at most ``limit`` tokens, decoded plainly, all in one batch.

    Raises NumericalError when the target failed.
    """
    spec = ModelSpec("target", "", slots=max(1, len(asked)))
    engine = assemble(spec, DrafterResources(target), "answers are decoded plainly")
    answers: dict[int, list[int]] = {}  # by request
    for one in asked:
        request = GenerationRequest(one.prompt, limit, one.law, stop_tokens, drafter="none")
        answers[engine.submit(request)] = []
    while engine.busy:
        for request_id, event in engine.step():
            if isinstance(event, Tokens):
                answers[request_id] += event.ids
            elif event.reason is FinishReason.ERROR:
                raise NumericalError(event.error or "the target failed while it answered")
    return [tuple(answer) for answer in answers.values()]


def own_answers(
    target: Target,
    prompts: Sequence[tuple[int, ...]],
    limit: int,
    end: int,
    saved: Path,
) -> Iterator[list[Answered]]:
    """All answers so far after every batch; those that ``saved`` holds are read, not made again.

    An answer of fewer than ``limit`` tokens was ended by the token ``end``, and learns to.
    """
    done = _mended(saved)
    while len(done) < len(prompts):
        batch = prompts[len(done) : len(done) + TOGETHER]
        asked = [Asked(p, _law(n)) for n, p in enumerate(batch, len(done))]
        answers = plain_answers(target, asked, limit, frozenset({end}))
        new = [
            Answered(p, a if len(a) == limit else (*a, end))
            for p, a in zip(batch, answers, strict=True)
        ]
        with saved.open("a") as file:
            file.writelines(_lines(new))
        done = done + new
        yield done
    yield done


def read_answers(saved: Path) -> list[Answered]:
    """What an earlier run wrote; a last line that was cut short is left out."""
    if not saved.exists():
        return []
    whole = saved.read_text().rpartition("\n")[0]
    rows = (json.loads(line) for line in whole.splitlines())
    return [Answered(tuple(prompt), tuple(answer)) for prompt, answer in rows]


def _mended(saved: Path) -> list[Answered]:
    """What an earlier run wrote, in a file that more can be written behind."""
    done, part = read_answers(saved), saved.with_suffix(".part")
    part.write_text("".join(_lines(done)))
    part.replace(saved)
    return done


def _lines(answers: Sequence[Answered]) -> list[str]:
    return [json.dumps([one.prompt, one.answer]) + "\n" for one in answers]


def _law(number: int) -> SamplingParams:
    temperature = TEMPERATURES[number % len(TEMPERATURES)]
    return SamplingParams(temperature, seed=number) if temperature else SamplingParams()
