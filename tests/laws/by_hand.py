"""Plain decoding written out by hand: penalties token by token, formats letter by letter."""

import torch

from engine.grammar.rules import Bytes, Choice, Grammar, Repeat, Row, Text
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
LETTER = Bytes(((97, 99),))
THIRDS = Grammar((("root", Repeat(Row((LETTER, LETTER, Text(b"a"))))),))
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


def by_hand_in_full(target, request):
    """A greedy answer with penalties: every token from a fresh pass over the whole text."""
    ids, sampling = list(request.prompt), request.sampling
    while len(ids) < len(request.prompt) + request.max_tokens:
        target.crop(0, 0)
        logits = target.score([0], [chain(ids)])[0].logits[-1]
        answer = ids[len(request.prompt) :]
        token = int(by_hand(logits, sampling.penalties, ids, answer).argmax())
        if token in request.stop_tokens:
            break
        ids.append(token)
    return ids[len(request.prompt) :]


WORDS = (b"", b"a", b"b", b"c", b"ab", b"ba", b"ca", b"aa", b"bb", b"cab", b"abc", b"aba", b"")
# Two repeated words: after the first letter the grammar leaves no choice, so the format drafts.
PAIR = (b"cabba", b"abcab")
PAIRS = Grammar((("root", Repeat(Choice(tuple(map(Text, PAIR))))),))


def fits_pairs(letters):
    """Whether some more letters can make a text of PAIRS."""
    while len(letters) >= 5:
        if letters[:5] not in PAIR:
            return False
        letters = letters[5:]
    return any(word.startswith(letters) for word in PAIR)


def by_hand_in_format(target, request, goes_on, size):
    """A greedy answer in a format: the likeliest token that fits, from a fresh pass each time.

    It may end after every ``size`` letters.
    """
    ids, answer = list(request.prompt), []
    while len(answer) < request.max_tokens:
        target.crop(0, 0)
        logits = target.score([0], [chain(ids)])[0].logits[-1]
        text = spelled(answer, WORDS)
        fitting = [bool(word) and goes_on(text + word) for word in WORDS]
        fitting[0] = len(text) % size == 0  # the stop token
        token = int(torch.where(torch.tensor(fitting), logits, -torch.inf).argmax())
        if token == 0:
            break
        ids.append(token)
        answer.append(token)
    return answer
