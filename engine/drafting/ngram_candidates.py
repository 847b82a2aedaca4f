"""Witnesses: places where the same words stood before, and what they say together of what comes next.

The longest match gets its confidence as share, the next longest that of the rest, and so on, the text
at hand before others; equal matches share equally, which makes it their frequency. Behind a token
only those places are left that said it, and share in the same way: two that agree were both right so
far, so both go on being heard. With each share carried on by itself, tokens behind the first one held
in 0.80 of all cases where that said 0.75, and this 0.79.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.drafting.match_confidence import MatchConfidence

OWN, FINISHED, BEGUN = range(3)  # where a match is: see Source


class Source(NamedTuple):
    """A place where the same words stood.

    In this request, in a finished one, or in one that was so far answered as this one is: there the
    match reaches back beyond the answer's first token.
    """

    length: int  # of the match
    origin: int  # OWN, FINISHED or BEGUN
    text: Sequence[int]
    end: int  # of the match in ``text``

    def following(self, depth: int) -> list[int]:
        """At most ``depth`` tokens that stood behind it; a period of this request runs on into itself."""
        tokens = list(self.text[self.end : self.end + depth])
        return tokens if self.origin != OWN or len(tokens) == depth else (tokens * depth)[:depth]


class NgramMatch(NamedTuple):
    """A source that said all tokens of a path so far, and what it says."""

    length: int  # of the match, before the path
    origin: int
    says: Sequence[int]  # from the path's first token on


class Continuations:
    """What may follow the newest words, in one tree; a node's score is the probability of its path."""

    def __init__(
        self,
        root: int,
        sources: Sequence[Source],
        most: int,
        confidences: Sequence[MatchConfidence],
    ) -> None:
        """Nothing behind ``root`` yet; longest match first, ``most`` levels, confidences by origin."""
        self.tokens, self.parents, self.scores = [root], [-1], [1.0]
        self._sure = [confidence.at for confidence in confidences]
        self._heard = [NgramMatch(s.length, s.origin, s.following(most)) for s in sources]
        self._first = self._said(self._heard, 0)

    def grow(self, stops: frozenset[int], least: float) -> None:
        """Add what the sources say; nothing is less likely than ``least``.

        A stop token ends a path and is not drafted: the pass that would accept it emits it anyway.
        """
        open_ = [(0, 0, self._heard)]
        while open_:
            node, depth, witnesses = open_.pop()
            if len(witnesses) == 1:
                self._follow(node, depth, witnesses[0], stops, least)
                continue
            score = self.scores[node]
            chances, agreed = self._said(witnesses, depth) if depth else self._first
            for token, chance in chances.items():
                if score * chance >= least and token not in stops:
                    child = self._add(node, token, score * chance)
                    open_.append((child, depth + 1, agreed[token]))

    def ranked(self) -> list[int]:
        """All nodes but the root, likeliest first; closed under ancestors, as scores fall with depth."""
        scores = self.scores
        return sorted(range(1, len(scores)), key=lambda node: (-scores[node], node))

    def path(self, most: int) -> list[int]:
        """The nodes of the chain of likeliest children."""
        path = [0]
        while len(path) <= most:
            rest = range(path[-1] + 1, len(self.tokens))
            below = [node for node in rest if self.parents[node] == path[-1]]
            if not below:
                break
            path.append(max(below, key=lambda node: (self.scores[node], -node)))
        return path[1:]

    @property
    def likeliest(self) -> float:
        """The chance of the likeliest next token, known before anything grows: all below has less."""
        return max(self._first[0].values())

    def _said(
        self, witnesses: Sequence[NgramMatch], depth: int
    ) -> tuple[dict[int, float], dict[int, list[NgramMatch]]]:
        """By next token: its chance behind a path of ``depth`` tokens, and who says it."""
        chances: dict[int, float] = {}
        agreed: dict[int, list[NgramMatch]] = {}
        left, start, many = 1.0, 0, len(witnesses)
        while start < many:
            length, origin, _ = witnesses[start]
            end = start + 1
            while (
                end < many and witnesses[end].length == length and witnesses[end].origin == origin
            ):
                end += 1
            share = left * self._sure[origin](length + depth)
            each = share / (end - start)
            for witness in witnesses[start:end]:
                if depth < len(witness.says):
                    token = witness.says[depth]
                    if token in chances:
                        chances[token] += each
                        agreed[token].append(witness)
                    else:
                        chances[token], agreed[token] = each, [witness]
            left, start = left - share, end
        return chances, agreed

    def _follow(
        self, node: int, depth: int, witness: NgramMatch, stops: frozenset[int], least: float
    ) -> None:
        """What the only one left says behind a node, until that is too unlikely."""
        length, origin, says = witness
        sure, score = self._sure[origin], self.scores[node]
        for at in range(depth, len(says)):
            score *= sure(length + at)
            if score < least or says[at] in stops:
                return
            node = self._add(node, says[at], score)

    def _add(self, parent: int, token: int, score: float) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.scores.append(score)
        return len(self.tokens) - 1
