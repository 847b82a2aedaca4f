"""Texts that a grammar lets through."""

from engine.errors import InvalidRequest
from engine.grammar.states import DEAD, States


def has(grammar, text):
    """Whether a whole text is one of the grammar's."""
    states = States(grammar)
    return states.accepts(states.walk(states.start, text.encode()))


def made(make, text):
    """The grammar; of what is refused the sentence instead."""
    try:
        return make(text), ""
    except InvalidRequest as error:
        return None, str(error)


def said(states, source, out=None, longest=80):
    """A text that the grammar lets through: a random walk that, when it is long, takes the way out."""
    state, text = states.start, bytearray()
    while True:
        row = states.steps([state])[state]
        live = [byte for byte in range(256) if row[byte] != DEAD]
        over = len(text) > longest or source.random() < 0.3
        if not live or (over and states.accepts(state)):
            return bytes(text)
        if len(text) > longest:
            return bytes(text) + (out or way_out)(states, state)
        text.append(source.choice(live))
        state = int(row[text[-1]])


CLOSING = b'"]}0123456789tfn'  # what ends a text soon, first


def way_out(states, state):
    """A text with a short way to an end."""
    text = bytearray()
    while not states.accepts(state):
        row = states.steps([state])[state]
        live = [byte for byte in range(255, -1, -1) if row[byte] != DEAD]  # letters before space
        text.append(next((byte for byte in CLOSING if byte in live), live[0]))
        state = int(row[text[-1]])
        assert len(text) < 10_000
    return bytes(text)


def shortest_way_out(states, state):
    """The same where no sign ends every text; only for small grammars."""
    paths = {state: b""}
    for here in (queue := [state]):
        if states.accepts(here):
            return paths[here]
        row = states.steps([here])[here].tolist()
        for byte, after in enumerate(row):
            if after != DEAD and after not in paths:
                paths[after] = paths[here] + bytes([byte])
                queue.append(after)
    raise AssertionError("there is no end")
