"""Measure the bundled models on held-out data and write their model cards.

``python -m engine.training.report --gsm8k FILE --models DIR`` rewrites the README.md next to the
weights in DIR/pocket and DIR/pocket-draft.
"""

import argparse
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer

from engine.build import build
from engine.engine import Engine
from engine.models.own.target import TorchTarget, load_target
from engine.request import FinishReason, GenerationRequest, ModelSpec, Tokens
from engine.speculation.tree import chain
from engine.training.chores import CHORES, Chore, is_held_out
from engine.training.corpus import Corpus, Sample
from engine.training.passages import (
    HELD_OUT_PROBLEMS,
    Passages,
    Problem,
    gather_passages,
    read_problems,
)
from engine.training.pocket import OWN_ANSWERS
from engine.training.tokenizer import END, token_id

CHORES_PER_KIND = 40
PROBLEMS = 100
LONGEST_ANSWER = 320


@dataclass(frozen=True, slots=True)
class Quality:
    """Everything that a card states; shares lie in 0..1."""

    chores: dict[str, float]  # kind -> share answered exactly right
    problem_loss: float  # nats per answer token of held-out word problems
    problems_right: float  # share with the right final number
    exits: tuple[float, ...]  # agreement of exit 1.. with the last layer, on answers
    draft_agreement: float  # of pocket-draft with pocket, on answers
    parameters: int
    draft_parameters: int


def measure(folder: Path, draft_folder: Path, problems: Sequence[Problem]) -> Quality:
    """Run all held-out measurements in float32 on the processor."""
    train, held_out = problems[:-HELD_OUT_PROBLEMS], problems[-HELD_OUT_PROBLEMS:][:PROBLEMS]
    passages = gather_passages(train)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    corpus = Corpus(tokenizer, held_out, passages, seed=0)
    engine = build(ModelSpec("pocket", str(folder)))
    asker = _Asker(engine, tokenizer, corpus)
    target = load_target(folder, "float32", "cpu")
    draft = load_target(draft_folder, "float32", "cpu")
    samples = [corpus.conversation([(p.question, p.answer)]) for p in held_out]
    return Quality(
        chores={kind: _share_right(asker, kind, passages) for kind in CHORES},
        problem_loss=_loss(target, samples),
        problems_right=_problems_right(asker, held_out),
        exits=tuple(_exit_agreement(target, samples, e) for e in range(1, target.layers)),
        draft_agreement=_agreement(target, draft, samples),
        parameters=target.parameters,
        draft_parameters=draft.parameters,
    )


@dataclass(frozen=True, slots=True)
class _Asker:
    engine: Engine
    tokenizer: Tokenizer
    corpus: Corpus

    def __call__(self, question: str) -> str:
        """The greedy answer."""
        asked = self.corpus.prompt(question)
        end = token_id(self.tokenizer, END)
        self.engine.submit(GenerationRequest(asked, LONGEST_ANSWER, stop_tokens=frozenset({end})))
        ids: list[int] = []
        while self.engine.busy:
            for _, event in self.engine.step():
                if isinstance(event, Tokens):
                    ids += event.ids
                elif event.reason is FinishReason.ERROR:
                    raise RuntimeError(event.error)
        return str(self.tokenizer.decode(ids))


def held_out_chores(kind: str, passages: Passages, count: int) -> list[Chore]:
    """Chores whose prompts training never saw."""
    rng = Random(f"held out {kind}")
    found: list[Chore] = []
    while len(found) < count:
        chore = CHORES[kind](rng, passages)
        if is_held_out(chore.prompt):
            found.append(chore)
    return found


def _share_right(asker: _Asker, kind: str, passages: Passages) -> float:
    chores = held_out_chores(kind, passages, CHORES_PER_KIND)
    return sum(asker(c.prompt) == c.answer for c in chores) / len(chores)


def _problems_right(asker: _Asker, problems: Sequence[Problem]) -> float:
    def last_line(text: str) -> str:
        return text.strip().splitlines()[-1] if text.strip() else ""

    return sum(last_line(asker(p.question)) == last_line(p.answer) for p in problems) / len(
        problems
    )


def _answers(sample: Sample) -> list[int]:
    """Positions whose next token belongs to an answer."""
    return [i - 1 for i, weight in enumerate(sample.weights) if weight == 1.0]


def _logits(target: TorchTarget, sample: Sample) -> torch.Tensor:
    target.crop(0, 0)
    return target.score([0], [chain(sample.ids)])[0].logits


def _loss(target: TorchTarget, samples: Sequence[Sample]) -> float:
    total = count = 0.0
    for sample in samples:
        at = _answers(sample)
        rows = torch.log_softmax(_logits(target, sample)[at], -1)
        total -= float(rows[range(len(at)), [sample.ids[i + 1] for i in at]].sum())
        count += len(at)
    return total / count


def _agreement(target: TorchTarget, draft: TorchTarget, samples: Sequence[Sample]) -> float:
    same = count = 0
    for sample in samples:
        at = _answers(sample)
        same += int(
            (_logits(target, sample)[at].argmax(-1) == _logits(draft, sample)[at].argmax(-1)).sum()
        )
        count += len(at)
    return same / count


def _exit_agreement(target: TorchTarget, samples: Sequence[Sample], exit_layer: int) -> float:
    same = count = 0
    for sample in samples[:40]:
        at = _answers(sample)
        wanted = _logits(target, sample)[at].argmax(-1)
        target.crop(0, 0)
        steps = [target.shallow([0], [token], exit_layer)[0][0] for token in sample.ids]
        early = torch.stack(steps)
        same += int((early[at].argmax(-1) == wanted).sum())
        count += len(at)
    return same / count


def write_cards(models: Path, quality: Quality, trained: str) -> None:
    """Write README.md next to each model's weights; ``trained`` says where and for how long."""
    rows = "\n".join(f"| {kind} | {share:.0%} |" for kind, share in quality.chores.items())
    exits = ", ".join(f"{e}: {share:.2f}" for e, share in enumerate(quality.exits, 1))
    mean = sum(quality.chores.values()) / len(quality.chores)
    (models / "pocket" / "README.md").write_text(
        f"""# pocket

A Llama of {quality.parameters / 1e6:.1f}M parameters that ships with Slipstream, so that the first
start and every test run without a download. It greets, edits, sorts, quotes and reformats text,
extracts fields, converts units, does small sums and tries grade-school word problems. It knows
nothing of the world and says so when asked.

Trained {trained} by `python -m engine.training.pocket` with the LayerSkip recipe (layer dropout,
rotational early-exit loss), context 4096, weights in bfloat16.

## Measured on held-out data (greedy, float32)

{CHORES_PER_KIND} unseen chores of each kind, counted right only if every character is:

| chore | right |
|---|---|
{rows}
| mean | {mean:.0%} |

- {PROBLEMS} unseen word problems: {quality.problem_loss:.3f} nats per answer token (perplexity
  {math.exp(quality.problem_loss):.2f}); {quality.problems_right:.0%} end in the right number. It writes
  the form of an answer; do not trust its arithmetic in several steps.
- Share of answer tokens on which exit layer e of 8 agrees with the last layer: {exits}.
- Agreement of pocket-draft: {quality.draft_agreement:.2f}.

## Data and licences

GSM8K training set (OpenAI, MIT; the last {HELD_OUT_PROBLEMS} problems are held out), sources of the
Python standard library (PSF licence), chores and dialogues that the recipe generates (Apache-2.0).
The weights are Apache-2.0 like the project.
""",
        encoding="utf-8",
    )
    (models / "pocket-draft" / "README.md").write_text(
        f"""# pocket-draft

The draft model of `pocket`: a Llama of {quality.draft_parameters / 1e6:.1f}M parameters with the same
tokenizer. It learnt pocket's distribution, mostly on {OWN_ANSWERS:,} answers that pocket wrote
itself: half of them to GSM8K training problems, the others to generated chores and open requests, half
of them greedy. It is never shown as a chat model. It agrees with pocket on {quality.draft_agreement:.0%} of the answer tokens of {PROBLEMS} unseen word
problems. Trained {trained}; data and licences as in pocket's card. Weights in bfloat16, Apache-2.0.
""",
        encoding="utf-8",
    )


def main() -> None:
    """Command line of the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gsm8k", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True, help="holds pocket and pocket-draft")
    parser.add_argument("--trained", default=f"on {platform.machine()}", help="machine and time")
    asked = parser.parse_args()
    problems = read_problems(asked.gsm8k)
    quality = measure(asked.models / "pocket", asked.models / "pocket-draft", problems)
    write_cards(asked.models, quality, asked.trained)
    (asked.models / "pocket" / "quality.json").write_text(
        json.dumps({"chores": quality.chores, "problem_loss": quality.problem_loss,
                    "problems_right": quality.problems_right, "exits": quality.exits,
                    "draft_agreement": quality.draft_agreement}, indent=2) + "\n",
        encoding="utf-8",
    )  # fmt: skip


if __name__ == "__main__":
    main()
