"""Penalties: logits that depend on the tokens before them, so on every node's own path in a tree.

A pass scores many places of a text at once, and at each of them other tokens were said: those of the
answer so far and of the path down to the node. What a penalty does there must be what it would do in
plain decoding, or a drafted token could pass that the plain model would have been kept from.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.request import Penalties
from engine.speculation.tree import DraftTree

LATELY = 64  # tokens, the prompt's too, that ``repeat`` looks back at: llama.cpp's number


def penalised(
    tree: DraftTree, logits: Tensor, penalties: Penalties, ids: Sequence[int], prompt: int
) -> Tensor:
    """The logits [N, V] of every node after penalties; at least float32, the given ones stay.

    ``ids`` are the committed tokens, the last of which is the root, and the first ``prompt`` of them
    the prompt. ``repeat`` comes first, then presence and frequency, then the bias.
    """
    rows = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
    paths = _paths(tree)
    if penalties.repeat != 1:
        for row, path in zip(rows, paths, strict=True):
            _hold_back(row, [*ids[-LATELY:], *path][-LATELY:], penalties.repeat)
    if penalties.presence or penalties.frequency:
        answer = ids[prompt:]
        for row, path in zip(rows, paths, strict=True):
            _count_off(row, Counter([*answer, *path]), penalties)
    if penalties.bias:
        tokens, values = zip(*penalties.bias, strict=True)
        rows[:, list(tokens)] += torch.tensor(values, dtype=rows.dtype, device=rows.device)
    return rows


def _paths(tree: DraftTree) -> list[tuple[int, ...]]:
    """Drafted tokens down to every node, its own the last."""
    paths: list[tuple[int, ...]] = [()]
    for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return paths


def _hold_back(row: Tensor, said: Sequence[int], factor: float) -> None:
    tokens = list(dict.fromkeys(said))
    held = row[tokens]
    row[tokens] = torch.where(held > 0, held / factor, held * factor)


def _count_off(row: Tensor, said: Counter[int], penalties: Penalties) -> None:
    if said:
        off = [penalties.presence + penalties.frequency * times for times in said.values()]
        row[list(said)] -= torch.tensor(off, dtype=row.dtype, device=row.device)
