"""Grammar-constrained decoding: mask the logits of every node of a draft tree along its own path.

Tokens that the grammar does not allow get probability 0 before sampling. In a tree every node has its
own grammar state: that of the answer so far and the path down to the node. A drafted token therefore
passes exactly where plain decoding could have sampled it, and drafters need not know the grammar.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from llguidance import LLMatcher
from torch import Tensor

from engine.errors import Ambiguous, InvalidRequest, Stuck
from engine.grammar.grammar import Grammar
from engine.grammar.vocabulary import Speller, Vocabulary, first_line
from engine.request import GenerationRequest
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits

KEPT = 8  # compiled grammars; programs send the same few again and again
_QUOTE, _BACKSLASH, _DIGITS = ord('"'), ord("\\"), frozenset(b"0123456789")
_STUCK = "NoExtensionBias"  # how llguidance names a state that no token of the vocabulary leaves


class Compiled:
    """A grammar over one vocabulary, from which every answer starts."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        """Raises InvalidRequest, also for a grammar that fails before the first token."""
        self.grammar, self.vocabulary = grammar, vocabulary
        self.failed = False  # an answer ended with an error: what it left is not used again
        self._start = vocabulary.matcher(grammar)
        first = self.start()
        first.compute_bitmask()
        if first.is_error() and _STUCK not in first.get_error():
            raise InvalidRequest(f"the grammar cannot be used: {first_line(first.get_error())}")

    def start(self) -> LLMatcher:
        """A matcher for one answer."""
        return self._start.deep_copy()

    def byte_start(self) -> LLMatcher:
        """The same over bytes: see ``Vocabulary.byte_matcher``."""
        return self._byte_start.deep_copy()

    @cached_property
    def _byte_start(self) -> LLMatcher:
        return self.vocabulary.byte_matcher(self.grammar)


@dataclass(frozen=True, slots=True)
class Run:
    """How many digits a JSON text ends with; those within its strings do not count."""

    digits: int = 0
    quoted: bool = False
    escaped: bool = False  # the next character belongs to a backslash

    def after(self, word: bytes) -> "Run":
        """With the bytes of one more token."""
        if not self.quoted and word.isdigit():
            return Run(self.digits + len(word))
        digits, quoted, escaped = self.digits, self.quoted, self.escaped
        for byte in word:
            if escaped:
                escaped = False
            elif quoted:
                escaped, quoted = byte == _BACKSLASH, byte != _QUOTE
            else:
                quoted = byte == _QUOTE
                digits = digits + 1 if byte in _DIGITS else 0
        return Run(digits, quoted, escaped)


class GrammarMatcher:
    """The grammar state of one answer."""

    def __init__(self, compiled: Compiled, stops: frozenset[int], start: int) -> None:
        """The answer begins after the first ``start`` tokens."""
        self.compiled, self.stops, self.start = compiled, stops, start
        self._state, self._length, self._fits = compiled.start(), start, True
        self._runs = [Run()]  # at the end of the answer, and of what is drafted

    def advance(self, ids: Sequence[int]) -> bool:
        """Read the committed tokens ``ids``; whether all of them fit the grammar. Raises Ambiguous."""
        added = list(ids[self._length :])
        self._length = len(ids)
        if added and self._fits:
            self._fits = self._state.try_consume_tokens(added) == len(added)
            for token in added:
                self._runs = [self._run(token)]
            self._check()
        return self._fits

    def mask(self, tree: DraftTree, logits: Logits, ids: Sequence[int], *, greedy: bool) -> Logits:
        """The logits [N, V] with minus infinity for tokens that the node's path does not allow.

        ``ids`` are the committed tokens; the last one is the root. In greedy mode only rows on the
        accepted path are masked, and only if their largest logit is not allowed: the result is the
        same, and most answers need no mask. Raises Stuck or Ambiguous.
        """
        if not self.advance(ids):
            return logits
        if greedy:
            return self._mask_greedy(tree, logits)
        rows = torch.as_tensor(logits).clone()
        self._mask_below(tree, rows, 0)
        return rows

    def _mask_below(self, tree: DraftTree, rows: Tensor, node: int) -> None:
        """Mask a node's row and those below it; rows of impossible paths stay as they are."""
        self._mask_row(rows[node])
        for child in tree.children[node]:
            if self._enter(tree.tokens[child]):
                self._mask_below(tree, rows, child)
                self._leave(1)

    def _mask_greedy(self, tree: DraftTree, logits: Logits) -> Logits:
        tokens, rows, copied, depth = _argmax(logits), torch.as_tensor(logits), False, 0
        node: int | None = 0
        while node is not None:
            token = tokens[node]
            if not self._allows(token):
                rows, copied = rows if copied else rows.clone(), True
                self._mask_row(rows[node])
                token = int(rows[node].argmax())
            node = next((c for c in tree.children[node] if tree.tokens[c] == token), None)
            if node is not None:
                if not self._enter(token):  # the answer ends here
                    break
                depth += 1
        self._leave(depth)
        return rows if copied else logits

    def _enter(self, token: int) -> bool:
        """Read one drafted token if it is allowed; nothing may follow a stop token."""
        if token in self.stops:
            return False
        entered = self._state.try_consume_tokens([token]) == 1
        self._check()
        if entered:
            self._runs.append(self._run(token))
        return entered

    def _leave(self, tokens: int) -> None:
        if tokens:
            self._state.rollback(tokens)
            del self._runs[-tokens:]
            self._check()

    def _allows(self, token: int) -> bool:
        if token in self.stops:
            return self._state.is_accepting()
        if self._is_long and self.compiled.vocabulary.digits[token : token + 1].any():
            return False  # the mask decides
        return self._state.validate_tokens([token]) == 1

    def _run(self, token: int) -> Run:
        """What the text ends with after a token."""
        return self._runs[-1].after(self.compiled.vocabulary.tokens[token])

    @property
    def _is_long(self) -> bool:
        most = self.compiled.grammar.most_digits
        return most is not None and self._runs[-1].digits >= most

    def _mask_row(self, row: Tensor) -> None:
        """Set the tokens that are not allowed to minus infinity, in place."""
        bits = np.frombuffer(self._state.compute_bitmask(), np.uint8)
        self._check()
        found = np.unpackbits(bits, bitorder="little")
        count = len(self.compiled.vocabulary.tokens)
        stops = [token for token in self.stops if token < row.shape[-1]]
        stop_logits = row[stops]
        allowed = found[:count].astype(np.bool_)
        if self._is_long and (found[count] or (allowed & ~self.compiled.vocabulary.digits).any()):
            allowed &= ~self.compiled.vocabulary.digits
        forbidden = torch.from_numpy(~allowed).to(row.device)
        row.masked_fill_(forbidden, -torch.inf)
        row[stops] = stop_logits if found[count] else -torch.inf

    def _check(self) -> None:
        """Raise what llguidance found; its matcher is of no use then."""
        if self._state.is_error():
            self.compiled.failed = True
            error = self._state.get_error()
            raise Stuck if _STUCK in error else Ambiguous(first_line(error))


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
        self._vocabulary: Vocabulary | None = None
        self._compiled: OrderedDict[Grammar, Compiled] = OrderedDict()

    def matcher(self, request: GenerationRequest) -> GrammarMatcher | None:
        """A matcher for one answer; None without a grammar. Raises InvalidRequest."""
        if request.grammar is None:
            return None
        if not request.stop_tokens:
            raise InvalidRequest("a grammar needs at least one stop token to end the answer")
        compiled = self._of(request.grammar)
        return GrammarMatcher(compiled, request.stop_tokens, len(request.prompt))

    def _of(self, grammar: Grammar) -> Compiled:
        found = self._compiled.pop(grammar, None)
        if found is None or found.failed:
            found = Compiled(grammar, self._words())
        self._compiled[grammar] = found
        if len(self._compiled) > KEPT:
            self._compiled.popitem(last=False)
        return found

    def _words(self) -> Vocabulary:
        if self._speller is None:
            raise InvalidRequest("this engine has no tokenizer, which grammars need")
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self._speller.tokens(self._vocab), self._speller.encode)
        return self._vocabulary
