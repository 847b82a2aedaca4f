"""The LayerSkip recipe: curves, rotation and weights as the paper states them."""

import pytest

from engine.training.trainer import dropout_rate, enabled_exits, exit_weights


def test_dropout_runs_from_none_at_the_first_layer_to_the_maximum_at_the_last():
    rates = [dropout_rate(layer, 8, 1.0, 0.2) for layer in range(8)]
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(0.2)
    assert rates == sorted(rates)


def test_dropout_grows_with_training_from_nothing():
    assert dropout_rate(7, 8, 0.0, 0.2) == 0
    assert dropout_rate(7, 8, 0.5, 0.2) < dropout_rate(7, 8, 1.0, 0.2)


@pytest.mark.parametrize("every", [1, 3, 7])
def test_every_exit_gets_its_turn_and_the_last_layer_is_not_an_exit(every):
    seen = [e for step in range(every) for e in enabled_exits(step, 8, every)]
    assert sorted(seen) == list(range(1, 8))


def test_weights_sum_to_one_and_deeper_exits_weigh_more():
    weights = exit_weights([2, 5], 8, 1.0)
    assert sum(weights.values()) == pytest.approx(1)
    assert weights[2] < weights[5] < weights[8]
    assert exit_weights([], 8, 1.0) == {8: 1.0}
