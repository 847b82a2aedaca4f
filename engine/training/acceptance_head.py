"""Training of acceptance heads (SpecDec++, arXiv 2405.19715, sections 3.2 and 4.1).

The target answers prompts. From places in its answers the draft model drafts as it would while
decoding, and every drafted token Y_i is labelled with the chance that verification accepts it,
min(1, p(Y_i) / q(Y_i)): a soft label, exact, without drawing. A residual head learns it by binary
cross-entropy in which rejections weigh w = 6 times,

    sum r [w (1 - a) (-log P_rej) + a (-log P_acc)] / sum r [w (1 - a) + a]

with a the label and r the chance that verification gets as far as this token. The weight moves the
optimum by log w in log odds; the finished head takes that back, so that it states probabilities.

The paper lets the draft model read answers in which each token was replaced by a drafted one with
chance 1 - 0.15, so that its states resemble those behind drafted tokens. Here drafts start from the
target's own text with chance 0.15 at each token and run on as they do when decoding: the states are
those that will be judged, and no label belongs to another context than its state.

Each prompt is answered twice, greedily and at temperature 1, and drafted for in the three ways in
which requests run: greedy; sampled with drawn candidates; seeded, with chosen candidates.
"""

import math
import time
from collections.abc import Generator as Steps
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Generator, Tensor

from engine.build import assemble, load
from engine.decode.tree import DraftTree
from engine.errors import InvalidRequest, ModelUnusable, NumericalError
from engine.lengths.acceptance_head import EVIDENCE, Head, Kind, Likeness, save_head
from engine.protocols import DraftModel, Parts, Rows, Target
from engine.request import FinishReason, GenerationRequest, ModelSpec, SamplingParams, Tokens

KINDS = (Kind(drawn=False, greedy=True), Kind(drawn=True, greedy=False), Kind(drawn=False, greedy=False))  # fmt: skip
HELD_OUT = 10  # one prompt in so many is never trained on
SAVE_SECONDS = 15.0
COLLECTING = 0.85  # of the minutes
WORK = "unfinished"
BINS = 10  # of the predicted chance, for the calibration error


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides what comes out, apart from models and prompts."""

    minutes: float = 20.0
    answer_tokens: int = 96
    start_share: float = 0.15  # of an answer's tokens from which a draft starts: the paper's r
    draft_tokens: int = 6
    reject_weight: float = 6.0  # the paper's w
    depth: int = 3  # the paper's D
    epochs: int = 3
    batch: int = 512
    learning_rate: float = 2e-3
    warmup_share: float = 0.03
    together: int = 16  # prompts that are answered in one batch, and written in one file
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """The models, and the tokens that end an answer."""

    target: Target
    draft: DraftModel
    stop_tokens: frozenset[int]


def load_pair(spec: ModelSpec, stop_tokens: frozenset[int]) -> Pair:
    """Load both models; raises ModelUnusable when they cannot work together."""
    parts, why_not = load(spec)
    if parts.draft_model is None:
        raise ModelUnusable(f"no head can be trained for {spec.name}: {why_not}")
    return Pair(parts.target, parts.draft_model, stop_tokens)


@dataclass(frozen=True, slots=True)
class Judged:
    """Drafted tokens with what the head may read and what it should say, [n] each."""

    states: Tensor  # [n, C] float16: proposed the token
    evidence: Tensor  # [n, 3]
    accepted: Tensor  # the label, 0 to 1
    reached: Tensor  # chance that verification gets there
    prompt: Tensor  # int64, the prompt's number

    def at(self, chosen: Tensor) -> "Judged":
        """Some of the rows."""
        return Judged(**{f.name: getattr(self, f.name)[chosen] for f in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence["Judged"]) -> "Judged":
        """All rows of several."""
        return cls(**{f.name: torch.cat([getattr(p, f.name) for p in parts]) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands; ``count`` of ``total`` prompts or steps."""

    stage: str
    count: int
    total: int
    seconds_left: float
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """How good a head is on prompts that it was not trained on."""

    auc: float  # chance that a rejected token looks worse than an accepted one
    predicted: float  # mean chance of acceptance
    observed: float  # mean label
    calibration_error: float  # mean distance of the two in tenths of the predictions
    tokens: int


def learn(
    pair: Pair, prompts: Sequence[tuple[int, ...]], recipe: Recipe, out: Path
) -> Iterator[Progress | Figures]:
    """Collect, train and write a head to ``out``; figures on held-out prompts come last.

    Killed at any point, the same call goes on where it stood. Raises InvalidRequest for prompts
    that do not suffice, and where ``out`` holds an unfinished run of another kind.
    """
    work = out / WORK
    _claim(work, pair, prompts, recipe)
    started = time.monotonic()
    collected = work / "collected.txt"  # a run that trains already collects no more
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
    head = yield from fit(data.at(~held), recipe, work)
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


# --- answers and drafts ---------------------------------------------------------------------------


def _claim(work: Path, pair: Pair, prompts: Sequence[tuple[int, ...]], recipe: Recipe) -> None:
    """Take the folder, or recognise it as this very run's."""
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
    """One file for each batch of prompts, until all are done or most of the minutes are over."""
    started, fresh = time.monotonic(), 0
    limit = 60 * recipe.minutes * COLLECTING
    for first in range(0, len(prompts), recipe.together):
        file = work / f"judged-{first:07}.safetensors"
        if first and time.monotonic() - started > limit:
            break
        batch = prompts[first : first + recipe.together]
        if not file.exists():
            found = list(_judged(pair, batch, first, recipe))
            joined = Judged.joined(found) if found else None
            _write(file, {f.name: getattr(joined, f.name) for f in fields(Judged) if joined})
            fresh += len(batch)
        passed, done = time.monotonic() - started, first + len(batch)
        left = passed / max(fresh, 1) * (len(prompts) - done)
        yield Progress("answers", done, len(prompts), min(left, max(limit - passed, 0.0)))


def _judged(
    pair: Pair, prompts: Sequence[tuple[int, ...]], first: int, recipe: Recipe
) -> Iterator[Judged]:
    """Drafts from answers to one batch of prompts; those that do not fit the contexts are left out."""
    room = min(pair.target.context, pair.draft.context) - recipe.answer_tokens
    numbered = [(n, p) for n, p in enumerate(prompts, first) if 0 < len(p) < room]
    for greedy in (True, False):
        answers = _answers(pair, numbered, recipe, greedy=greedy)
        for (number, prompt), answer in zip(numbered, answers, strict=True):
            for place, kind in enumerate(KINDS):
                if kind.greedy == greedy:
                    seed = (recipe.seed * 1_000_003 + number) * len(KINDS) + place
                    draft = _Draft(pair, kind, Generator().manual_seed(seed))
                    yield draft.judged((*prompt, *answer), len(prompt), recipe, number)


def _answers(
    pair: Pair, prompts: Sequence[tuple[int, tuple[int, ...]]], recipe: Recipe, *, greedy: bool
) -> list[list[int]]:
    """The target's own answers, decoded plainly, all together."""
    spec = ModelSpec("target", "", slots=max(1, len(prompts)))
    engine = assemble(spec, Parts(pair.target), "answers are decoded plainly")
    answers: dict[int, list[int]] = {}
    for number, prompt in prompts:
        law = SamplingParams() if greedy else SamplingParams(1.0, seed=recipe.seed + number)
        request = GenerationRequest(
            prompt, recipe.answer_tokens, law, pair.stop_tokens, drafter="none"
        )
        answers[engine.submit(request)] = []
    while engine.busy:
        for request_id, event in engine.step():
            if isinstance(event, Tokens):
                answers[request_id] += event.ids
            elif event.reason is FinishReason.ERROR:
                raise NumericalError(event.error or "the target failed while it answered")
    return list(answers.values())


@dataclass(frozen=True, slots=True)
class _Level:
    """The i-th tokens of several drafts."""

    parents: list[int]  # nodes that they hang on
    tokens: Tensor  # [A]
    logs: Tensor  # [A], log q of each
    states: Tensor  # [A, C]


@dataclass(frozen=True, slots=True)
class _Draft:
    """Drafts from many places of one text at once: branches of one tree whose trunk is the text."""

    pair: Pair
    kind: Kind
    generator: Generator

    @torch.inference_mode()
    def judged(self, text: Sequence[int], prompt: int, recipe: Recipe, number: int) -> Judged:
        """Every drafted token behind the text's first ``prompt`` tokens, labelled."""
        for model in (self.pair.target, self.pair.draft):
            model.crop(0, 0)
            if prompt > 1:
                model.feed(0, text[: prompt - 1])
        tokens = list(text[prompt - 1 :])  # the root is the prompt's last token
        parents = list(range(-1, len(tokens) - 1))
        levels = self._grow(tokens, parents, recipe)
        scores = self.pair.target.score([0], [DraftTree(tuple(tokens), tuple(parents))])[0].logits
        labels = torch.stack([self._label(level, scores) for level in levels])
        alive = torch.stack([self._goes_on(level) for level in levels]) * labels
        reached = torch.cat((torch.ones(1, labels.shape[1]), alive.cumprod(0)[:-1]))
        return Judged(
            states=torch.cat([level.states for level in levels]).half().cpu(),
            evidence=self.kind.evidence(torch.cat([level.logs for level in levels])),
            accepted=labels.flatten(),
            reached=reached.flatten(),
            prompt=torch.full((labels.numel(),), number),
        )

    def _grow(self, tokens: list[int], parents: list[int], recipe: Recipe) -> list[_Level]:
        """Append drafts to the tree level by level."""
        draws = torch.rand(len(tokens), generator=self.generator)
        first = int(draws.argmin())  # one start at least
        at = [n for n, draw in enumerate(draws.tolist()) if draw < recipe.start_share or n == first]
        grown = self.pair.draft.grow([Rows(0, tokens, parents)])[0]
        logits, states = grown.logits[at], grown.hidden[at]
        levels: list[_Level] = []
        while True:
            levels.append(self._level(at, logits, states))
            drafted = levels[-1].tokens.tolist()
            parents += at
            at = list(range(len(tokens), len(tokens) + len(at)))
            tokens += drafted
            if len(levels) == recipe.draft_tokens:
                return levels
            rows = Rows(0, drafted, parents[-len(drafted) :])
            grown = self.pair.draft.grow([rows])[0]
            logits, states = grown.logits, grown.hidden

    def _level(self, at: Sequence[int], logits: Tensor, states: Tensor) -> _Level:
        """The next token of each draft: drawn at temperature 1, or the likeliest."""
        logs = logits.float().log_softmax(-1).cpu()
        if self.kind.drawn:
            tokens = logs.exp().multinomial(1, generator=self.generator)[:, 0]
        else:
            tokens = logs.argmax(-1)
        return _Level(list(at), tokens, _of(logs, tokens), states)

    def _label(self, level: _Level, scores: Tensor) -> Tensor:
        """Chance that verification accepts each token, [A]; ``scores`` [N, V] of all nodes."""
        logits = scores[level.parents].float().cpu()
        if self.kind.greedy:
            return (logits.argmax(-1) == level.tokens).float()
        wanted = _of(logits.log_softmax(-1), level.tokens)
        return (wanted - level.logs).exp().clamp(max=1) if self.kind.drawn else wanted.exp()

    def _goes_on(self, level: _Level) -> Tensor:
        """0 behind a token that ends the answer, else 1."""
        stops = torch.tensor(sorted(self.pair.stop_tokens))
        return (~torch.isin(level.tokens, stops)).float()


def _of(rows: Tensor, tokens: Tensor) -> Tensor:
    """The entry of each row [A, V] at its token."""
    return rows.gather(1, tokens[:, None])[:, 0]


def _write(file: Path, tensors: dict[str, Tensor], notes: dict[str, str] | None = None) -> None:
    """At once or not at all."""
    part = file.with_suffix(".part")
    save_file({name: t.contiguous() for name, t in tensors.items()}, str(part), metadata=notes)
    part.replace(file)


def _gathered(work: Path) -> Judged:
    """All that was collected."""
    parts = [load_file(str(file)) for file in sorted(work.glob("judged-*.safetensors"))]
    found = [Judged(**part) for part in parts if part]
    if not found:
        raise InvalidRequest(
            "nothing was collected: no prompt fits the models' contexts beside its answer; "
            "give shorter prompts"
        )
    return Judged.joined(found)


# --- training -------------------------------------------------------------------------------------


def new_head(width: int, recipe: Recipe) -> Head:
    """Small random blocks, so that training starts near a linear reading of the state."""
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


def loss_of(head: Head, rows: Judged, reject_weight: float) -> Tensor:
    """The weighted binary cross-entropy of the docstring above, in nats."""
    logs = head.logits(rows.states, rows.evidence).log_softmax(-1)
    reject = reject_weight * (1 - rows.accepted)
    nats = -(reject * logs[:, 0] + rows.accepted * logs[:, 1])
    return (rows.reached * nats).sum() / (rows.reached * (reject + rows.accepted)).sum().clamp(1e-6)


def unweighted(head: Head, reject_weight: float) -> Head:
    """The head whose softmax is a probability, although its loss weighed rejections."""
    shift = torch.tensor([0.0, math.log(reject_weight)])
    return replace(head, out_bias=head.out_bias.detach() + shift)


def fit(rows: Judged, recipe: Recipe, work: Path) -> Steps[Progress, None, Head]:
    """Train on ``rows``; cosine rate with warm-up, a checkpoint every few seconds."""
    head = new_head(rows.states.shape[1], recipe)
    tensors = head.tensors()
    optimiser = torch.optim.AdamW(
        [t.requires_grad_() for t in tensors.values()], lr=recipe.learning_rate, weight_decay=0.01
    )
    each = math.ceil(len(rows.prompt) / recipe.batch)  # steps of an epoch
    total = each * recipe.epochs
    first = _resume(tensors, optimiser, work)
    started = saved = time.monotonic()
    for step in range(first, total):
        chosen = _order(len(rows.prompt), step // each, recipe)[step % each :: each]
        for group in optimiser.param_groups:
            group["lr"] = recipe.learning_rate * _rate(step, total, recipe.warmup_share)
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(head, rows.at(chosen), recipe.reject_weight)
        torch.autograd.backward([loss])
        optimiser.step()
        now = time.monotonic()
        if now - saved > SAVE_SECONDS or step + 1 == total:
            _save(tensors, optimiser, work, step + 1)
            saved = now
        left = (now - started) / (step + 1 - first) * (total - step - 1)
        yield Progress("training", step + 1, total, left, float(loss.detach()))
    return Head(**{name: t.detach() for name, t in tensors.items()})


def _order(count: int, epoch: int, recipe: Recipe) -> Tensor:
    """The rows of one epoch in an order of their own, so that a resumed run sees the same ones."""
    generator = Generator().manual_seed(recipe.seed * 1009 + epoch)
    return torch.randperm(count, generator=generator)


def _rate(step: int, total: int, warmup_share: float) -> float:
    """Linear warm-up, then half a cosine to zero."""
    warm = max(1, round(warmup_share * total))
    return min(1.0, (step + 1) / warm) * (1 + math.cos(math.pi * step / total)) / 2


_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def _save(
    tensors: dict[str, Tensor], optimiser: torch.optim.Optimizer, work: Path, step: int
) -> None:
    """Weights and the optimiser's moments."""
    found = {name: t.detach() for name, t in tensors.items()}
    for name, t in tensors.items():
        found |= {f"{name}/{moment}": optimiser.state[t][moment] for moment in _MOMENTS}
    _write(work / "checkpoint.safetensors", found, {"step": str(step)})


def _resume(tensors: dict[str, Tensor], optimiser: torch.optim.Optimizer, work: Path) -> int:
    """Take over a checkpoint; the steps that it has behind it."""
    file = work / "checkpoint.safetensors"
    if not file.exists():
        return 0
    with safe_open(str(file), framework="pt") as held, torch.no_grad():
        for name, t in tensors.items():
            t.copy_(held.get_tensor(name))
            optimiser.state[t] = {m: held.get_tensor(f"{name}/{m}") for m in _MOMENTS}
        return int(held.metadata()["step"])


# --- figures --------------------------------------------------------------------------------------


@torch.inference_mode()
def measure(head: Head, rows: Judged) -> Figures:
    """How well a head tells rejections, each token weighed by the chance that it is reached.

    A label a counts as a rejection with weight 1 - a and as an acceptance with weight a: the mean
    over all ways in which verification could have decided.
    """
    predicted = head.logits(rows.states, rows.evidence).softmax(-1)[:, 1].double()
    label, weight = rows.accepted.double(), rows.reached.double()
    order = predicted.argsort()
    rejected, accepted = ((1 - label) * weight)[order], (label * weight)[order]
    below = rejected.cumsum(0) - rejected / 2  # its own other half counts as a tie
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
