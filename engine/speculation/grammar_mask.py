"""Guides: a grammar held at every node of a draft tree, on the node's own path.

Where the answer of plain decoding would be held to a grammar, tokens that it has no place for get no
probability before anything else is done to the law. In a tree every node stands at another place of
the grammar: that of the answer so far and of the path down to it. So a drafted token passes exactly
where the plain model could have said it, and no drafter needs to know of grammars.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from engine.errors import InvalidRequest, Stuck
from engine.grammar.rules import Grammar
from engine.grammar.states import DEAD, States
from engine.grammar.token_bytes import Speller, Spelling
from engine.request import GenerationRequest
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits

KEPT = 8  # grammars; programs send the same few again and again
KEPT_BYTES = 1 << 24  # of masks of one grammar
MOST_STATES = 1 << 14  # of one grammar, 1 KiB each; then it is begun anew


class TokenMasks:
    """One grammar over one vocabulary: its states, and the tokens that each of them allows."""

    def __init__(self, grammar: Grammar, spelling: Spelling) -> None:
        self.states, self.spelling = States(grammar), spelling
        self._kept: OrderedDict[int, Tensor] = OrderedDict()
        self._most = max(1, KEPT_BYTES // max(1, len(spelling.tokens)))

    def of(self, state: int) -> Tensor:
        """Tokens [V] that may follow, stop tokens apart."""
        if state in self._kept:
            self._kept.move_to_end(state)
        else:
            self._kept[state] = torch.from_numpy(self.spelling.allowed(self.states, state))
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return self._kept[state]


class GrammarMatcher:
    """Where one answer stands in its grammar."""

    def __init__(self, masks: TokenMasks, stops: frozenset[int], prompt: int) -> None:
        self.masks, self.stops = masks, stops
        self._read, self._state = prompt, masks.states.start

    def place(self, ids: Sequence[int]) -> int:
        """The state behind the committed tokens ``ids``. Raises Ambiguous."""
        fresh = ids[self._read :]
        self.masks.states.grant(len(fresh))
        for token in fresh:
            self._state = self._behind(self._state, token)
        self._read = len(ids)
        return self._state

    def restricted(
        self, tree: DraftTree, logits: Logits, ids: Sequence[int], *, greedy: bool
    ) -> Logits:
        """The logits [N, V] with minus infinity where a node's path has no such token next.

        ``ids`` are the committed tokens, the last of which is the root. Greedily only rows on the
        path of the largest logits are touched, and of those the ones whose largest is not allowed:
        the outcome is the same, and most answers need no mask. Raises Stuck or Ambiguous.
        """
        states = self._places(tree, self.place(ids))
        if greedy:
            return self._along(tree, logits, states)
        rows = torch.as_tensor(logits).clone()
        for row, state in zip(rows, states, strict=True):
            if state != DEAD:
                self._hold(row, state)
        return rows

    def _along(self, tree: DraftTree, logits: Logits, states: Sequence[int]) -> Logits:
        """The rows in which the largest logits lead from the root down a path that is allowed."""
        likeliest, rows, held = _likeliest(logits), torch.as_tensor(logits), False
        node: int | None = 0
        while node is not None:
            token, state = likeliest[node], states[node]
            if state != DEAD and not self._allows(state, token):
                rows, held = rows if held else rows.clone(), True
                self._hold(rows[node], state)
                token = int(rows[node].argmax())
            node = next((c for c in tree.children[node] if tree.tokens[c] == token), None)
        return rows if held else logits

    def _places(self, tree: DraftTree, root: int) -> list[int]:
        """The state behind every node's path."""
        states = [root]
        for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
            states.append(self._behind(states[parent], token))
        return states

    def _behind(self, state: int, token: int) -> int:
        """Nothing follows a stop token, or a token without bytes."""
        text = self.masks.spelling.tokens[token]
        if token in self.stops or not text:
            return DEAD
        return self.masks.states.walk(state, text)

    def _allows(self, state: int, token: int) -> bool:
        if token in self.stops:
            return self.masks.states.accepts(state)
        return self._behind(state, token) != DEAD

    def _hold(self, row: Tensor, state: int) -> None:
        """Take every token that may not follow out of the row, in place."""
        stops = [token for token in self.stops if token < row.shape[-1]]
        ends = row[stops]
        row.masked_fill_(~self.masks.of(state).to(row.device), -torch.inf)
        over = self.masks.states.accepts(state)
        row[stops] = ends if over else -torch.inf
        if not over and not bool(self.masks.of(state).any()):
            raise Stuck


def _likeliest(logits: Logits) -> list[int]:
    """The token of the largest logit of every row; NumPy's argmax is vectorised, torch's is not."""
    if isinstance(logits, Tensor):
        if not logits.is_cpu:
            return cast("list[int]", logits.argmax(-1).tolist())
        logits = logits.float().numpy(force=True)
    return cast("list[int]", logits.argmax(-1).tolist())


class GrammarCache:
    """Guides of one model; the grammars that were asked for last stay."""

    def __init__(self, vocab: int, speller: Speller | None) -> None:
        self._vocab, self._speller = vocab, speller
        self._spelling: Spelling | None = None
        self._masks: OrderedDict[Grammar, TokenMasks] = OrderedDict()

    def guide(self, request: GenerationRequest) -> GrammarMatcher | None:
        """For one answer; None where any will do. Raises InvalidRequest."""
        grammar = request.grammar
        if grammar is None:
            return None
        if not request.stop_tokens:
            raise InvalidRequest("a format needs stop tokens: its end must be told somehow")
        return GrammarMatcher(self._known(grammar), request.stop_tokens, len(request.prompt))

    def _known(self, grammar: Grammar) -> TokenMasks:
        masks = self._masks.pop(grammar, None)
        if masks is None or masks.states.exhausted or len(masks.states) > MOST_STATES:
            spelling = self._vocabulary()
            grammar.check()
            spelling.check(grammar)
            masks = TokenMasks(grammar, spelling)
        self._masks[grammar] = masks
        if len(self._masks) > KEPT:
            self._masks.popitem(last=False)
        return masks

    def _vocabulary(self) -> Spelling:
        if self._speller is None:
            raise InvalidRequest("this engine was not told how its tokens are spelled")
        if self._spelling is None:
            self._spelling = Spelling(self._speller.tokens(self._vocab), self._speller.encode)
        return self._spelling
