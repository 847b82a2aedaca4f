"""The margin covers what rounding does, and is 0 where passes round alike."""

from engine.runtime.rounding import measured_margin
from tests.engine.rounding import NOISE, Rounding
from tests.engine.tiny import tiny_target


def test_the_margin_covers_the_noise():
    target = tiny_target(kind=Rounding)
    assert NOISE <= measured_margin(target) <= 2 * NOISE
    assert target.length(0) == 0


def test_passes_that_round_alike_have_no_margin():
    assert measured_margin(tiny_target()) == 0
