"""verify_all(): the host side of the verification kernels, the twin of decode.verify on a device.

Chosen candidates take one launch per tree, a drawn chain two, a drawn tree one for each of its levels
and two more. What a tree means to a kernel travels in one copy; verdicts of all trees come back in
one copy, so the accepted lengths of a round are read once. Filters of the law (top-k, top-p, min-p)
run in torch before. Greedy requests are decode.verify's: torch finds the largest logits of 64 nodes
in 158 microseconds and a kernel of ours took 269, all of them launches (H200, 32768 tokens).
Random numbers do not travel: see kernels.chance. Given the same numbers the verdicts are those of
decode.verify up to the rounding of exp and of sums, which decide only where two tokens tie.
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
_EACH = 8  # of them to a thread: a row has one program, so threads are what makes it fast
_ALIGNED = 4  # numbers to 16 bytes: a kernel is compiled anew for addresses that are no multiple
_HEAD = 4  # numbers of a verdict before its path


@dataclass(frozen=True, slots=True)
class _Launch:
    """One tree's buffers on the device."""

    tree: DraftTree
    rows: Tensor  # [N, V] logits, or laws where ``from_law``
    from_law: bool
    meta: Tensor  # [N, 5] int32, see kernels.walks
    judged: Tensor  # [N, 3] int32, and up to three numbers more, as of ``meta``
    ticket: Tensor  # [1] int32
    out: Tensor  # [4 + N] int32: length, bonus, finite, questions of drawn candidates, path

    @property
    def source(self) -> tuple[Tensor, int]:
        """The rows and the distance between two of them."""
        return self.rows, self.rows.stride(0)

    @property
    def verdict(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The tree, and where judgements and the verdict go."""
        return self.meta, self.judged, self.out, self.ticket

    @property
    def shape(self) -> tuple[int, int]:
        """Nodes and tokens."""
        return len(self.tree), self.rows.shape[1]

    @property
    def form(self) -> dict[str, int]:
        """Of a program: the tokens that it reads at once, and by how many threads."""
        block = int(min(_WIDEST, 1 << (self.rows.shape[1] - 1).bit_length()))
        warps = max(1, block // (32 * _EACH))
        return {"BLOCK": block, "num_warps": warps, "enable_fp_fusion": False}


def verify_all(
    trees: Sequence[DraftTree],
    logits: Sequence[Logits],
    samplings: Sequence[SamplingParams],
    chances: Sequence[RandomSource],
) -> list[Verdict | NumericalError]:
    """Judge every tree with its logits [N, V]; an error for those whose logits are not finite.

    A request whose chance no kernel can follow is judged by decode.verify.
    """
    cases = list(zip(trees, logits, samplings, chances, strict=True))
    followed = [
        not sampling.greedy and isinstance(chance, PhiloxRandom) for *_, sampling, chance in cases
    ]
    outs = _launched([case for case, able in zip(cases, followed, strict=True) if able])
    numbers = iter(outs)  # the only wait for all that are sampled
    pairs = zip(cases, followed, strict=True)
    return [
        _verdict(case, next(numbers)) if able else verify_or_error(*case) for case, able in pairs
    ]


_Case = tuple[DraftTree, Logits, SamplingParams, RandomSource]


def _launched(cases: Sequence[_Case]) -> list[list[int]]:
    """Every case's verdict, 4 + nodes numbers; all zero, so not finite, where no law could be made."""
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

    tree, _, sampling, chance = case
    assert isinstance(chance, PhiloxRandom)
    work = _prepared(tree, logits, sampling, out)
    random = (chance.key, chance.calls, sampling.temperature)
    if tree.q is None:
        lookup_walk[(len(tree),)](
            *work.source, *work.verdict, *random, *work.shape, FROM_LAW=work.from_law, **work.form
        )
    elif _is_block(tree):
        _launch_block(work, random)
    else:
        _launch_traversal(work, random)


_Random = tuple[int, int, float]


def _launch_traversal(work: _Launch, random: _Random) -> None:
    from engine.kernels.tree_verify import refuse_level, traversal_walk, tree_laws

    (count, vocab), device = work.shape, work.rows.device
    drawn, meta = _drawn(work.tree, device), work.meta
    levels = work.tree.levels
    order = torch.tensor([*chain(*levels), *work.tree.leaves_first], dtype=torch.int32).to(device)
    scratch = torch.empty(count, 3, vocab, dtype=torch.float32, device=device)
    turn, sound = torch.ones(2, count, dtype=torch.int32, device=device)
    reached = torch.empty(count, 2, dtype=torch.float64, device=device)
    tree_laws[(count,)](
        *work.source, scratch, reached, sound, random[2], vocab,
        FROM_LAW=work.from_law, **work.form,
    )  # fmt: skip
    first = 0
    for level in levels:
        refuse_level[(len(level),)](
            drawn, drawn.stride(0), meta, order, first, scratch, turn, reached, vocab,
            REPLACED=work.tree.replaced, **work.form,
        )  # fmt: skip
        first += len(level)
    traversal_walk[(1,)](
        meta, order[count:], scratch, turn, reached, sound, work.out, *random[:2], *work.shape,
        **work.form,
    )  # fmt: skip


def _launch_block(work: _Launch, random: _Random) -> None:
    from engine.kernels.block_verify import chain_laws, chain_walk

    count = len(work.tree)
    drawn = _drawn(work.tree, work.rows.device)
    laws = torch.empty(count, 5, dtype=torch.float32, device=work.rows.device)
    rows = (*work.source, drawn, drawn.stride(0))
    kinds = {"FROM_LAW": work.from_law, **work.form}
    chain_laws[(count,)](*rows, work.meta, laws, random[2], *work.shape, **kinds)
    chain_walk[(count,)](*rows, work.meta, laws, *work.verdict[1:], *random, *work.shape, **kinds)


def _aligned(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED


def _is_block(tree: DraftTree) -> bool:
    return tree.is_chain and tree.q is not None and len(tree.q) == tree.drafted


def _prepared(tree: DraftTree, logits: Tensor, sampling: SamplingParams, out: Tensor) -> _Launch:
    from_law = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
    rows = probabilities(logits, sampling) if from_law else logits
    if rows.dtype == torch.float64:
        rows = rows.float()
    count = len(tree)
    sizes = [_aligned(5 * count), _aligned(3 * count), _ALIGNED]  # meta, judged, the ticket
    numbers = np.zeros(sum(sizes), dtype=np.int32)
    numbers[: 5 * count] = described(tree).ravel()
    sent = torch.from_numpy(numbers).to(logits.device, non_blocking=True)
    meta, judged, ticket = torch.split(sent, sizes)
    return _Launch(tree, rows.contiguous(), from_law, meta, judged, ticket, out)


def described(tree: DraftTree) -> NDArray[np.int32]:
    """The tree as a kernel reads it: see ``meta`` in kernels.walks, [N, 5] int32.

    Chosen candidates ask one question per node of the path: as many as the node is deep come before.
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


def _drawn(tree: DraftTree, device: torch.device) -> Tensor:
    """The laws that children were drawn from, [Q, V] float32, in the order of ``tree.q``."""
    assert tree.q is not None
    if not tree.q:
        return torch.zeros(1, 1, device=device)
    return torch.stack([law.to(device, torch.float32) for law in tree.q.values()])


def _verdict(case: _Case, numbers: Sequence[int]) -> Verdict | NumericalError:
    tree, _, _, chance = case
    length, bonus, finite = numbers[: _HEAD - 1]
    if not finite:
        return NumericalError("the model's logits are not finite; its weights may be damaged")
    path = tuple(numbers[_HEAD : _HEAD + length])
    if isinstance(chance, PhiloxRandom):
        chance.calls += length if tree.q is None else numbers[_HEAD - 1]
    return Verdict(path, bonus)
