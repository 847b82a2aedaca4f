"""Training of acceptance heads (SpecDec++, arXiv 2405.19715, sections 3.2 and 4.1).

The target answers prompts. From positions in its answers the draft model drafts as in decoding, and
every drafted token Y_i is labelled with the probability that verification accepts it,
min(1, p(Y_i) / q(Y_i)): an exact soft label, without sampling. A residual head learns it by binary
cross-entropy in which rejections weigh w = 6 times,

    sum r [w (1 - a) (-log P_rej) + a (-log P_acc)] / sum r [w (1 - a) + a]

with a the label and r the probability that verification gets as far as this token; ``draft_labels``
makes the labels. The weight moves the optimum by log w in log odds; the finished head subtracts
that, so that its outputs are probabilities.
"""

import math
import time
from collections.abc import Generator as Steps
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor

from engine.draft_length.acceptance_head import EVIDENCE, Head, Likeness, save_head
from engine.errors import InvalidRequest
from engine.training.draft_labels import LabelledTokens, Pair, Recipe, labelled_drafts

HELD_OUT = 10  # one prompt in ten is never trained on
COLLECTING = 0.85  # share of the minutes
WORK = "unfinished"
BINS = 10  # of predicted probabilities, for the calibration error


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run; ``count`` of ``total`` prompts or steps."""

    stage: str
    count: int
    total: int
    seconds_left: float
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The quality of a head on held-out prompts."""

    auc: float  # probability that a rejected token scores lower than an accepted one
    predicted: float  # mean predicted acceptance
    observed: float  # mean label
    calibration_error: float  # mean distance of the two in tenths of the predictions
    tokens: int


def learn(
    pair: Pair, prompts: Sequence[tuple[int, ...]], recipe: Recipe, out: Path
) -> Iterator[Progress | Figures]:
    """Collect, train and write a head to ``out``; figures on held-out prompts come last.

    After a kill the same call continues with the prompts that were not answered. Raises InvalidRequest if there are too few prompts, or if
    ``out`` holds an unfinished run with other settings.
    """
    work = out / WORK
    _claim(work, pair, prompts, recipe)
    started = time.monotonic()
    collected = work / "collected.txt"  # exists once training has started
    if not collected.exists():
        yield from _collect(pair, prompts, recipe, work)
    data = _gathered(work)
    held = data.prompt % HELD_OUT == HELD_OUT - 1
    if not (bool(held.any()) and bool((~held).any())):
        raise InvalidRequest(
            f"{len(prompts)} prompts gave {len(held)} drafted tokens, too few to train and to test "
            f"on; give at least {HELD_OUT} prompts that fit the models' contexts, and more minutes"
        )
    collected.touch()
    head = yield from fit(data.at(~held), recipe)
    head = unweighted(head, recipe.reject_weight)
    figures = measure(head, data.at(held))
    notes = {
        "figures": asdict(figures), "recipe": asdict(recipe),
        "prompts": len(set(data.prompt.tolist())), "minutes": (time.monotonic() - started) / 60,
    }  # fmt: skip
    save_head(head, out, Likeness.of(pair.target, pair.draft), notes)
    for file in work.iterdir():
        file.unlink()
    work.rmdir()
    yield figures


# --- collecting ---------------------------------------------------------------------------


def _claim(work: Path, pair: Pair, prompts: Sequence[tuple[int, ...]], recipe: Recipe) -> None:
    """Mark the folder as this run's, or check that it is."""
    kind = torch.tensor([len(prompts), sum(map(len, prompts)), sum(map(sum, prompts))])
    settled = {k: v for k, v in asdict(recipe).items() if k != "minutes"}
    name = f"{Likeness.of(pair.target, pair.draft)}; {kind.tolist()}; {settled}\n"
    note = work / "run.txt"
    if note.exists() and note.read_text(encoding="utf-8") != name:
        raise InvalidRequest(
            f"{work} holds an unfinished run with other models, prompts or settings; "
            "finish it, remove that folder, or write to another one"
        )
    work.mkdir(parents=True, exist_ok=True)
    if not note.exists():
        part = work / "run.part"
        part.write_text(name, encoding="utf-8")
        part.replace(note)


def _collect(
    pair: Pair, prompts: Sequence[tuple[int, ...]], recipe: Recipe, work: Path
) -> Iterator[Progress]:
    """Write one file per batch of prompts, until all are done or most of the minutes are over."""
    started, fresh = time.monotonic(), 0
    limit = 60 * recipe.minutes * COLLECTING
    for first in range(0, len(prompts), recipe.together):
        file = work / f"labels-{first:07}.safetensors"
        if first and time.monotonic() - started > limit:
            break
        batch = prompts[first : first + recipe.together]
        if not file.exists():
            found = list(labelled_drafts(pair, batch, first, recipe))
            joined = LabelledTokens.joined(found) if found else None
            _write(
                file, {f.name: getattr(joined, f.name) for f in fields(LabelledTokens) if joined}
            )
            fresh += len(batch)
        passed, done = time.monotonic() - started, first + len(batch)
        left = passed / max(fresh, 1) * (len(prompts) - done)
        yield Progress("answers", done, len(prompts), min(left, max(limit - passed, 0.0)))


def _write(file: Path, tensors: dict[str, Tensor]) -> None:
    """Write atomically."""
    part = file.with_suffix(".part")
    save_file({name: t.contiguous() for name, t in tensors.items()}, str(part))
    part.replace(file)


def _gathered(work: Path) -> LabelledTokens:
    """All labels collected so far."""
    parts = [load_file(str(file)) for file in sorted(work.glob("labels-*.safetensors"))]
    found = [LabelledTokens(**part) for part in parts if part]
    if not found:
        raise InvalidRequest(
            "nothing was collected: no prompt fits the models' contexts together with its answer; "
            "give shorter prompts"
        )
    return LabelledTokens.joined(found)


# --- training -------------------------------------------------------------------------------------


def new_head(width: int, recipe: Recipe) -> Head:
    """Small random blocks, so that training starts near a linear function of the state."""
    generator = Generator().manual_seed(recipe.seed)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.02

    return Head(
        evidence=noise(width, EVIDENCE),
        blocks=noise(recipe.depth, width, width),
        biases=torch.zeros(recipe.depth, width),
        out=noise(2, width),
        out_bias=torch.zeros(2),
    )


def loss_of(head: Head, rows: LabelledTokens, reject_weight: float) -> Tensor:
    """The weighted binary cross-entropy of the module docstring, in nats."""
    logs = head.logits(rows.states, rows.evidence).log_softmax(-1)
    reject = reject_weight * (1 - rows.accepted)
    nats = -(reject * logs[:, 0] + rows.accepted * logs[:, 1])
    return (rows.reached * nats).sum() / (rows.reached * (reject + rows.accepted)).sum().clamp(1e-6)


def unweighted(head: Head, reject_weight: float) -> Head:
    """The head with the weight of rejections removed, so that its softmax is a probability."""
    shift = torch.tensor([0.0, math.log(reject_weight)])
    return replace(head, out_bias=head.out_bias.detach() + shift)


def fit(rows: LabelledTokens, recipe: Recipe) -> Steps[Progress, None, Head]:
    """Train on ``rows``; cosine rate with warm-up. The same rows give the same head."""
    head = new_head(rows.states.shape[1], recipe)
    tensors = head.tensors()
    optimiser = torch.optim.AdamW(
        [t.requires_grad_() for t in tensors.values()], lr=recipe.learning_rate, weight_decay=0.1
    )
    each = math.ceil(len(rows.prompt) / recipe.batch)  # steps of an epoch
    total = each * recipe.epochs
    started = time.monotonic()
    for step in range(total):
        chosen = _order(len(rows.prompt), step // each, recipe)[step % each :: each]
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * _rate(step, total, recipe.warmup_share)
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(head, rows.at(chosen), recipe.reject_weight)
        torch.autograd.backward([loss])
        optimiser.step()
        left = (time.monotonic() - started) / (step + 1) * (total - step - 1)
        yield Progress("training", step + 1, total, left, float(loss.detach()))
    return Head(**{name: t.detach() for name, t in tensors.items()})


def _order(count: int, epoch: int, recipe: Recipe) -> Tensor:
    """The row order of one epoch, the same in every run."""
    generator = Generator().manual_seed(recipe.seed * 1009 + epoch)
    return torch.randperm(count, generator=generator)


def _rate(step: int, total: int, warmup_share: float) -> float:
    """Linear warm-up, then half a cosine to zero."""
    warm = max(1, round(warmup_share * total))
    return min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * step / total)) / 2


# --- figures --------------------------------------------------------------------------------------


@torch.inference_mode()
def measure(head: Head, rows: LabelledTokens) -> Figures:
    """Measure how well a head predicts rejections; tokens are weighted by ``reached``.

    A label a counts as a rejection with weight 1 - a and as an acceptance with weight a: the mean
    over all outcomes of verification.
    """
    predicted = head.logits(rows.states, rows.evidence).softmax(-1)[:, 1].double()
    label, weight = rows.accepted.double(), rows.reached.double()
    order = predicted.argsort()
    rejected, accepted = ((1 - label) * weight)[order], (label * weight)[order]
    below = rejected.cumsum(0) - rejected / 2  # a token ties with itself
    bins = (predicted * BINS).long().clamp(max=BINS - 1)
    gaps = torch.zeros(BINS, dtype=torch.double).index_add_(0, bins, weight * (predicted - label))
    total = weight.sum().clamp(min=1e-9)
    pairs = (accepted.sum() * rejected.sum()).clamp(min=1e-9)
    return Figures(
        auc=float((accepted * below).sum() / pairs),
        predicted=float((predicted * weight).sum() / total),
        observed=float((label * weight).sum() / total),
        calibration_error=float(gaps.abs().sum() / total),
        tokens=len(label),
    )
