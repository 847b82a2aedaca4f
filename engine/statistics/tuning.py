"""Every constant of the measured costs and speeds, in one place."""

from dataclasses import dataclass
from math import log


@dataclass(frozen=True, slots=True)
class Tuning:
    """Constants of ``pass_cost`` and ``speedup``; each with its unit and its reason."""

    # Line fits.
    fit_memory: float = 0.98  # weight of the past per observation
    outlier: float = 4.0  # times the expected seconds; more is a pause of the whole machine
    trusted: float = 5.0  # observations before outliers are cut
    # The curve of a pass.
    load_rate: float = 0.15  # weight of the newest pass in how busy the machine is
    knot_rate: float = 0.05  # share of an error that moves a measured knot
    new_knot_rate: float = 0.5  # share that moves a new knot: its first value is interpolated
    max_bend: float = log(2.0)  # log ratio of two passes in a row; more is an accident of one pass
    unknown_seconds: float = 1.0  # of any pass before the first measurement: a flat curve
    # Cost of a second row of a draft step, as a share of the step; the first is the guess.
    row_shares: tuple[float, ...] = (0.2, 0.05, 0.6)
    # Speedups.
    length_rate: float = 0.1  # weight of the newest round in the length of a usual round
    prior_min: float = 0.7  # least speedup that is believed of earlier sessions
    prior_max: float = 4.0  # largest speedup that is believed of earlier sessions
    prior_weight: float = 15.0  # most plain passes that earlier sessions count for


TUNING = Tuning()
