"""How far to copy now, where what is not copied now can be copied in the next round.

A copy lives as long as every token of it is right, the first i with chance s_i. What a round brings
over the speedup R at which tokens come otherwise, when i tokens were right and k more are drafted for
the price of c_k plain passes, is in the long run (renewal reward)

    sum_{i<=j<=i+k} s_j / s_i - R (1 + c_k) + s_{i+k+1} / s_i V_{i+k+1}

where V_i, what is left of a living copy, is the best of that over k, or 0 where all is less, and 0 at
its end: a Bellman equation, solved from the end. So where rows are dear, short rounds find out for
little whether a text is copied at all, and a long one copies it.
"""

from collections.abc import Sequence
from itertools import accumulate

LATER = (1, 2, 3, 7, 15, 31)  # rows that later rounds may draft; all widths would gain 0.5 %


def copy_gains(chances: Sequence[float], costs: Sequence[float]) -> list[float]:
    """Tokens that drafting the first 0, 1, ... candidates gains over R, [min(n + 1, m)].

    ``chances`` [n] are s_1..s_n, ``costs`` [m] R (1 + c_k) of 0, 1, ... drafted rows.
    """
    held = list(accumulate(chances, initial=0.0))
    reached = held.copy()  # at i, with s_{i+1} V_{i+1} once that is known
    later = [(rows, costs[rows]) for rows in LATER if rows < len(costs)]
    most = len(chances)
    for i in range(most, 0, -1):
        sure = chances[i - 1]
        best = reached[i] - sure * costs[0]  # a plain round
        for rows, cost in later:
            if i + rows > most:
                break
            value = reached[i + rows] - sure * cost
            if value > best:  # noqa: PLR1730 - max() is too slow here
                best = value
        living = sure - held[i] + best
        if living > 0:
            reached[i - 1] += living
    return [1 + total - cost for total, cost in zip(reached, costs, strict=False)]
