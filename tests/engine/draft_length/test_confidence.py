"""Confidence: a draft ends with the first token that makes it too unsure, and keeps that token."""

import pytest

from engine.draft_length.stop_threshold import ConfidenceStop, StopThreshold
from engine.request import GenerationRequest, SamplingParams
from tests.engine.tiny import engine_over, run_all, tiny_target


def length(rule, probabilities):
    """Tokens drafted until the rule ends the draft."""
    return next((n for n, p in enumerate(probabilities, 1) if rule.drawn(p)), len(probabilities))


def test_the_product_of_all_tokens_decides():
    assert (
        length(ConfidenceStop(0.0, StopThreshold.constant(0.3)), [0.9, 0.7, 0.6, 0.5, 0.9]) == 4
    )  # 0.9, 0.63, 0.378, 0.189


def test_one_unlikely_token_decides_where_tau_is_given():
    assert length(ConfidenceStop(0.5, StopThreshold.constant(0.0)), [0.9, 0.6, 0.4, 0.9]) == 3


def test_a_certain_draft_never_ends_by_itself():
    assert length(ConfidenceStop(0.5, StopThreshold.constant(0.5)), [1.0] * 20) == 20


@pytest.mark.parametrize("drafter", ["chain", "early_exit"])
@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.8, seed=3)])
@pytest.mark.parametrize("options", [(), (("floor", 0.4),), (("tau", 0.5),), (("limit", 2.0),)])
def test_answers_are_plains_token_by_token(drafter, sampling, options):
    request = GenerationRequest((1, 2, 3, 4), 40, sampling, drafter="none")
    [(plain, _)] = run_all(engine_over(tiny_target()), [request])
    asked = GenerationRequest(
        (1, 2, 3, 4), 40, sampling, drafter=drafter, length="confidence", options=options
    )
    [(ids, done)] = run_all(engine_over(tiny_target(), tiny_target(0, layers=1)), [asked])
    assert ids == plain
    assert done.stats.drafted > 0


def test_a_higher_floor_drafts_fewer_tokens_a_pass():
    def drafted(floor):
        request = GenerationRequest(
            (1, 2, 3), 60, drafter="chain", length="confidence", draft_depth=12,
            options=(("floor", floor),),
        )  # fmt: skip
        engine = engine_over(tiny_target(sharpness=1.0), tiny_target(sharpness=1.0))
        engine.components.cost.profile(1, 1e3)  # a dear target, so that goodput never says no
        engine.components.cost.profile(64, 1e3)
        [(_, done)] = run_all(engine, [request])
        return done.stats.drafted / done.stats.passes

    assert drafted(0.0) > drafted(0.1) > drafted(0.9) >= 0.9
