"""What tests of several drafters share: the paths of a tree, and a draft model that counts its passes."""


def paths(tree):
    """Every drafted node as the tokens between the root and it."""
    found = {0: ()}
    for node in range(1, len(tree)):
        found[node] = (*found[tree.parents[node]], tree.tokens[node])
    return [found[node] for node in range(1, len(tree))]


class Counting:
    """A draft model that notes the rows of each request in every pass."""

    def __init__(self, model):
        self._model, self.passes = model, []

    def __getattr__(self, name):
        return getattr(self._model, name)

    def grow(self, batch):
        self.passes.append([len(rows.tokens) for rows in batch])
        return self._model.grow(batch)
