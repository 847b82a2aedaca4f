"""Texts that a grammar lets through."""

from functools import cache

import numpy as np

from engine.errors import InvalidRequest
from engine.grammar.grammar import CONTROL_BYTE
from engine.grammar.vocabulary import BYTES, Vocabulary

CLOSING = b'"]}0123456789tfn'  # what ends a text soon, first
MOST_PATHS = 600  # that are looked at for a way out


@cache
def words_of(marks):
    return Vocabulary([CONTROL_BYTE + mark.encode() for mark in marks])


class Walk:
    """One text of a grammar, byte by byte; bytes from 256 on are its control tokens."""

    def __init__(self, grammar, marks=()):
        self._words = words_of(tuple(marks))
        self._state = self._words.byte_matcher(grammar)
        assert not self._state.is_error(), self._state.get_error()

    def live(self):
        """The bytes that may follow, and whether the text may end."""
        bits = np.unpackbits(
            np.frombuffer(self._state.compute_bitmask(), np.uint8), bitorder="little"
        )
        assert not self._state.is_error(), self._state.get_error()
        found = np.flatnonzero(bits).tolist()
        ends = bool(found) and found[-1] == BYTES + len(self._words.marks)
        return found[:-1] if ends else found, ends

    def take(self, path):
        """Whether all of this may follow; else the walk is over."""
        return self._state.try_consume_tokens(list(path)) == len(path)

    def back(self, count):
        """Take back the last bytes."""
        assert self._state.rollback(count)

    def restart(self):
        """Back to the start."""
        self._state.reset()

    def ends(self):
        """Whether the text may end here."""
        return self._state.is_accepting()


def has(grammar, text):
    """Whether a whole text is one of the grammar's."""
    walk = Walk(grammar)
    return walk.take(text.encode()) and walk.ends()


def had(grammar, texts):
    """Those of the texts that are the grammar's."""
    walk, found = Walk(grammar), set()
    for text in texts:
        walk.restart()
        if walk.take(text.encode()) and walk.ends():
            found.add(text)
    return found


def made(make, text):
    """The grammar; of what is refused the sentence instead."""
    try:
        return make(text), ""
    except InvalidRequest as error:
        return None, str(error)


def said(grammar, source, longest=80, marks=(), *, may_fail=False):
    """A text that the grammar lets through: a random walk that, when it is long, takes the way out.

    Where it ``may_fail``, None for a walk that meets no end: a word that has to come somewhere.
    """
    walk, text = Walk(grammar, marks), []
    while True:
        live, ends = walk.live()
        over = len(text) > longest or source.random() < 0.3
        if not live or (over and ends):
            return bytes(text) if not marks else text
        closing = [byte for byte in CLOSING if byte in live]
        path = [source.choice(live)]
        if len(text) > longest and closing and source.random() < 0.7:
            path = closing[:1]
        elif len(text) > longest and len(text) % 40 == 0:
            path = way_out(walk) or path
        text += path
        assert walk.take(path)
        if may_fail and len(text) > 1000:
            return None
        assert len(text) < 10_000


def way_out(walk):
    """A short path to an end; places from which the same bytes may follow are taken for one."""
    seen, paths = set(), [[]]
    while paths and len(seen) < MOST_PATHS:
        longer = []
        for path in paths:
            walk.take(path)
            live, ends = walk.live()
            if path:
                walk.back(len(path))
            if ends:
                return path
            if tuple(live) not in seen:
                seen.add(tuple(live))
                longer += [[*path, byte] for byte in live]
        paths = longer
    return []
