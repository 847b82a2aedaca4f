"""Speed and time left, by a clock that the test turns."""

from app.models.downloads.job import WINDOW, TransferRate


class Clock:
    """Seconds that pass when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_speed_is_of_the_last_seconds():
    clock = Clock()
    meter = TransferRate(clock)
    assert (meter.speed(), meter.seconds_left(10)) == (0.0, None)
    for _ in range(100):
        clock.now += 1
        meter.add(50)
    assert abs(meter.speed() - 50) < 1e-9
    assert abs(meter.seconds_left(500) - 10) < 1e-9
    for _ in range(int(WINDOW) + 2):
        clock.now += 1
        meter.add(200)
    assert abs(meter.speed() - 200) < 1e-9


def test_it_falls_while_nothing_comes():
    clock = Clock()
    meter = TransferRate(clock)
    clock.now += 1
    meter.add(1000)
    before = meter.speed()
    clock.now += 30
    assert meter.speed() < before / 20
