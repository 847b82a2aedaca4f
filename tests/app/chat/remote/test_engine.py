"""Engines in the settings, and their keys."""

import json
import os

import pytest

from app.chat.remote.engines import read_key
from app.environment import variable
from app.errors import SettingsError
from app.remote_engine import RemoteEngine, remote_engines
from app.settings import CONFIG_VARIABLE, Settings, load_settings, setting_sources
from tests.processes import run_python

OFFICE = {"backend": "openai", "address": "http://10.0.0.5:8000/v1"}


def engine(**more: object) -> RemoteEngine:
    return remote_engines({"office": {**OFFICE, **more}})[0]


def test_without_engines_their_library_is_not_imported():
    """It takes half a second, before the first word of every ``ask``."""
    done = run_python("import sys, app.chat.assistant; sys.exit('openai' in sys.modules)")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_file_names_engines(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(
        "[engines.office]\nbackend = 'openai'\naddress = 'https://vllm.example/api/v1/'\n"
        "key = 'env:OFFICE'\nmodels = ['a/b', 'c']\ntimeout = 5\n"
    )
    environ = {CONFIG_VARIABLE: str(file), "SLIPSTREAM_HOME": str(tmp_path)}
    [found] = load_settings(environ).engines
    assert found == RemoteEngine(
        "office", "https://vllm.example/api/v1", "env:OFFICE", ("a/b", "c"), 5
    )
    assert found.host == "vllm.example"
    assert setting_sources(environ)["engines"] == str(file)


def test_a_variable_names_engines_as_json(tmp_path):
    environ = {"SLIPSTREAM_HOME": str(tmp_path), "SLIPSTREAM_ENGINES": json.dumps({"o": OFFICE})}
    assert [one.name for one in load_settings(environ).engines] == ["o"]


def test_a_models_name_begins_with_its_engines():
    settings = Settings(home="/nowhere", engines=remote_engines({"office": OFFICE}))
    assert settings.engine_of("office/qwen/qwen3").name == "office"
    for other in ("office", "offices/qwen", "qwen", "", "./office/qwen"):
        assert settings.engine_of(other) is None, other


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"address": "http://a/v1"}, "backend must be"),
        ({**OFFICE, "backend": "ollama"}, "backend must be"),
        ({"backend": "openai"}, "address must look like"),
        ({**OFFICE, "address": "10.0.0.5:8000"}, "address must look like"),
        ({**OFFICE, "address": "ftp://a"}, "address must look like"),
        ({**OFFICE, "address": "http://me:secret@a/v1"}, "address must look like"),
        ({**OFFICE, "address": "http://a/v1?key=b"}, "address must look like"),
        ({**OFFICE, "key": "sk-very-secret"}, "key must say where the key is"),
        ({**OFFICE, "key": 5}, "key must say where the key is"),
        ({**OFFICE, "models": "a"}, "models must be a list"),
        ({**OFFICE, "models": [""]}, "models must be a list"),
        ({**OFFICE, "timeout": 0}, "timeout must be"),
        ({**OFFICE, "timeout": True}, "timeout must be"),
        ({**OFFICE, "ca_file": 1}, "ca_file must be"),
        ({**OFFICE, "adress": "http://a"}, "unknown field 'adress'"),
        ("http://a/v1", "must be a table"),
    ],
)
def test_what_an_engine_cannot_be(table, problem):
    with pytest.raises(SettingsError, match=problem) as raised:
        remote_engines({"office": table})
    assert "secret" not in str(raised.value) or "address" in str(raised.value)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-", "x" * 33])
def test_what_a_name_cannot_be(name):
    with pytest.raises(SettingsError, match="name"):
        remote_engines({name: OFFICE})


def test_a_key_comes_out_of_the_environment(monkeypatch):
    monkeypatch.setenv("OFFICE_KEY", " sk-1\n")
    assert variable("OFFICE_KEY")
    assert read_key(engine(key="env:OFFICE_KEY")) == "sk-1"
    assert read_key(engine()) is None
    monkeypatch.delenv("OFFICE_KEY")
    with pytest.raises(SettingsError, match="env:OFFICE_KEY is empty"):
        read_key(engine(key="env:OFFICE_KEY"))


def test_a_key_comes_out_of_a_file_of_ones_own(tmp_path):
    file = tmp_path / "office.key"
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_key(engine(key=f"file:{file}"))
    file.write_text("sk-2\n")
    file.chmod(0o600)
    assert read_key(engine(key=f"file:{file}")) == "sk-2"
    file.write_text("sk-\u00e9")
    with pytest.raises(SettingsError, match="characters that no key has") as raised:
        read_key(engine(key=f"file:{file}"))
    assert "sk-" not in str(raised.value)


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o666])
def test_a_key_that_others_can_read_is_refused(tmp_path, mode):
    file = tmp_path / "office.key"
    file.write_text("sk-3")
    file.chmod(mode)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_key(engine(key=f"file:{file}"))


def test_an_engine_on_this_machine_is_known():
    for address, here in (
        ("http://127.0.0.1:1/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://10.0.0.5:1/v1", False),
        ("http://localhost.example/v1", False),
    ):
        assert engine(address=address).on_this_machine is here, address
