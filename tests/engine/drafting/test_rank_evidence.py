"""Acceptance by rank: what a lift makes of it is a law again."""

import numpy as np
import pytest

from engine.drafting.rank_evidence import Lift


def test_lifted_shares_stay_a_law():
    lift = Lift(kept=30.0, expected=20.0)
    assert lift.over(np.array([0.4, 0.1])) == pytest.approx([0.6, 0.15])
    assert lift.over(np.array([0.7, 0.2])).sum() == pytest.approx(1.0)
    assert Lift(kept=10.0, expected=20.0).over(np.array([0.5])) == pytest.approx([0.5])
