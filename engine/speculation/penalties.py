"""Penalties: logits that depend on the tokens before them, applied per node of a draft tree.

One pass scores many positions, and each has its own previous tokens: the answer so far and the path
down to the node. A penalty must see exactly the tokens that plain decoding would see; otherwise a
drafted token could pass that plain decoding would have avoided.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.request import Penalties
from engine.speculation.tree import DraftTree

REPEAT_WINDOW = 64  # last tokens that ``repeat`` looks at, prompt included; llama.cpp's number


def penalised(
    tree: DraftTree, logits: Tensor, penalties: Penalties, ids: Sequence[int], prompt: int
) -> Tensor:
    """A copy of the logits [N, V] with every node's penalties applied; at least float32.

    ``ids`` are the committed tokens: the last one is the root, the first ``prompt`` ones are the
    prompt. The order is repeat, then presence and frequency, then the bias.
    """
    rows = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    paths = _paths(tree)
    if penalties.repeat != 1:
        for row, path in zip(rows, paths, strict=True):
            window = [*ids[-REPEAT_WINDOW:], *path][-REPEAT_WINDOW:]
            _apply_repeat(row, window, penalties.repeat)
    if penalties.presence or penalties.frequency:
        answer = ids[prompt:]
        for row, path in zip(rows, paths, strict=True):
            _apply_counts(row, Counter([*answer, *path]), penalties)
    if penalties.bias:
        tokens, values = zip(*penalties.bias, strict=True)
        rows[:, list(tokens)] += torch.tensor(values, dtype=rows.dtype, device=rows.device)
    return rows


def _paths(tree: DraftTree) -> list[tuple[int, ...]]:
    """The drafted tokens from below the root to every node, inclusive."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths


def _apply_repeat(row: Tensor, window: Sequence[int], factor: float) -> None:
    tokens = list(dict.fromkeys(window))
    logits = row[tokens]
    row[tokens] = torch.where(logits > 0, logits / factor, logits * factor)


def _apply_counts(row: Tensor, counts: Counter[int], penalties: Penalties) -> None:
    if counts:
        off = [penalties.presence + penalties.frequency * count for count in counts.values()]
        row[list(counts)] -= torch.tensor(off, dtype=row.dtype, device=row.device)
