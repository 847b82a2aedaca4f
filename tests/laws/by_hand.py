"""Plain decoding written out by hand: penalties token by token, formats letter by letter."""

import torch

from engine.grammar.grammar import Grammar
from engine.speculation.tree import chain


def by_hand(logits, penalties, said, answer):
    """One row of logits [V] after penalties, token by token."""
    found = []
    for token, logit in enumerate(logits.tolist()):
        held = logit / penalties.repeat if logit > 0 else logit * penalties.repeat
        off = penalties.presence * (token in answer) + penalties.frequency * answer.count(token)
        kept = held if token in said[-64:] else logit
        found.append(kept - off + dict(penalties.bias).get(token, 0.0))
    return torch.tensor(found, dtype=logits.dtype)


# Every third letter is an "a", whatever the tokens are that the letters come in.
THIRDS = Grammar('start: (/[a-c]/ /[a-c]/ "a")*')
SPELLED = (b"a", b"b", b"ab")


def fits(letters):
    """Whether some more letters can make a text of THIRDS."""
    return all(letter == ord("a") for letter in letters[2::3])


def spelled(tokens, words=SPELLED):
    return b"".join(words[token] for token in tokens)


def held_by_hand(row, said, prompt, penalties, grammar):
    """One row of logits [V] after a request's penalties and format, whatever drafts."""
    if penalties is not None:
        row = by_hand(row, penalties, said, said[prompt:])
    if grammar is not None:
        text = spelled(said[prompt:])
        kept = [fits(text + word) for word in SPELLED]
        row = torch.where(torch.tensor(kept), row, -torch.inf)
    return row


def greedy_by_hand(target, request, row_of):
    """A greedy answer, every token from a fresh pass over the whole text.

    ``row_of(logits, ids, answer)`` gives the row [V] after penalties or a format.
    """
    ids, answer = list(request.prompt), []
    while len(answer) < request.max_tokens:
        target.crop(0, 0)
        logits = target.score([0], [chain(ids)])[0].logits[-1]
        token = int(row_of(logits, ids, answer).argmax())
        if token in request.stop_tokens:
            break
        ids.append(token)
        answer.append(token)
    return answer


WORDS = (b"", b"a", b"b", b"c", b"ab", b"ba", b"ca", b"aa", b"bb", b"cab", b"abc", b"aba", b"")
# Two repeated words: after the first letter the grammar leaves no choice, so the format drafts.
PAIR = (b"cabba", b"abcab")
PAIRS = Grammar('start: ("cabba" | "abcab")*')


def fits_pairs(letters):
    """Whether some more letters can make a text of PAIRS."""
    while len(letters) >= 5:
        if letters[:5] not in PAIR:
            return False
        letters = letters[5:]
    return any(word.startswith(letters) for word in PAIR)


def in_format(logits, answer, goes_on, size):
    """One row of logits [V] in a format that may end after every ``size`` letters."""
    text = spelled(answer, WORDS)
    fitting = [bool(word) and goes_on(text + word) for word in WORDS]
    fitting[0] = len(text) % size == 0  # the stop token
    return torch.where(torch.tensor(fitting), logits, -torch.inf)
