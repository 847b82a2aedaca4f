"""Where other programs keep models: usual places, variables, and their own settings files."""

import json

import pytest

from app.other_folders import hub_login, other_folders


@pytest.fixture
def user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("program", "place"),
    [
        ("hub", ".cache/huggingface/hub"),
        ("lm_studio", ".lmstudio/models"),
        ("lm_studio", ".cache/lm-studio/models"),
        ("ollama", ".ollama/models"),
        ("ollama", "snap/ollama/common/models"),
        ("llama_cpp", ".cache/llama.cpp"),
        ("jan", ".config/Jan/data/llamacpp/models"),
        ("jan", ".local/share/Jan/data/llamacpp/models"),
        ("jan", "jan/models"),
        ("gpt4all", ".local/share/nomic.ai/GPT4All"),
        ("gpt4all", ".cache/gpt4all"),
    ],
)
def test_usual_places(user, program, place):
    assert user / place in getattr(other_folders({}), program)


@pytest.mark.parametrize("place", ["/usr/share/ollama/.ollama/models", "/var/lib/ollama/models"])
def test_the_service_of_ollama_has_places_of_its_own(user, place):
    assert place in map(str, other_folders({}).ollama)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ('Environment="OLLAMA_MODELS=/data/my models"', "/data/my models"),
        ("Environment=OLLAMA_MODELS=/data/models", "/data/models"),
        ('Environment="OLLAMA_HOST=::" OLLAMA_MODELS=/data/models', "/data/models"),
        ("Environment=OLLAMA_HOST=:: ", None),
        ('#Environment="OLLAMA_MODELS=/data"', None),
    ],
)
def test_the_service_of_ollama_has_a_file_of_settings(user, monkeypatch, line, place):
    write(user / "override.conf", f"[Service]\n{line}\n")
    usual = {*map(str, other_folders({}).ollama)}
    monkeypatch.setattr("app.other_folders._overrides", lambda: [user / "override.conf"])
    found = {*map(str, other_folders({}).ollama)} - usual
    assert found == ({place} if place else set())


@pytest.mark.parametrize(
    ("name", "value", "program", "place"),
    [
        ("HF_HOME", "/x", "hub", "/x/hub"),
        ("HF_HUB_CACHE", "/x", "hub", "/x"),
        ("HUGGINGFACE_HUB_CACHE", "/x", "hub", "/x"),
        ("TRANSFORMERS_CACHE", "/x", "hub", "/x"),
        ("XDG_CACHE_HOME", "/x", "hub", "/x/huggingface/hub"),
        ("XDG_CACHE_HOME", "/x", "llama_cpp", "/x/llama.cpp"),
        ("XDG_DATA_HOME", "/x", "gpt4all", "/x/nomic.ai/GPT4All"),
        ("LLAMA_CACHE", "/x", "llama_cpp", "/x"),
        ("OLLAMA_MODELS", "/x", "ollama", "/x"),
        ("LMSTUDIO_MODELS", "/x", "lm_studio", "/x"),
    ],
)
def test_variables(user, name, value, program, place):
    assert place in map(str, getattr(other_folders({name: value}), program))


def test_settings_files_of_other_programs(user):
    write(user / ".lmstudio" / "settings.json", json.dumps({"downloadsFolder": "/lm"}))
    write(user / ".lmstudio-home-pointer", f"{user}/moved\n")
    write(user / ".config" / "Jan" / "settings.json", json.dumps({"data_folder": "/jan"}))
    write(user / ".config" / "nomic.ai" / "GPT4All.ini", "[General]\nmodelPath=/gpt\n")
    found = other_folders({})
    assert {"/lm", f"{user}/moved/models"} <= {*map(str, found.lm_studio)}
    assert "/jan/llamacpp/models" in map(str, found.jan)
    assert "/gpt" in map(str, found.gpt4all)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"downloadsFolder": 3}', "\xff"])
def test_a_damaged_settings_file_costs_nothing(user, text):
    write(user / ".lmstudio" / "settings.json", text)
    write(user / ".config" / "nomic.ai" / "GPT4All.ini", text)
    assert user / ".lmstudio/models" in other_folders({}).lm_studio


def test_a_home_that_nobody_knows_costs_only_its_places(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    found = other_folders({"OLLAMA_MODELS": "~nobody-at-all/x"})
    assert str(found.ollama[0]).startswith("/usr/share")


def test_a_login_is_where_hf_keeps_it(user):
    assert hub_login({}) == user / ".cache/huggingface/token"
    assert str(hub_login({"HF_HOME": "/x"})) == "/x/token"
    assert str(hub_login({"HF_TOKEN_PATH": "/x/t"})) == "/x/t"
