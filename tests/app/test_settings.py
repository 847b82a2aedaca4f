"""Where state lives, and what is said when it cannot live there."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import SettingsError
from app.settings import QUIET, Settings, load_settings, prepare_home, tame_libraries


def test_the_environment_chooses_the_home(home):
    settings = load_settings()
    assert settings.home == home
    inside = (settings.database, settings.models_folder, settings.logs)
    assert all(path.parent == home for path in inside)


def test_without_a_choice_it_is_a_folder_of_the_user():
    settings = load_settings({})
    assert settings.home.is_absolute()
    assert settings.home.name == "slipstream"
    assert load_settings({"SLIPSTREAM_HOME": "  "}) == settings


def test_a_relative_home_and_a_tilde_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings({"SLIPSTREAM_HOME": "here"}).home == tmp_path / "here"
    assert load_settings({"SLIPSTREAM_HOME": "~/there"}).home == Path.home() / "there"


def test_loading_creates_nothing_and_preparing_creates_all(home):
    settings = load_settings()
    assert not home.exists()
    prepare_home(settings)
    prepare_home(settings)
    assert settings.models_folder.is_dir()
    assert settings.logs.is_dir()
    assert home.stat().st_mode & 0o077 == 0, "conversations are nobody else's business"


def test_a_home_that_cannot_be_used_is_said_in_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="SLIPSTREAM_HOME") as caught:
        prepare_home(Settings(home=tmp_path / "file"))
    assert str(tmp_path / "file") in str(caught.value)


def test_libraries_are_silenced_for_this_process_and_its_children(monkeypatch):
    for name in QUIET:
        monkeypatch.setenv(name, "noisy")  # so that it is put back afterwards
    tame_libraries()
    command = [sys.executable, "-c", "import os; print(os.environ['GRADIO_ANALYTICS_ENABLED'])"]
    assert subprocess.check_output(command, text=True).strip() == "False"


def test_nothing_heavy_is_imported():
    code = "import sys, app.settings, app.models.catalog; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & {"torch", "transformers", "gradio", "fastapi", "sqlite_utils", "yaml"}
