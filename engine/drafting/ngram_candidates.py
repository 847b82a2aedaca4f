"""Continuations: what several earlier occurrences of the newest words together predict.

The longest match gets its confidence as share, the next longest that of the rest, and so on, the text
at hand before others. Equal matches share equally, so their share is their frequency. After a token
only the matches that predicted it are left, and share in the same way.
"""

from collections.abc import Sequence
from typing import NamedTuple

from engine.drafting.match_confidence import MatchConfidence

OWN, FINISHED = range(2)  # where a match is: in this request, or in a finished one


class Source(NamedTuple):
    """A place where the same words occurred."""

    length: int  # of the match
    origin: int  # OWN or FINISHED
    text: Sequence[int]
    end: int  # of the match in ``text``

    def following(self, depth: int) -> list[int]:
        """At most ``depth`` tokens after it; a period of this request continues into itself."""
        tokens = list(self.text[self.end : self.end + depth])
        return tokens if self.origin != OWN or len(tokens) == depth else (tokens * depth)[:depth]


class NgramMatch(NamedTuple):
    """A source that predicted all tokens of a path so far."""

    length: int  # of the match, before the path
    origin: int
    tokens: Sequence[int]  # that it predicts, from the path's first token on


class Continuations:
    """What may follow the newest words, as one tree; a node's score is the probability of its path."""

    def __init__(
        self,
        root: int,
        sources: Sequence[Source],
        most: int,
        confidences: Sequence[MatchConfidence],
    ) -> None:
        """``sources``: longest match first; ``most`` levels; ``confidences`` by origin."""
        self.tokens, self.parents, self.scores = [root], [-1], [1.0]
        self._confidence = [confidence.at for confidence in confidences]
        self._matches = [NgramMatch(s.length, s.origin, s.following(most)) for s in sources]
        self._first = self._next(self._matches, 0)

    def grow(self, stops: frozenset[int], least: float) -> None:
        """Add all nodes of a score of at least ``least``.

        A stop token ends a path and is not drafted: the pass that would accept it emits it anyway.
        """
        open_ = [(0, 0, self._matches)]
        while open_:
            node, depth, matches = open_.pop()
            if len(matches) == 1:
                self._follow(node, depth, matches[0], stops, least)
                continue
            score = self.scores[node]
            chances, agreeing = self._next(matches, depth) if depth else self._first
            for token, chance in chances.items():
                if score * chance >= least and token not in stops:
                    child = self._add(node, token, score * chance)
                    open_.append((child, depth + 1, agreeing[token]))

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
        """The chance of the likeliest next token, known before ``grow``; no node has a larger one."""
        return max(self._first[0].values())

    def _next(
        self, matches: Sequence[NgramMatch], depth: int
    ) -> tuple[dict[int, float], dict[int, list[NgramMatch]]]:
        """By next token after a path of ``depth`` tokens: its chance, and the matches that predict it."""
        chances: dict[int, float] = {}
        agreeing: dict[int, list[NgramMatch]] = {}
        left, start, count = 1.0, 0, len(matches)
        while start < count:
            length, origin, _ = matches[start]
            end = start + 1
            while end < count and matches[end].length == length and matches[end].origin == origin:
                end += 1
            share = left * self._confidence[origin](length + depth)
            each = share / (end - start)
            for match in matches[start:end]:
                if depth < len(match.tokens):
                    token = match.tokens[depth]
                    if token in chances:
                        chances[token] += each
                        agreeing[token].append(match)
                    else:
                        chances[token], agreeing[token] = each, [match]
            left, start = left - share, end
        return chances, agreeing

    def _follow(
        self, node: int, depth: int, match: NgramMatch, stops: frozenset[int], least: float
    ) -> None:
        """Add what the only match left predicts after a node, until that is too unlikely."""
        length, origin, tokens = match
        confidence, score = self._confidence[origin], self.scores[node]
        for at in range(depth, len(tokens)):
            score *= confidence(length + at)
            if score < least or tokens[at] in stops:
                return
            node = self._add(node, tokens[at], score)

    def _add(self, parent: int, token: int, score: float) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.scores.append(score)
        return len(self.tokens) - 1
