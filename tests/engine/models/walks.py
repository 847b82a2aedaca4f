"""Walks over targets and engines: whatever was drafted and refused, what is computed is plain's."""

import random

from engine.models.gguf.checkpointed_target import CheckpointedTarget
from engine.request import GenerationRequest
from engine.speculation.tree import chain
from tests.engine.models.gguf.families import VOCAB
from tests.engine.tiny import run_all

SLOTS = 3
TOKENS = 96


def walk(target, logits_of, near, seed, rounds=25, most=(200, 40)):
    """Several at once, of more than there are sequences: drafted, refused, cropped, shared, put away.

    ``logits_of(text, n)`` gives the last ``n`` rows of one long pass. ``most``: tokens after which a
    slot begins anew, and tokens that are read at once.
    """
    chance = random.Random(seed)
    texts = {slot: [] for slot in range(SLOTS + 3)}
    for _ in range(rounds):
        slots = chance.sample(list(texts), chance.randrange(1, SLOTS + 1))
        _put_away(target, texts, slots, chance)
        for slot in slots:
            _read(target, texts, slot, chance, most)
        drafts = [chance.choices(range(2, VOCAB), k=chance.randrange(1, 24)) for _ in slots]
        if chance.random() < 0.3:  # as many rows of each: in one pass
            drafts = [draft[: min(map(len, drafts))] for draft in drafts]
        found = target.score(slots, [chain(draft) for draft in drafts])
        for slot, draft, scores in zip(slots, drafts, found, strict=True):
            assert near(scores.logits, logits_of([*texts[slot], *draft], len(draft)))
        for slot, draft in zip(slots, drafts, strict=True):
            texts[slot] += _kept(target, slot, draft, chance)
            assert list(target.tokens(slot)) == texts[slot]
            assert target.pending(slot) == 0


def _put_away(target, texts, needed, chance):
    """Some of the slots; those that are needed come back, where they do not by themselves."""
    for slot in texts:
        if chance.random() < 0.3:
            target.swap_out(slot)
    for slot in needed:
        if chance.random() < 0.5 or not isinstance(target, CheckpointedTarget):
            target.swap_in(slot)


def _kept(target, slot, draft, chance):
    """What is committed of a draft: nothing, where a request is cancelled meanwhile."""
    kept = chance.randrange(len(draft) + 1)
    if kept:
        target.commit(slot, range(kept))
    else:
        target.crop(slot, target.length(slot))
    return draft[:kept]


def _read(target, texts, slot, chance, most):
    """Another text in a slot, or more of the one there, or what another slot has."""
    longest, read = most
    if chance.random() < 0.3:
        source = chance.choice([n for n in texts if n != slot])
        target.share(source, slot, chance.randrange(len(texts[source]) + 1))
    elif chance.random() < 0.5:
        wanted = chance.randrange(len(texts[slot]) + 1)
        target.crop(slot, wanted)
        assert target.length(slot) <= wanted
    if len(target.tokens(slot)) > longest:  # the cache has room for all
        target.crop(slot, 0)
    known = list(target.tokens(slot))
    assert any(known == text[: len(known)] for text in texts.values())
    more = chance.choices(range(2, VOCAB), k=chance.randrange(read))
    if more:
        target.feed(slot, more)
    texts[slot] = [*known, *more]


def asked(drafter, sampling, prompt, count=TOKENS, **fields):
    """A request whose drafts have six, where their length is not chosen."""
    shape = {} if drafter == "auto" else {"length": "fixed", "draft_depth": 6}
    shape = {} if drafter == "none" else shape
    return GenerationRequest(prompt, count, sampling, drafter=drafter, **(shape | fields))


def plain_answers(engine, sampling, prompts):
    """Each alone and cold."""
    requests = [asked("none", sampling, prompt, cold=True) for prompt in prompts]
    return [run_all(engine, [request])[0][0] for request in requests]


def drafted_answers(engine, drafter, sampling, prompts, wanted, **fields):
    """Raises unless these are ``wanted``, token by token: cold, warm, and all at once.

    Returns how many tokens were drafted, and how many accepted.
    """
    stats = []
    for prompt, ids in zip(prompts, wanted, strict=True):
        for cold in (True, False):
            request = asked(drafter, sampling, prompt, cold=cold, **fields)
            [(found, done)] = run_all(engine, [request])
            assert found == ids
            assert cold or done.stats.cached_tokens == len(prompt) - 1
            stats.append(done.stats)
    together = run_all(engine, [asked(drafter, sampling, one, **fields) for one in prompts])
    assert [ids for ids, _ in together] == wanted
    stats += [done.stats for _, done in together]
    return sum(one.drafted for one in stats), sum(one.accepted for one in stats)


def scored(target, text, prompt, *, drafts, beside=False, warm=False):
    """Bytes of every row of logits of a text after so many tokens, of which most is drafted wrongly."""
    if not warm:
        target.crop(0, 0)
    else:
        target.crop(0, prompt)
    if (known := target.length(0)) < prompt:
        target.feed(0, text[known:prompt])
    target.crop(1, 0)
    if beside:
        target.feed(1, text[5:35])
    rows, at = [], prompt
    while at < len(text):
        kept = min(1 + at % 3 if drafts else 1, len(text) - at)
        tokens = text[at : at + kept]
        if drafts:
            tokens = [*tokens, *[(token + 1) % 90 for token in text[at : at + at % 5]]]
        slots = [1, 0] if beside else [0]
        trees = [chain(text[at - 9 : at - 9 + len(tokens)]), chain(tokens)][-len(slots) :]
        logits = target.score(slots, trees)[-1].logits
        rows += [row.numpy().tobytes() for row in logits[:kept]]
        target.commit(0, range(kept))
        if beside:
            target.commit(1, range(1))
        at += kept
    return rows
