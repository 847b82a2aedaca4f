"""Grammar-constrained decoding: mask the logits of every node of a draft tree along its own path.

Tokens that the grammar does not allow get probability 0 before sampling. In a tree every node has its
own grammar state: that of the answer so far and the path down to the node. A drafted token therefore
passes exactly where plain decoding could have sampled it, and drafters need not know the grammar.
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

KEPT = 8  # compiled grammars; programs send the same few again and again
KEPT_BYTES = 1 << 24  # cached masks of one grammar
MOST_STATES = 1 << 14  # of one grammar, 1 KiB each; a larger one is compiled again


class TokenMasks:
    """The allowed tokens of each state of one grammar, over one vocabulary."""

    def __init__(self, grammar: Grammar, spelling: Spelling) -> None:
        self.states, self.spelling = States(grammar), spelling
        self._kept: OrderedDict[int, Tensor] = OrderedDict()
        self._most = max(1, KEPT_BYTES // max(1, len(spelling.tokens)))

    def of(self, state: int) -> Tensor:
        """Mask [V] of the tokens allowed next; stop tokens are not included."""
        if state in self._kept:
            self._kept.move_to_end(state)
        else:
            self._kept[state] = torch.from_numpy(self.spelling.allowed(self.states, state))
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return self._kept[state]


class GrammarMatcher:
    """The grammar state of one answer."""

    def __init__(self, masks: TokenMasks, stops: frozenset[int], prompt: int) -> None:
        self.masks, self.stops = masks, stops
        self._length, self._state = prompt, masks.states.start

    def advance(self, ids: Sequence[int]) -> int:
        """Read the committed tokens ``ids`` and return the state after them. Raises Ambiguous."""
        added = ids[self._length :]
        self.masks.states.grant(len(added))
        for token in added:
            self._state = self._next(self._state, token)
        self._length = len(ids)
        return self._state

    def mask(self, tree: DraftTree, logits: Logits, ids: Sequence[int], *, greedy: bool) -> Logits:
        """The logits [N, V] with minus infinity for tokens that the node's path does not allow.

        ``ids`` are the committed tokens; the last one is the root. In greedy mode only rows on the
        accepted path are masked, and only if their largest logit is not allowed: the result is the
        same, and most answers need no mask. Raises Stuck or Ambiguous.
        """
        states = self._node_states(tree, self.advance(ids))
        if greedy:
            return self._mask_greedy(tree, logits, states)
        rows = torch.as_tensor(logits).clone()
        for row, state in zip(rows, states, strict=True):
            if state != DEAD:
                self._mask_row(row, state)
        return rows

    def _mask_greedy(self, tree: DraftTree, logits: Logits, states: Sequence[int]) -> Logits:
        tokens, rows, copied = _argmax(logits), torch.as_tensor(logits), False
        node: int | None = 0
        while node is not None:
            token, state = tokens[node], states[node]
            if state != DEAD and not self._allows(state, token):
                rows, copied = rows if copied else rows.clone(), True
                self._mask_row(rows[node], state)
                token = int(rows[node].argmax())
            node = next((c for c in tree.children[node] if tree.tokens[c] == token), None)
        return rows if copied else logits

    def _node_states(self, tree: DraftTree, root: int) -> list[int]:
        states = [root]
        for token, parent in zip(tree.tokens[1:], tree.parents[1:], strict=True):
            states.append(self._next(states[parent], token))
        return states

    def _next(self, state: int, token: int) -> int:
        """The state after a token. Nothing may follow a stop token or a token without bytes."""
        text = self.masks.spelling.tokens[token]
        if token in self.stops or not text:
            return DEAD
        return self.masks.states.walk(state, text)

    def _allows(self, state: int, token: int) -> bool:
        if token in self.stops:
            return self.masks.states.accepts(state)
        return self._next(state, token) != DEAD

    def _mask_row(self, row: Tensor, state: int) -> None:
        """Set the tokens that are not allowed to minus infinity, in place."""
        stops = [token for token in self.stops if token < row.shape[-1]]
        stop_logits = row[stops]
        row.masked_fill_(~self.masks.of(state).to(row.device), -torch.inf)
        complete = self.masks.states.accepts(state)
        row[stops] = stop_logits if complete else -torch.inf
        if not complete and not bool(self.masks.of(state).any()):
            raise Stuck


def _argmax(logits: Logits) -> list[int]:
    """Argmax of every row; on the CPU in NumPy, whose argmax is vectorised, unlike torch's."""
    if isinstance(logits, Tensor):
        if not logits.is_cpu:
            return cast("list[int]", logits.argmax(-1).tolist())
        logits = logits.float().numpy(force=True)
    return cast("list[int]", logits.argmax(-1).tolist())


class GrammarCache:
    """Compiled grammars of one model, least recently used ones dropped."""

    def __init__(self, vocab: int, speller: Speller | None) -> None:
        self._vocab, self._speller = vocab, speller
        self._spelling: Spelling | None = None
        self._masks: OrderedDict[Grammar, TokenMasks] = OrderedDict()

    def matcher(self, request: GenerationRequest) -> GrammarMatcher | None:
        """A matcher for one answer; None without a grammar. Raises InvalidRequest."""
        grammar = request.grammar
        if grammar is None:
            return None
        if not request.stop_tokens:
            raise InvalidRequest("a grammar needs at least one stop token to end the answer")
        return GrammarMatcher(self._compiled(grammar), request.stop_tokens, len(request.prompt))

    def _compiled(self, grammar: Grammar) -> TokenMasks:
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
            raise InvalidRequest("this engine has no tokenizer, which grammars need")
        if self._spelling is None:
            self._spelling = Spelling(self._speller.tokens(self._vocab), self._speller.encode)
        return self._spelling
