"""Entries of models.yaml that are engines which are already there."""

import pytest

from app.errors import SettingsError
from app.models.catalog import read_catalog
from app.settings import load_settings

GOOD = """
models:
  - name: small
    description: A small model.
    folder: small
    licence: MIT
"""
ENGINE = (
    GOOD
    + """
  - {name: office, backend: openai, address: "http://10.0.0.5:8000/v1/", model: qwen3, key: "env:OFFICE"}
  - {name: lab, backend: openai, address: "http://lab/v1", timeout: 5}
"""
)


def test_an_entry_can_be_an_engine_that_is_already_there(tmp_path):
    file = tmp_path / "models.yaml"
    file.write_text(ENGINE)
    office, lab = load_settings({}, file).engines
    assert (office.address, office.models, office.key) == (
        "http://10.0.0.5:8000/v1", ("qwen3",), "env:OFFICE",
    )  # fmt: skip
    assert (lab.models, lab.timeout) == ((), 5)
    assert [entry.name for entry in read_catalog(file, (tmp_path,))] == ["small"]


def test_the_persons_own_engine_comes_before_one_of_the_same_name(tmp_path):
    file = tmp_path / "models.yaml"
    file.write_text(ENGINE)
    own = '{"office": {"backend": "openai", "address": "http://127.0.0.1:1/v1"}}'
    engines = load_settings({"SLIPSTREAM_ENGINES": own}, file).engines
    assert {engine.name: engine.address for engine in engines} == {
        "office": "http://127.0.0.1:1/v1",
        "lab": "http://lab/v1",
    }


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("name: office, backend: vllm", "models.yaml, entry office: backend must be"),
        ("name: office, backend: openai", "models.yaml, entry office: address must look like"),
        ("name: office, backend: openai, folder: a", "models.yaml, entry office: unknown field"),
        ("name: a/b, backend: openai", "models.yaml, entry a/b: an engine's name has"),
        ("backend: openai", "models.yaml, entry : an engine's name has"),
        ("name: office, backend: openai, address: 'http://a', model: 5", "models must be"),
    ],
)
def test_an_engine_that_cannot_be_asked_is_named(tmp_path, fields, said):
    file = tmp_path / "models.yaml"
    file.write_text(GOOD + "  - {" + fields + "}\n")
    with pytest.raises(SettingsError, match=said):
        load_settings({}, file)
