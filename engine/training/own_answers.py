"""Answers of the target as training data for its draft model (DistillSpec, on-policy data).

A draft follows the target's own tokens, not the target's training text. So the target answers
thousands of prompts, half of them greedily, and the draft model learns its distribution on every
token of those answers.
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

TEMPERATURES = (0.0, 1.0, 0.0, 0.6)  # the n-th prompt uses the n-th of these, in rotation
BATCH = 64  # prompts per batch


@dataclass(frozen=True, slots=True)
class Question:
    """A prompt as token ids, and its sampling parameters."""

    prompt: tuple[int, ...]
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt and the target's answer, token ids, with the end token unless the answer was cut."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]


def plain_answers(
    target: Target, questions: Sequence[Question], limit: int, stop_tokens: frozenset[int]
) -> list[tuple[int, ...]]:
    """Answers of at most ``limit`` tokens, by plain decoding in one batch.

    Raises NumericalError if the target failed.
    """
    spec = ModelSpec("target", "", slots=max(1, len(questions)))
    engine = assemble(spec, DrafterResources(target), "answers come from plain decoding")
    answers: dict[int, list[int]] = {}  # by request
    for one in questions:
        request = GenerationRequest(one.prompt, limit, one.sampling, stop_tokens, drafter="none")
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
) -> Iterator[list[Answer]]:
    """Yield all answers so far after every batch; those in the file ``saved`` are reused.

    An answer of fewer than ``limit`` tokens gets the token ``end``, so that the draft learns it.
    """
    done = _repaired(saved)
    while len(done) < len(prompts):
        batch = prompts[len(done) : len(done) + BATCH]
        questions = [Question(p, _sampling(n)) for n, p in enumerate(batch, len(done))]
        answers = plain_answers(target, questions, limit, frozenset({end}))
        new = [
            Answer(p, a if len(a) == limit else (*a, end))
            for p, a in zip(batch, answers, strict=True)
        ]
        with saved.open("a") as file:
            file.writelines(_lines(new))
        done = done + new
        yield done
    yield done


def read_answers(saved: Path) -> list[Answer]:
    """The answers of an earlier run; an incomplete last line is ignored."""
    if not saved.exists():
        return []
    whole = saved.read_text().rpartition("\n")[0]
    rows = (json.loads(line) for line in whole.splitlines())
    return [Answer(tuple(prompt), tuple(answer)) for prompt, answer in rows]


def _repaired(saved: Path) -> list[Answer]:
    """The answers of an earlier run; removes an incomplete last line from the file."""
    done, part = read_answers(saved), saved.with_suffix(".part")
    part.write_text("".join(_lines(done)))
    part.replace(saved)
    return done


def _lines(answers: Sequence[Answer]) -> list[str]:
    return [json.dumps([one.prompt, one.answer]) + "\n" for one in answers]


def _sampling(number: int) -> SamplingParams:
    temperature = TEMPERATURES[number % len(TEMPERATURES)]
    return SamplingParams(temperature, seed=number) if temperature else SamplingParams()
