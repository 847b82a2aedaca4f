"""The token: kept for one person, preferred over the environment's, never shown."""

import pytest

from app.errors import SettingsError
from app.models.hub.token import keep_token, read_token
from app.settings import Settings, load_settings


@pytest.fixture
def settings(tmp_path):
    return Settings(home=tmp_path, hub_token="from-environment")


def test_a_kept_token_is_its_owners_alone(settings):
    settings.token_file.touch(mode=0o644)
    keep_token(settings, " hf_abc\n")
    assert settings.token_file.stat().st_mode & 0o777 == 0o600
    assert read_token(settings) == "hf_abc"
    assert [file.name for file in settings.home.iterdir()] == ["hub-token"]


def test_an_empty_one_is_forgotten_and_then_the_environment_counts(settings):
    keep_token(settings, "hf_abc")
    keep_token(settings, "")
    keep_token(settings, "")
    assert read_token(settings) == "from-environment"
    assert read_token(Settings(home=settings.home)) is None


@pytest.mark.parametrize("token", ["two words", "caf\u00e9", "a\nb", "a\tb"])
def test_what_is_no_token_is_refused_without_repeating_it(settings, token):
    with pytest.raises(SettingsError) as caught:
        keep_token(settings, token)
    assert token not in str(caught.value)
    assert not settings.token_file.exists()


def test_settings_never_show_it():
    settings = load_settings({"HF_TOKEN": "hf_abc", "HF_ENDPOINT": "http://127.0.0.1:1/"})
    assert (settings.hub_token, settings.hub) == ("hf_abc", "http://127.0.0.1:1")
    assert "hf_abc" not in repr(settings)
