"""Forecast: how fast tokens would come with drafts that nobody has made yet, from what a step takes."""

from engine.statistics.pass_cost import PassCost

USUAL_SHARE, BEST_SHARE = 0.7, 0.9  # of drafted tokens that hold: to be hoped for, and seldom more
LONGEST = 8  # drafted tokens


def expected_speed(cost: PassCost, step: float) -> tuple[float, float]:
    """Paces, plain decoding's being 1, that chains can be hoped to reach, and hardly exceed.

    ``step`` is the seconds of a draft step. A chain of k tokens each of which holds with chance a
    brings 1 + a + .. + a^k tokens (SmartSpec, arXiv 2406.14066) in k steps and a pass of k + 1 rows;
    of all k the best one counts, 0 among them.
    """
    passes = cost.each(range(1, LONGEST + 2))
    return _pace(passes, step, USUAL_SHARE), _pace(passes, step, BEST_SHARE)


def _pace(passes: list[float], step: float, share: float) -> float:
    tokens, best = 1.0, 1.0
    for length, seconds in enumerate(passes[1:], 1):
        tokens += share**length
        best = max(best, tokens * passes[0] / (seconds + length * step))
    return best
