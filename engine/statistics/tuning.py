"""Every constant of the measured costs and speeds, in one place."""

from dataclasses import dataclass


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
    # Cost of a second row of a draft step, as a share of the step; the first is the guess.
    row_shares: tuple[float, ...] = (0.2, 0.05, 0.6)
    # Speedups.
    prior_weight: float = 24.0  # most plain passes, or tokens, that earlier sessions count for


TUNING = Tuning()
