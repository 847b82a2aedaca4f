"""What two sequences begin with."""

from collections.abc import Sequence


def common_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Length of what both begin with.

    Most often one of them begins the other, and both are compared at once, copied no more than they
    have to be: a context may have thousands of tokens, and every round asks.
    """
    most = min(len(one), len(other))
    begun = [each if len(each) == most else each[:most] for each in (one, other)]
    if type(begun[0]) is not type(begun[1]):
        begun = [list(each) for each in begun]
    if begun[0] == begun[1]:
        return most
    return next(at for at in range(most) if one[at] != other[at])
