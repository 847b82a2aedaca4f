"""What two sequences begin with."""

from collections.abc import Sequence


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Length of what both begin with.

    Most often one of them begins the other, and two slices are compared at once: a context may have
    thousands of tokens, and every round asks.
    """
    most = min(len(one), len(other))
    if list(one[:most]) == list(other[:most]):
        return most
    return next(at for at in range(most) if one[at] != other[at])
