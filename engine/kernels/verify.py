"""verify_all(): the host side of the verification kernels; same results as engine.speculation.verify.

Chosen candidates take one launch per tree, a sampled chain two, a sampled tree two and one per level.
Each tree is copied to the device once, and one copy returns the verdicts of all trees. Filters
(top-k, top-p, min-p) run in torch first. Greedy requests use engine.speculation.verify: torch finds the
largest logits of 64 nodes in 158 us, and a kernel took 269 (H200, 32768 tokens).
The kernels compute random numbers themselves: see engine.kernels.philox. Given the same numbers, the
verdicts differ only where rounding of exp and sums decides between two tied tokens.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import NumericalError
from engine.kernels.philox import PhiloxRandom
from engine.request import SamplingParams
from engine.speculation.rng import RandomSource
from engine.speculation.sampling import probabilities
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits, Verdict, verify_or_error

_WIDEST = 4096  # tokens of one row that a program holds at once
_EACH = 8  # tokens per thread: a row has one program, so it needs many threads
_ALIGNED = 4  # numbers in 16 bytes: Triton compiles again for addresses that are not aligned
_HEAD = 4  # numbers of a verdict before the path


@dataclass(frozen=True, slots=True)
class _Launch:
    """One tree's buffers on the device."""

    tree: DraftTree
    rows: Tensor  # [N, V] logits, or probabilities if ``from_probs``
    from_probs: bool
    meta: Tensor  # [N, 5] int32, see engine.kernels.tree_walk
    judged: Tensor  # [N, 3] int32, padded like ``meta``
    ticket: Tensor  # [1] int32
    out: Tensor  # [4 + N] int32: length, bonus, finite, random calls of sampled candidates, path

    @property
    def source(self) -> tuple[Tensor, int]:
        """The rows and their stride."""
        return self.rows, self.rows.stride(0)

    @property
    def verdict(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tree, and the buffers for node results and the verdict."""
        return self.meta, self.judged, self.out, self.ticket

    @property
    def shape(self) -> tuple[int, int]:
        """N and V."""
        return len(self.tree), self.rows.shape[1]

    @property
    def form(self) -> dict[str, int]:
        """Launch options: tokens per block, and warps."""
        block = int(min(_WIDEST, 1 << (self.rows.shape[1] - 1).bit_length()))
        warps = max(1, block // (32 * _EACH))
        return {"BLOCK": block, "num_warps": warps, "enable_fp_fusion": False}


def verify_all(
    trees: Sequence[DraftTree],
    logits: Sequence[Logits],
    samplings: Sequence[SamplingParams],
    rngs: Sequence[RandomSource],
) -> list[Verdict | NumericalError]:
    """Verify every tree with its logits [N, V]; an error for trees whose logits are not finite.

    Requests without a PhiloxRandom, and greedy ones, use engine.speculation.verify.
    """
    cases = list(zip(trees, logits, samplings, rngs, strict=True))
    on_device = [
        not sampling.greedy and isinstance(rng, PhiloxRandom) for *_, sampling, rng in cases
    ]
    outs = launch_all([case for case, able in zip(cases, on_device, strict=True) if able])
    numbers = iter(outs)  # the only sync
    pairs = zip(cases, on_device, strict=True)
    return [
        _verdict(case, next(numbers)) if able else verify_or_error(*case) for case, able in pairs
    ]


_Case = tuple[DraftTree, Logits, SamplingParams, RandomSource]


def launch_all(cases: Sequence[_Case]) -> list[list[int]]:
    """Launch every case; returns the verdicts, 4 + N numbers each, all 0 if probabilities failed."""
    if not cases:
        return []
    rows = [torch.as_tensor(logits) for _, logits, *_ in cases]
    widest = _aligned(_HEAD + max(len(tree) for tree, *_ in cases))
    outs = torch.zeros(len(cases), widest, dtype=torch.int32, device=rows[0].device)
    for case, own, out in zip(cases, rows, outs, strict=True):
        with suppress(NumericalError):
            _launch(case, own, out)
    found: list[list[int]] = outs.tolist()
    return found


def _launch(case: _Case, logits: Tensor, out: Tensor) -> None:
    from engine.kernels.tree_walk import lookup_walk

    tree, _, sampling, rng = case
    assert isinstance(rng, PhiloxRandom)
    work = _prepared(tree, logits, sampling, out)
    random = (rng.key, rng.calls, sampling.temperature)
    if tree.q is None:
        lookup_walk[(len(tree),)](
            *work.source,
            *work.verdict,
            *random,
            *work.shape,
            FROM_PROBS=work.from_probs,
            **work.form,
        )
    elif _is_block(tree):
        _launch_block(work, random)
    else:
        _launch_traversal(work, random)


_Random = tuple[int, int, float]


def _launch_traversal(work: _Launch, random: _Random) -> None:
    from engine.kernels.tree_verify import reject_level, traversal_walk, tree_probs

    (count, vocab), device = work.shape, work.rows.device
    q, meta = _proposals(work.tree, device), work.meta
    levels = work.tree.levels
    order = torch.tensor([*chain(*levels), *work.tree.leaves_first], dtype=torch.int32).to(device)
    scratch = torch.empty(count, 3, vocab, dtype=torch.float32, device=device)
    turn, sound = torch.ones(2, count, dtype=torch.int32, device=device)
    reached = torch.empty(count, 2, dtype=torch.float64, device=device)
    tree_probs[(count,)](
        *work.source, scratch, reached, sound, random[2], vocab,
        FROM_PROBS=work.from_probs, **work.form,
    )  # fmt: skip
    first = 0
    for level in levels:
        reject_level[(len(level),)](
            q, q.stride(0), meta, order, first, scratch, turn, reached, vocab,
            REPLACED=work.tree.replaced, **work.form,
        )  # fmt: skip
        first += len(level)
    traversal_walk[(1,)](
        meta, order[count:], scratch, turn, reached, sound, work.out, *random[:2], *work.shape,
        **work.form,
    )  # fmt: skip


def _launch_block(work: _Launch, random: _Random) -> None:
    from engine.kernels.block_verify import chain_statistics, chain_walk

    count = len(work.tree)
    q = _proposals(work.tree, work.rows.device)
    laws = torch.empty(count, 5, dtype=torch.float32, device=work.rows.device)
    rows = (*work.source, q, q.stride(0))
    kinds = {"FROM_PROBS": work.from_probs, **work.form}
    chain_statistics[(count,)](*rows, work.meta, laws, random[2], *work.shape, **kinds)
    chain_walk[(count,)](*rows, work.meta, laws, *work.verdict[1:], *random, *work.shape, **kinds)


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED


def _is_block(tree: DraftTree) -> bool:
    return tree.is_chain and tree.q is not None and len(tree.q) == tree.drafted


def _prepared(tree: DraftTree, logits: Tensor, sampling: SamplingParams, out: Tensor) -> _Launch:
    from_probs = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
    rows = probabilities(logits, sampling) if from_probs else logits
    if rows.dtype == torch.float64:
        rows = rows.float()
    count = len(tree)
    sizes = [_aligned(5 * count), _aligned(3 * count), _ALIGNED]  # meta, judged, the ticket
    numbers = np.zeros(sum(sizes), dtype=np.int32)
    numbers[: 5 * count] = described(tree).ravel()
    sent = torch.from_numpy(numbers).to(logits.device, non_blocking=True)
    meta, judged, ticket = torch.split(sent, sizes)
    return _Launch(tree, rows.contiguous(), from_probs, meta, judged, ticket, out)


def described(tree: DraftTree) -> NDArray[np.int32]:
    """The tree as kernels read it, [N, 5] int32: see ``meta`` in engine.kernels.tree_walk.

    Chosen candidates use one random call per node of the path, so a node's first call is its depth.
    """
    rows = np.full((len(tree), 5), -1, dtype=np.int32)
    rows[:, 0] = tree.tokens
    rows[:, 3] = tree.depth if tree.q is None else tree.parents
    for node, children in enumerate(tree.children):
        rows[list(children[:-1]), 2] = children[1:]
        if children:
            rows[node, 1] = children[0]
    for at, node in enumerate(tree.q or ()):
        rows[node, 4] = at
    return rows


def _proposals(tree: DraftTree, device: torch.device) -> Tensor:
    """The distributions that children were sampled from, [Q, V] float32, in the order of ``tree.q``."""
    assert tree.q is not None
    if not tree.q:
        return torch.zeros(1, 1, device=device)
    return torch.stack([law.to(device, torch.float32) for law in tree.q.values()])


def _verdict(case: _Case, numbers: Sequence[int]) -> Verdict | NumericalError:
    tree, _, _, rng = case
    length, bonus, finite = numbers[: _HEAD - 1]
    if not finite:
        return NumericalError("the model's logits are not finite; its weights may be damaged")
    path = tuple(numbers[_HEAD : _HEAD + length])
    if isinstance(rng, PhiloxRandom):
        rng.calls += length if tree.q is None else numbers[_HEAD - 1]
    return Verdict(path, bonus)
