"""What a model's maker recommends, out of a folder and out of a GGUF file."""

import pytest

from app.text.own_sampling import USUAL, of_folder, of_gguf, with_own
from engine.request import Penalties, SamplingParams


@pytest.mark.parametrize(
    ("config", "own"),
    [
        ({}, USUAL),
        ({"eos_token_id": 2}, USUAL),
        ({"do_sample": False}, {"temperature": 0}),
        ({"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": 0.95}, {"temperature": 0.6, "top_k": 20, "top_p": 0.95}),
        ({"do_sample": True}, {"temperature": 1.0}),
        ({"do_sample": True, "top_k": 64}, {"temperature": 1.0, "top_k": 64}),
        ({"temperature": 0.7}, {"temperature": 0.7}),
        ({"do_sample": False, "temperature": 0.7, "repetition_penalty": 1.1}, {"temperature": 0, "repeat": 1.1}),
        ({"repetition_penalty": 1.05}, {**USUAL, "repeat": 1.05}),
        ({"_from_model_config": True, "temperature": "hot"}, USUAL),
        ({"do_sample": True, "temperature": -3, "top_p": "x", "min_p": True}, {"temperature": 1.0}),
    ],
)  # fmt: skip
def test_generation_config(config, own):
    assert of_folder(config) == own


def test_a_gguf_file_has_names_of_its_own():
    metadata = {"general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.name": "x"}
    assert of_gguf(metadata) == {"temperature": 0.6, "top_k": 20}


@pytest.mark.parametrize(
    ("metadata", "own"),
    [
        ({}, USUAL),
        ({"general.sampling.temp": 0}, {"temperature": 0}),  # its maker wants it greedy
        ({"general.sampling.penalty_repeat": 1.1}, {**USUAL, "repeat": 1.1}),
        ({"general.sampling.top_p": 0.5}, {**USUAL, "top_p": 0.5}),
        ({"general.sampling.temp": -1}, USUAL),
    ],
)
def test_a_gguf_file_that_names_no_temperature_is_sampled_as_usual(metadata, own):
    assert of_gguf(metadata) == own


def test_only_what_nobody_chose_is_the_models_own():
    own = {"temperature": 0.6, "top_k": 20.0, "repeat": 1.1}
    asked = SamplingParams(temperature=0.2, seed=5)
    found = with_own(asked, own, {"top_k", "repeat", "min_p"})
    assert found == SamplingParams(
        temperature=0.2, top_k=20, seed=5, penalties=Penalties(repeat=1.1)
    )
    assert with_own(asked, own, ()) == asked
