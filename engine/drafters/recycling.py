"""Token recycling (arXiv 2408.08696): what the target itself once thought would follow each token."""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import torch
from typing_extensions import override

from engine.interfaces.drafter import Budget, Context, Drafter, DrafterResources, Outcome
from engine.interfaces.target import Capability
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree

WIDTH = 8  # successors kept of every token
RECENT = 2  # successors of one token in the prompt that go before the target's own
COPIED = 0.6  # probability that a token is followed by what followed it last time in the prompt
FLOOR = 0.01  # estimated probability that makes a node worth its row, where the budget names none


class Recycling(Drafter):
    """Best-first trees over a table [V, 8] of successors, filled from the target's past logits.

    As in the paper, every scored row updates its token, hypothetical rows too. Instead of the
    paper's fixed template of ranks, the table keeps each successor's probability (normalised over
    the eight), and the tree takes the paths of largest product. The target does not score prompts;
    there the text's own bigrams are entered before an answer starts.

    The table belongs to the model, not to a request: all requests read and write it, and it has a
    fixed size of 64 bytes per token of the vocabulary. Candidates are chosen, never drawn.
    """

    title = "Token recycling"
    summary = "Builds trees of the tokens that the model found likely before."
    accepted = "were reused from earlier guesses"
    needs = frozenset({Capability.TREE})
    max_draft = Budget(depth=6, nodes=32)
    default_length = "goodput"
    starts_empty = True

    def __init__(self, parts: DrafterResources) -> None:
        """Make an empty table; a probability of 0 marks an empty place."""
        self._width = min(WIDTH, parts.target.vocab)
        shape = (parts.target.vocab, self._width)
        self._tokens = np.zeros(shape, np.int32)
        self._chances = np.zeros(shape, np.float32)
        self._started: set[int] = set()

    @override
    def draft(self, batch: Sequence[Context], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each context; the root alone where its token was never seen."""
        for context in batch:
            if context.request not in self._started:
                self._started.add(context.request)
                self._read(context.ids)
        return [self._one(c, b) for c, b in zip(batch, budgets, strict=True)]

    @override
    def observe(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the likeliest successors of every scored node."""
        scored = [o for o in outcomes if o.scores is not None]
        if not scored:
            return
        rows = [o.scores.logits for o in scored if o.scores is not None]
        best = top_k(rows[0] if len(rows) == 1 else torch.cat(rows), self._width)
        tokens = best.indices.cpu().numpy()
        chances = torch.softmax(best.values.float(), -1).cpu().numpy()
        nodes = np.array([token for o in scored for token in o.tree.tokens])
        order = _certain_last(scored)  # where a token occurs twice, the last assignment holds
        self._tokens[nodes[order]] = tokens[order]
        self._chances[nodes[order]] = chances[order]

    @override
    def forget(self, request: int, slot: int) -> None:
        """What was learned stays; only that the request's prompt was read is dropped."""
        self._started.discard(request)

    def _read(self, ids: Sequence[int]) -> None:
        """Enter the prompt's bigrams: the newest two successors of each token go first."""
        recent: dict[int, list[int]] = {}
        for token, following in pairwise(ids):
            seen = recent.setdefault(token, [])
            if following in seen:
                seen.remove(following)
            seen.append(following)
            del seen[:-RECENT]
        for token, seen in recent.items():
            self._enter(token, seen[::-1])

    def _enter(self, token: int, newest: list[int]) -> None:
        """Give ``newest`` most of the mass; what was there before shares the rest."""
        mixed, left = {}, 1.0
        for following in newest:
            mixed[following] = left * COPIED
            left *= 1 - COPIED
        for following, chance in zip(
            self._tokens[token].tolist(), self._chances[token].tolist(), strict=True
        ):
            if chance > 0:
                mixed[following] = mixed.get(following, 0.0) + left * chance
        best = sorted(mixed.items(), key=lambda item: -item[1])[: self._width]
        self._chances[token] = 0
        for place, (following, chance) in enumerate(best):
            self._tokens[token, place], self._chances[token, place] = following, chance

    def _one(self, context: Context, budget: Budget) -> DraftTree:
        """Best first: of every opened node, only the likeliest successor that is not in the tree waits."""
        tokens, parents = [context.ids[-1]], [-1]
        least = 0.0 if budget.exact else budget.floor or FLOOR
        row = self._row(tokens[0], context.stop_tokens)
        waiting = [(-row[0][1], 0, 0, 1.0, 1, row)] if row and budget.depth > 0 else []
        while waiting and len(tokens) <= budget.nodes:
            score, parent, place, base, depth, row = heappop(waiting)
            if -score < least:
                break
            node = len(tokens)
            tokens.append(row[place][0])
            parents.append(parent)
            if place + 1 < len(row):
                beside = -base * row[place + 1][1]
                heappush(waiting, (beside, parent, place + 1, base, depth, row))
            if depth < budget.depth and (below := self._row(tokens[-1], context.stop_tokens)):
                heappush(waiting, (score * below[0][1], node, 0, -score, depth + 1, below))
        return DraftTree(tuple(tokens), tuple(parents))

    def _row(self, token: int, stops: frozenset[int]) -> list[tuple[int, float]]:
        """Successors and their probabilities, likeliest first.

        Stop tokens are not drafted: the pass that would accept one emits it anyway.
        """
        pairs = zip(self._tokens[token].tolist(), self._chances[token].tolist(), strict=True)
        return [pair for pair in pairs if pair[1] > 0 and pair[0] not in stops]


def _certain_last(outcomes: Sequence[Outcome]) -> list[int]:
    """All rows, the hypothetical ones first, then those of the accepted paths."""
    certain: list[int] = []
    rest: list[int] = []
    first = 0
    for outcome in outcomes:
        path = set(outcome.verdict.path)
        for node in range(len(outcome.tree)):
            (certain if node in path else rest).append(first + node)
        first += len(outcome.tree)
    return rest + certain
