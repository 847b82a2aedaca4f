"""The training loop: Muon for matrices, AdamW for the rest, a schedule by wall time, checkpoints."""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor

from engine.training.corpus import Rows
from engine.training.network import TrainableDecoder


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyper-parameters of one model."""

    minutes: float
    learning_rate: float = 3e-3
    dropout: float = 0.05  # LayerSkip's p_max at the last layer
    exit_every: int = 7  # one exit in seven is trained each step
    exit_scale: float = 1.0
    warmup_steps: int = 60
    decay_share: float = 0.5  # last part of the time: learning rate falls to zero


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a run; ``share`` is the part of its time that has passed."""

    step: int
    tokens: int
    seconds: float
    share: float
    loss: float


Batches = Callable[[float, int], Rows]
"""(share of the run, step) -> rows."""


def train(
    model: TrainableDecoder,
    batches: Batches,
    recipe: Recipe,
    folder: Path,
    teacher: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[Progress]:
    """Train in place until the minutes are over; resumes from a checkpoint in ``folder``.

    With a teacher the targets are its probabilities instead of the text (knowledge distillation).
    """
    start = _resume(model, folder)
    optimisers = _optimisers(model, recipe)
    generator = Generator().manual_seed(start.step + 1)
    started = time.monotonic() - start.seconds
    step, tokens, smooth, saved = start.step, start.tokens, start.loss, time.monotonic()
    while (share := (time.monotonic() - started) / (60 * recipe.minutes)) < 1:
        rows = batches(share, step)
        rate = _rate(step - start.step, share, recipe)
        loss = _step(model, rows, recipe, _Moment(step, share, generator), teacher)
        for optimiser in optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + rows.tokens.numel()
        smooth = loss if smooth == 0 else 0.98 * smooth + 0.02 * loss
        now = Progress(step, tokens, time.monotonic() - started, share, smooth)
        if time.monotonic() - saved > 120:
            _save(model, folder, now)
            saved = time.monotonic()
        yield now
    _save(model, folder, Progress(step, tokens, time.monotonic() - started, 1.0, smooth))


@dataclass(frozen=True, slots=True)
class _Moment:
    step: int
    share: float
    generator: Generator


def _rate(step: int, share: float, recipe: Recipe) -> float:
    warm = min(1.0, (step + 1) / recipe.warmup_steps)
    cool = min(1.0, (1 - share) / recipe.decay_share)
    return recipe.learning_rate * warm * cool


def _optimisers(model: TrainableDecoder, recipe: Recipe) -> list[torch.optim.Optimizer]:
    named = model.weights()
    matrices = [p for n, p in named.items() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in named.items() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(
            matrices, lr=recipe.learning_rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
        ),
        torch.optim.AdamW(others, lr=recipe.learning_rate, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _step(
    model: TrainableDecoder,
    rows: Rows,
    recipe: Recipe,
    moment: _Moment,
    teacher: Callable[[Tensor], Tensor] | None,
) -> float:
    """Gradients of one batch; returns the last layer's loss in nats per weighted token."""
    layers = model.arch.layers
    device = model.weight("model.norm.weight").device
    tokens, weights = rows.tokens.to(device), rows.weights[:, 1:].to(device)
    chosen = weights > 0
    exits = enabled_exits(moment.step, layers, recipe.exit_every) if recipe.exit_scale else []
    share = exit_weights(exits, layers, recipe.exit_scale)
    drop = _draw_dropped(len(tokens), layers, recipe, moment)
    with torch.autocast(device.type, torch.bfloat16, enabled=multiplies_bfloat16(device)):
        taps = model.hidden(tokens, exits, [d if d is None else d.to(device) for d in drop])
        logits = [model.logits(h[:, :-1][chosen]) for h in taps]
        soft = None if teacher is None else teacher(tokens)[:, :-1][chosen].float().softmax(-1)
    goal = tokens[:, 1:][chosen] if soft is None else soft
    losses = [
        (F.cross_entropy(row.float(), goal, reduction="none") * weights[chosen]).sum()
        / weights[chosen].sum().clamp(min=1e-6)  # rows without an answer have no loss
        for row in logits
    ]
    total = sum((share[e] * loss for e, loss in zip([*exits, layers], losses, strict=True)))
    torch.autograd.backward([torch.as_tensor(total)])
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return float(losses[-1].detach())


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products are fast here: on AVX2 they are 40 times slower than float32."""
    return device.type != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001


def _draw_dropped(batch: int, layers: int, recipe: Recipe, moment: _Moment) -> list[Tensor | None]:
    """Per layer the rows that run it (LayerSkip drops per sample); None where all do."""
    kept: list[Tensor | None] = []
    for layer in range(layers):
        rate = dropout_rate(layer, layers, moment.share, recipe.dropout) if layers > 1 else 0.0
        draw = torch.rand(batch, generator=moment.generator) >= rate
        kept.append(None if bool(draw.all()) else draw.nonzero().flatten())
    return kept


def _save(model: TrainableDecoder, folder: Path, progress: Progress) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "checkpoint.part"
    save_file({n: p.detach().cpu().contiguous() for n, p in model.weights().items()}, str(part))
    part.replace(folder / "checkpoint.safetensors")
    state = {"step": progress.step, "tokens": progress.tokens, "seconds": progress.seconds,
             "share": progress.share, "loss": progress.loss}  # fmt: skip
    (folder / "checkpoint.json").write_text(json.dumps(state))


def _resume(model: TrainableDecoder, folder: Path) -> Progress:
    """Load the weights of an interrupted run; the optimisers start again with a warm-up."""
    weights, state = folder / "checkpoint.safetensors", folder / "checkpoint.json"
    if not (weights.exists() and state.exists()):
        return Progress(0, 0, 0.0, 0.0, 0.0)
    with torch.no_grad():
        for name, value in load_file(str(weights)).items():
            model.weight(name).copy_(value)
    return Progress(**json.loads(state.read_text()))


# The LayerSkip recipe (arXiv 2404.16710): layer dropout, rotational early exits, exit weights.


def dropout_rate(layer: int, layers: int, progress: float, maximum: float) -> float:
    """p(l, t) = S(t) D(l) p_max; both curves grow exponentially from 0 to 1 (section 3.1)."""
    depth = math.exp(layer * math.log(2) / (layers - 1)) - 1
    time = math.exp(progress * math.log(2)) - 1
    return maximum * depth * time


def enabled_exits(step: int, layers: int, every: int) -> list[int]:
    """Rotational curriculum: each ``every``-th exit, one further each step; never the last layer.

    Exits are counted in layers run: exit e means layers 0..e-1.
    """
    return [e for e in range(1, layers) if (e + step) % every == 0]


def exit_weights(exits: list[int], layers: int, scale: float) -> dict[int, float]:
    """e(l): cumulative sums of indices for early exits, the last layer on top, normalised to 1."""
    raw = {e: scale * e * (e + 1) / 2 for e in exits}
    raw[layers] = layers + scale * (layers - 1) * layers / 2
    total = sum(raw.values())
    return {e: w / total for e, w in raw.items()}
