"""How a model's makers want it sampled: read where the files say it, ignored where that makes no sense."""

import json

import pytest

from app.text.own_sampling import own_sampling
from tests.engine.models.gguf.tiny import F32, U32, assembled, metadata, pair, write

KNOWN = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repeat": 1.05}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (
            {
                "do_sample": True,
                "temperature": 0.6,
                "top_p": 0.95,
                "top_k": 20,
                "min_p": 0.0,
                "repetition_penalty": 1.05,
            },
            KNOWN,
        ),
        ({"temperature": 1.0}, {"temperature": 1.0}),
        ({"do_sample": False, "temperature": 0.6}, {}),
        ({"temperature": "hot", "top_p": 7, "top_k": 1.5, "min_p": True}, {}),
        ({"temperature": None, "top_k": 20}, {"top_k": 20}),
        ({}, {}),
        ("not an object", {}),
    ],
)
def test_a_folder_says_it_in_its_generation_config(tmp_path, config, found):
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    assert own_sampling(tmp_path) == found


def test_a_folder_may_say_nothing(tmp_path):
    assert own_sampling(tmp_path) == {}
    (tmp_path / "generation_config.json").write_text("{half")
    assert own_sampling(tmp_path) == {}


def test_a_gguf_file_says_it_in_its_metadata_or_beside_itself(tmp_path):
    said = [
        pair("general.sampling.temp", F32, 0.5),
        pair("general.sampling.top_k", U32, 20),
        pair("general.sampling.top_p", F32, 9.0),
    ]
    file = write(tmp_path / "a.gguf", assembled([*metadata(), *said], [], b""))
    assert own_sampling(file) == {"temperature": 0.5, "top_k": 20}
    (tmp_path / "generation_config.json").write_text('{"temperature": 1}')
    assert own_sampling(file) == {"temperature": 1}
