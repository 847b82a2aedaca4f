"""Length of the common prefix of two sequences; without imports, for commands that start fast."""

from collections.abc import Sequence


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Number of leading elements that are equal.

    The common case, one sequence starting with the other, is a single comparison: contexts have
    thousands of tokens, and every step calls this.
    """
    most = min(len(one), len(other))
    heads = [each if len(each) == most else each[:most] for each in (one, other)]
    if type(heads[0]) is not type(heads[1]):
        heads = [list(each) for each in heads]
    if heads[0] == heads[1]:
        return most
    return next(at for at in range(most) if one[at] != other[at])
