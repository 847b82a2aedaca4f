"""verify_all(): the host side of the verification kernels, the twin of decode.verify on a device.

Greedy and chosen candidates take one launch per tree, a drawn chain two, a drawn tree one for each
of its levels and two more. What a tree means to a kernel travels in one copy; verdicts of all trees
come back in one copy, so the accepted lengths of a round are read once. Filters of the law (top-k,
top-p, min-p) run in torch before.
Random numbers do not travel: see kernels.chance. Given the same numbers the verdicts are those of
decode.verify up to the rounding of exp and of sums, which decide only where two tokens tie.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.decode.chance import Chance
from engine.decode.sampling import probabilities
from engine.decode.tree import DraftTree
from engine.decode.verify import Logits, Verdict, verify
from engine.errors import NumericalError
from engine.kernels.chance import PhiloxChance
from engine.request import SamplingParams

_WIDEST = 4096  # tokens of one row that a program holds at once
_EACH = 8  # of them to a thread: a row has one program, so threads are what makes it fast
_HEAD = 4  # numbers of a verdict before its path


@dataclass(frozen=True, slots=True)
class _Launch:
    """One tree's buffers on the device."""

    tree: DraftTree
    rows: Tensor  # [N, V] logits, or laws where ``from_law``
    from_law: bool
    meta: Tensor  # [N, 5] int32, see kernels.walks
    judged: Tensor  # [N, 3] int32
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
    chances: Sequence[Chance],
) -> list[Verdict]:
    """Judge every tree with its logits [N, V]; raises NumericalError if they are not finite.

    A request whose chance no kernel can follow is judged by decode.verify.
    """
    rows = [torch.as_tensor(given) for given in logits]
    cases = list(zip(trees, rows, samplings, chances, strict=True))
    widest = max(len(tree) for tree in trees)
    device = rows[0].device
    outs = torch.zeros(len(cases), _HEAD + widest, dtype=torch.int32, device=device)
    followed = [_follows(sampling, chance) for _, _, sampling, chance in cases]
    for case, out, able in zip(cases, outs, followed, strict=True):
        if able:
            _launch(case, out)
    numbers = outs.tolist() if any(followed) else outs.shape[0] * [()]  # the round's only wait
    pairs = zip(cases, numbers, followed, strict=True)
    return [_verdict(case, n) if able else verify(*case) for case, n, able in pairs]


def _follows(sampling: SamplingParams, chance: Chance) -> bool:
    return sampling.greedy or isinstance(chance, PhiloxChance)


_Case = tuple[DraftTree, Tensor, SamplingParams, Chance]


def _launch(case: _Case, out: Tensor) -> None:
    from engine.kernels.walks import greedy_walk, lookup_walk

    tree, logits, sampling, chance = case
    work = _prepared(tree, logits, sampling, out)
    if sampling.greedy:
        greedy_walk[(len(tree),)](*work.source, *work.verdict, *work.shape, **work.form)
        return
    assert isinstance(chance, PhiloxChance)
    random = (chance.key, chance.calls, sampling.temperature)
    if tree.q is None:
        lookup_walk[(len(tree),)](
            *work.source, *work.verdict, *random, *work.shape,
            FROM_LAW=work.from_law, **work.form,
        )  # fmt: skip
    elif _is_block(tree):
        _launch_block(work, random)
    else:
        _launch_traversal(work, random)


_Random = tuple[int, int, float]


def _launch_traversal(work: _Launch, random: _Random) -> None:
    from engine.kernels.traversal import refuse_level, traversal_walk, tree_laws

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
    from engine.kernels.blocks import chain_laws, chain_walk

    count = len(work.tree)
    drawn = _drawn(work.tree, work.rows.device)
    laws = torch.empty(count, 5, dtype=torch.float32, device=work.rows.device)
    rows = (*work.source, drawn, drawn.stride(0))
    kinds = {"FROM_LAW": work.from_law, **work.form}
    chain_laws[(count,)](*rows, work.meta, laws, random[2], *work.shape, **kinds)
    chain_walk[(count,)](*rows, work.meta, laws, *work.verdict[1:], *random, *work.shape, **kinds)


def _is_block(tree: DraftTree) -> bool:
    return tree.is_chain and tree.q is not None and len(tree.q) == tree.drafted


def _prepared(tree: DraftTree, logits: Tensor, sampling: SamplingParams, out: Tensor) -> _Launch:
    filtered = sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0
    from_law = filtered and not sampling.greedy
    rows = probabilities(logits, sampling) if from_law else logits
    if rows.dtype == torch.float64:
        rows = rows.float()
    count = len(tree)
    numbers = np.zeros(8 * count + 1, dtype=np.int32)  # meta, then judged and the ticket
    numbers[: 5 * count] = described(tree).ravel()
    sent = torch.from_numpy(numbers).to(logits.device, non_blocking=True)
    meta, judged, ticket = torch.split(sent, [5 * count, 3 * count, 1])
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


def _verdict(case: _Case, numbers: Sequence[int]) -> Verdict:
    tree, _, sampling, chance = case
    length, bonus, finite = numbers[: _HEAD - 1]
    if not finite:
        raise NumericalError("the model's logits are not finite; its weights may be damaged")
    path = tuple(numbers[_HEAD : _HEAD + length])
    if isinstance(chance, PhiloxChance) and not sampling.greedy:
        chance.calls += length if tree.q is None else numbers[_HEAD - 1]
    return Verdict(path, bonus)
