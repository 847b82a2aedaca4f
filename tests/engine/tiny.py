"""Tiny random decoders and exact Markov targets for the laws; real small classes, no mocks."""

from collections.abc import Sequence

import pytest
import torch
from torch import Generator, Tensor

from engine.build import assemble
from engine.decoder.decoder import Architecture, Dense, Layer, Rotary
from engine.decoder.weights import DecoderWeights
from engine.engine import Engine
from engine.interfaces.drafter import Context, DrafterResources, Outcome
from engine.interfaces.target import Capability, Grown, Rows, Scores, Target
from engine.models.own.target import TorchTarget
from engine.platform.numpy_forward import with_numpy_forward
from engine.request import Done, GenerationRequest, ModelSpec, Tokens
from engine.speculation.tree import DraftTree
from engine.speculation.verify import verify
from engine.statistics.pass_cost import PassCost

DTYPE = torch.float32
torch.set_num_threads(1)  # at these sizes a second thread only waits, and spins while it does


@pytest.fixture(scope="module", autouse=True)
def quick_to_load():
    """For a conftest: loading measures hardly any costs and warms nothing up, which takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("PROFILE_SECONDS", "NARROW_SECONDS", "STREAMED_SECONDS"):
            patch.setattr(f"engine.runtime.profiling.{limit}", 0.0)
        patch.setattr("engine.build.WARM_SECONDS", 0.0)
        yield


def tiny_weights(seed=0, vocab=13, layers=3, sharpness=6.0, context=96):
    """A random Llama with grouped keys; logits are scaled so that greedy ties do not happen."""
    arch = Architecture(32, layers, 4, 2, 8, 48, vocab, context, 1e-5)
    generator = Generator().manual_seed(seed)

    def matrix(out, into, scale=1.0):
        return torch.randn(out, into, generator=generator, dtype=DTYPE) * scale / into**0.5

    def layer():
        return Layer(
            attention_norm=torch.ones(32),
            qkv=Dense(matrix(64, 32)),
            q_norm=None,
            k_norm=None,
            out=Dense(matrix(32, 32)),
            mlp_norm=torch.ones(32),
            gate_up=Dense(matrix(96, 32)),
            down=Dense(matrix(32, 48)),
        )

    rotary = Rotary.table(10_000.0 ** -(torch.arange(0, 8, 2).float() / 8), context)
    embedding = torch.randn(vocab, 32, generator=generator, dtype=DTYPE)
    return DecoderWeights(
        arch, embedding, tuple(layer() for _ in range(layers)), torch.ones(32),
        Dense(matrix(vocab, 32, sharpness)), rotary, parameters=1,
    )  # fmt: skip


def tiny_target(seed=0, kind=TorchTarget, **shape):
    """A target whose drafts of a few rows go row by row, as the bundled draft model's do."""
    return kind(with_numpy_forward(tiny_weights(seed, **shape)))


class Markov(Target):
    """Target, draft model and layered target whose next-token law depends on the last token only.

    Exact in float64, so laws over it can be enumerated. ``shallow`` follows a law of its own.
    """

    offers = frozenset({Capability.TREE, Capability.LAYERS})
    context, layers, parameters = 64, 2, 0

    def __init__(self, laws: Tensor, shallow: Tensor | None = None) -> None:
        self.vocab = laws.shape[0]
        self._logits = laws.double().log()  # [V, V]
        self._shallow = self._logits if shallow is None else shallow.double().log()
        self._committed: dict[int, list[int]] = {}
        self._rows: dict[int, list[int]] = {}

    def length(self, slot: int) -> int:
        return len(self._committed.get(slot, []))

    def pending(self, slot: int) -> int:
        return len(self._rows.get(slot, []))

    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        self._committed.setdefault(slot, []).extend(tokens)

    def tokens(self, slot: int) -> Sequence[int]:
        return self._committed.get(slot, [])

    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        for slot, tree in zip(slots, trees, strict=True):
            self._rows[slot] = list(tree.tokens)
        return [
            Scores(self._logits[list(t.tokens)], self._states(t.tokens) if t.trace else None)
            for t in trees
        ]

    def grow(self, batch: Sequence[Rows]) -> list[Grown]:
        found = []
        for rows in batch:
            width = self.pending(rows.slot) + len(rows.tokens)
            assert all(-1 <= parent < width for parent in rows.parents)
            self._rows.setdefault(rows.slot, []).extend(rows.tokens)
            asked = list(rows.tokens)[-(rows.last or len(rows.tokens)) :]
            found.append(Grown(self._logits[asked], self._states(asked)[-1]))
        return found

    def shallow(
        self, slots: Sequence[int], tokens: Sequence[int], layers: int
    ) -> tuple[Tensor, Tensor]:
        for slot, token in zip(slots, tokens, strict=True):
            self._rows.setdefault(slot, []).append(token)
        return self._shallow[list(tokens)], self._states(tokens)[:layers]

    def read(self, states: Tensor) -> Tensor:
        """A state is (layer, token): the first layer follows ``shallow``, the last the target."""
        layer, token = states[..., 0].long(), states[..., 1].long()
        return torch.stack((self._shallow, self._logits))[layer, token]

    def _states(self, tokens: Sequence[int]) -> Tensor:
        names = torch.tensor(list(tokens), dtype=torch.float64)
        return torch.stack([torch.stack((torch.full_like(names, at), names), -1) for at in (0, 1)])

    def commit(self, slot: int, path: Sequence[int]) -> None:
        kept = [self._rows[slot][node] for node in path]
        self._committed.setdefault(slot, []).extend(kept)
        self._rows[slot] = []

    def crop(self, slot: int, length: int) -> None:
        self._committed[slot] = self._committed.get(slot, [])[:length]
        self._rows[slot] = []


class Words:
    """A tokenizer of a few words, the longest first; tokens beyond them are letters of no text."""

    def __init__(self, words: Sequence[bytes]) -> None:
        self.words = tuple(words)
        self.read = 0  # how often all of them were read

    def tokens(self, many: int) -> Sequence[bytes]:
        self.read += 1
        return [*self.words, *[b"z"] * many][:many]

    def encode(self, text: str) -> Sequence[int]:
        left, found = text.encode(), []
        while left:
            fitting = [n for n, word in enumerate(self.words) if word and left.startswith(word)]
            found.append(max(fitting, key=lambda n: len(self.words[n])))
            left = left.removeprefix(self.words[found[-1]])
        return found


class SlowMachine(PassCost):
    """Every pass takes ten seconds, whatever is observed: all drafts pay, so all are made."""

    def __init__(self):
        super().__init__({1: 10.0, 64: 10.0})

    def observe(self, rows, context, seconds, overhead=0.0, requests=1):
        """Nothing changes its mind."""


def engine_over(
    target, draft_model=None, slots=3, cost=None, speller=None, margin=0.0, **options
) -> Engine:
    """A real engine over loaded parts."""
    exit_layer = options.get("exit_layer", 1)
    spec = ModelSpec("tiny", "", exit_layer=exit_layer, slots=slots)
    cost = cost or PassCost()
    parts = DrafterResources(
        target,
        draft_model,
        cost,
        options={"exit_layer": float(exit_layer), **options},
        margin=margin,
    )
    return assemble(spec, parts, "no draft model", speller)


def decoded(target, ids, length, draft, **about):
    """The outcome of every round of one request, run by hand; ``ids`` grows by ``length`` or more.

    ``draft`` makes the tree of a context, and ``about`` is what the context says besides its ids.
    """
    end = len(ids) + length
    while len(ids) < end:
        here = Context(1, 0, list(ids), **about)
        tree = draft(here)
        [scores] = target.score([0], [tree])
        verdict = verify(tree, scores.logits, here.sampling, here.rng)
        outcome = Outcome(here, tree, verdict, 0.0, 0.0, scores)
        yield outcome
        target.commit(0, verdict.path)
        ids += outcome.emitted


def drafter_of(engine: Engine, name: str, **fields):
    """The drafter that requests like this one share."""
    number = engine.submit(GenerationRequest((1,), 1, drafter=name, **fields))
    drafter = engine.requests[number].drafter
    engine.cancel(number)
    while engine.busy:
        engine.step()
    return drafter


def run_all(engine: Engine, requests: Sequence[GenerationRequest], chances=()):
    """[(ids, Done)] of requests that run together; ``chances`` replace their own randomness."""
    numbers = [engine.submit(r) for r in requests]
    for number, chance in zip(numbers, chances, strict=False):
        engine.requests[number].rng = chance
    found = {n: ([], None) for n in numbers}
    while engine.busy:
        for number, event in engine.step():
            ids, done = found[number]
            assert done is None  # Done is the last event
            found[number] = (
                (ids + list(event.ids), None) if isinstance(event, Tokens) else (ids, event)
            )
    assert all(isinstance(done, Done) for _, done in found.values())
    return [found[n] for n in numbers]
