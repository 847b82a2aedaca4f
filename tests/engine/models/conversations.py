"""The target contract: whatever a random conversation does, a target computes what a reference does."""

import torch

from engine.interfaces.target import Rows, Scores
from engine.speculation.tree import DraftTree, chain, single

SLOTS = 3
FIRST = 3  # the tokens before it begin and end texts


class Paths:
    """The reference by definition: a node's logits are those of its path alone.

    ``logits_of`` gives the logits [n, V] of a whole text. ``runs``: whether the target keeps a running
    state, which may go back further than asked.
    """

    def __init__(self, logits_of, *, runs=False):
        self.logits_of, self.texts, self.trees, self.runs = logits_of, {}, {}, runs

    def tokens(self, slot):
        return self.texts.get(slot, [])

    def length(self, slot):
        return len(self.tokens(slot))

    def feed(self, slot, tokens):
        self.texts[slot] = [*self.tokens(slot), *tokens]

    def crop(self, slot, length):
        self.texts[slot] = self.tokens(slot)[:length]

    def share(self, source, slot, length):
        self.texts[slot] = self.tokens(source)[:length]

    def score(self, slots, trees):
        self.trees = dict(zip(slots, trees, strict=True))
        return [Scores(self._rows(slot, tree)) for slot, tree in self.trees.items()]

    def commit(self, slot, path):
        self.feed(slot, [self.trees[slot].tokens[node] for node in path])

    def _rows(self, slot, tree):
        """A pass for every leaf gives the logits of all nodes on the way to it."""
        found = {}
        for leaf in set(range(len(tree))) - set(tree.parents):
            path = path_to(tree, leaf)
            text = [*self.tokens(slot), *(tree.tokens[node] for node in path)]
            found |= zip(path, self.logits_of(text)[-len(path) :], strict=True)
        return torch.stack([found[node] for node in range(len(tree))])


def path_to(tree, node):
    """The nodes from the root to this one."""
    found = []
    while node >= 0:
        found.append(node)
        node = tree.parents[node]
    return found[::-1]


def same_rows(ours, theirs, slot=0, tolerance=1e-5):
    """Whether the caches hold the same keys and values of a slot."""
    pairs = (
        pair
        for layer in range(theirs.layers)
        for pair in zip(ours.cache.rows(slot, layer), theirs.cache.rows(slot, layer), strict=True)
    )
    return all(torch.allclose(*pair, atol=tolerance, rtol=0) for pair in pairs)


def random_tree(chance, vocab, most=40):
    size = chance.randrange(1, most)
    near = chance.choice([1, 3, 20])  # chains, narrow trees, wide trees
    parents = [chance.randrange(max(0, i - near), i) for i in range(1, size)]
    return DraftTree(tuple(chance.choices(range(FIRST, vocab), k=size)), (-1, *parents))


def random_chain(chance, vocab, most=40):
    return chain(chance.choices(range(FIRST, vocab), k=chance.randrange(1, most)))


def random_step(chance, vocab):
    return single(chance.randrange(FIRST, vocab))


def converse(reference, target, chance, near, drafted=random_tree, rounds=15):
    """Raises AssertionError unless ``near(found, wanted)`` holds for the logits of every tree."""
    both = _Both(reference, target, chance)
    for _ in range(rounds):
        slots = chance.sample(range(SLOTS), chance.randrange(1, SLOTS + 1))
        trees = [drafted(chance, target.vocab) for _ in slots]
        for slot in range(SLOTS):
            if chance.random() < 0.3:
                target.swap_out(slot)
        for slot in slots:
            both.read(slot)
        wanted = [scores.logits for scores in reference.score(slots, trees)]
        found = both.scored(slots, trees, whole=chance.random() < 0.5)
        assert all(near(ours, theirs) for ours, theirs in zip(found, wanted, strict=True))
        both.take_over(slots)
        for slot, tree in zip(slots, trees, strict=True):
            both.keep(slot, tree)


class _Both:
    """A target and its reference with the same texts in their slots."""

    def __init__(self, reference, target, chance):
        self.reference, self.target, self.chance = reference, target, chance
        self.runs = getattr(reference, "runs", False)
        self.longest = min(60, target.context // 2)

    def read(self, slot):
        """Another text in a slot, or more of the one that is there, or one that another slot has."""
        length, many = self.chance.randrange(self.longest), self.chance.randrange(9)
        if self.chance.random() < 0.3:
            self._share(self.chance.choice([n for n in range(SLOTS) if n != slot]), slot)
        kept = min(length, self.target.length(slot))
        self.target.crop(slot, kept)
        self.target.swap_in(slot)
        if self.target.length(slot) != kept:
            assert self.runs
            assert self.target.length(slot) < kept
        self.reference.crop(slot, self.target.length(slot))
        fed = self.chance.choices(range(FIRST, self.target.vocab), k=many)
        for one in (self.reference, self.target) if fed else ():
            one.feed(slot, fed)
        self._agree(slot)

    def scored(self, slots, trees, *, whole):
        """Logits of every node, scored at once or grown in two waves."""
        if whole:
            return [scores.logits for scores in self.target.score(slots, trees)]
        found, waves = {slot: [] for slot in slots}, ([], [])
        for slot, tree in zip(slots, trees, strict=True):
            self.target.crop(slot, self.target.length(slot))
            cut = len(tree) // 2 + 1
            waves[0].append(Rows(slot, tree.tokens[:cut], tree.parents[:cut]))
            if cut < len(tree):
                waves[1].append(Rows(slot, tree.tokens[cut:], tree.parents[cut:]))
        for wave in filter(None, waves):
            for rows, grown in zip(wave, self.target.grow(wave), strict=True):
                assert len(grown.hidden) == len(rows.tokens)
                found[rows.slot].append(grown.logits)
        assert [self.target.pending(slot) for slot in slots] == [len(tree) for tree in trees]
        return [torch.cat(found[slot]) for slot in slots]

    def take_over(self, busy):
        """Slots without a pass take over the text of one that is in the middle of it."""
        for slot in set(range(SLOTS)) - set(busy):
            if self.chance.random() < 0.5:
                self._share(busy[0], slot)
                self._agree(slot)

    def keep(self, slot, tree):
        """A part of what was drafted, or nothing, as when a request is cancelled in the meantime."""
        path = path_to(tree, self.chance.randrange(len(tree)))
        cancelled = self.chance.random() < 0.2
        for one in (self.reference, self.target):
            one.crop(slot, one.length(slot)) if cancelled else one.commit(slot, path)
        self._agree(slot)
        assert self.target.pending(slot) == 0

    def _share(self, source, slot):
        length = self.chance.randrange(self.reference.length(source) + 1)
        if self.target.can_share:
            self.target.share(source, slot, length)
            shared = list(self.target.tokens(slot))
            if not self.runs or shared != list(self.reference.tokens(slot)):
                self.reference.share(source, slot, len(shared) if self.runs else length)

    def _agree(self, slot):
        assert list(self.target.tokens(slot)) == list(self.reference.tokens(slot))
        assert self.target.length(slot) == self.reference.length(slot)
