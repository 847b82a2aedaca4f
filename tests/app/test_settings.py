"""Where state lives, and what is said when it cannot live there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.environment import PAGE_FILES, QUIET, tame_libraries, without_network
from app.errors import SettingsError
from app.settings import (
    POCKET,
    REAL,
    Settings,
    load_settings,
    prepare_home,
)


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


@pytest.fixture
def config(tmp_path):
    """Writes config.toml and loads the settings with it."""

    def load(text, **environ):
        file = tmp_path / "config.toml"
        file.write_text(text)
        return load_settings({"SLIPSTREAM_CONFIG": str(file), **environ})

    return load


def test_the_file_overrides_defaults_and_the_environment_overrides_the_file(config, tmp_path):
    text = f"""
        host = "::1"
        port = 8000
        model = "m"
        home = "{tmp_path}/state"
        dtype = "bfloat16"
        keep_alive = 600
        read_ahead = false
        log_level = "debug"
    """
    found = config(text)
    shown = (found.host, found.port, found.model, found.dtype, found.read_ahead, found.log_level)
    assert shown == ("::1", 8000, "m", "bfloat16", False, "debug")
    assert (found.home, found.keep_alive) == (tmp_path / "state", 600.0)
    environ = {
        "SLIPSTREAM_PORT": "9000",
        "SLIPSTREAM_KEEP_ALIVE": "1.5",
        "SLIPSTREAM_READ_AHEAD": "true",
        "SLIPSTREAM_HOST": " ",
    }
    changed = config(text, **environ)
    assert (changed.port, changed.keep_alive, changed.read_ahead) == (9000, 1.5, True)
    assert changed.host == "::1"


@pytest.mark.parametrize(
    "written", [b"\xef\xbb\xbfport = 8", b"\xef\xbb\xbfport = 8\r\n", b"port = 8\r\n"]
)
def test_the_file_may_come_from_any_editor(tmp_path, written):
    (tmp_path / "c").write_bytes(written)
    assert load_settings({"SLIPSTREAM_CONFIG": str(tmp_path / "c")}).port == 8


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "shift_jis"])
def test_a_file_in_another_encoding_says_so(tmp_path, encoding):
    text = "model = '家'" if encoding == "shift_jis" else "model = 'café'"
    (tmp_path / "c").write_text(text, encoding=encoding)
    with pytest.raises(SettingsError, match=r"c is no UTF-8 text \(byte \d+\); save it as UTF-8"):
        load_settings({"SLIPSTREAM_CONFIG": str(tmp_path / "c")})


@pytest.mark.parametrize("never", ["0", '"never"'])
def test_a_model_may_stay_loaded(config, never):
    assert config(f"keep_alive = {never}").keep_alive is None


@pytest.mark.parametrize(
    ("text", "environ", "sentence"),
    [
        ("prot = 1", {}, r"config\.toml has an unknown key 'prot'; did you mean 'port'\?$"),
        ("HOST = 'a'", {}, "unknown key 'HOST'; did you mean 'host'"),
        ("gpu_layers = 1", {}, "unknown key 'gpu_layers'; known keys: host, port"),
        ("[server]\nport = 1", {}, r"unknown section \[server\]; its keys stand at the top"),
        ('home = "C:\\Users\\me"', {}, "not TOML: .*; lines look like port = 8000, or home = '/a"),
        ("model = pocket", {}, "not TOML: .*; lines look like"),
        ("port: 8000", {}, "not TOML: .*; lines look like"),
        ("log-level = 'debug'", {}, "did you mean 'log_level'"),
        (
            "port = 70000",
            {},
            r"port in .*config\.toml is 70000; give a whole number from 0 to 65535",
        ),
        ("port = true", {}, "is True; give a whole number"),
        ("port = '80'", {}, "is '80'; give a whole number"),
        ("host = ''", {}, "is ''; give a text"),
        ("keep_alive = -1", {}, 'is -1; give a number of seconds from 0, or "never"'),
        ("keep_alive = inf", {}, "is inf; give a number"),
        ("log_level = 'loud'", {}, "is 'loud'; give one of debug, info, warning, error"),
        ("dtype = 'int3'", {}, "is 'int3'; give one of float32"),
        ("port = ", {}, r"config\.toml is not TOML"),
        ("", {"SLIPSTREAM_PORT": "x"}, "SLIPSTREAM_PORT is 'x'; give a whole number"),
        ("", {"SLIPSTREAM_READ_AHEAD": "maybe"}, "is 'maybe'; give true or false"),
        ("", {"SLIPSTREAM_CONFIG": "/nowhere/c.toml"}, "/nowhere/c.toml, which does not exist"),
    ],
)
def test_a_wrong_setting_is_reported_with_its_value_and_the_remedy(config, text, environ, sentence):
    with pytest.raises(SettingsError, match=sentence):
        config(text, **environ)


@pytest.mark.parametrize(
    ("file", "runtime", "chosen"),
    [("m.gguf", True, REAL), ("m.gguf", False, POCKET), ("__init__.py", True, POCKET), ("", True, POCKET)],
)  # fmt: skip
def test_the_real_model_answers_where_its_file_is_here_and_can_run(
    tmp_path, monkeypatch, file, runtime, chosen
):
    names = {"PACKAGE": f"packed_{len(file)}", "RUNTIME": "json" if runtime else "no_such_runtime"}
    for name, value in names.items():
        monkeypatch.setattr(f"app.settings.{name}", value)
    monkeypatch.syspath_prepend(tmp_path)
    if file:
        (tmp_path / names["PACKAGE"]).mkdir()
        (tmp_path / names["PACKAGE"] / file).touch()
    assert load_settings({}).model == chosen
    assert load_settings({"SLIPSTREAM_MODEL": "mine"}).model == "mine"


def test_loading_creates_nothing_and_preparing_creates_all(home):
    settings = load_settings()
    assert not home.exists()
    prepare_home(settings)
    prepare_home(settings)
    assert settings.models_folder.is_dir()
    assert settings.logs.is_dir()
    assert home.stat().st_mode & 0o077 == 0, "conversations are nobody else's business"


def test_a_home_that_cannot_be_used_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="SLIPSTREAM_HOME") as caught:
        prepare_home(Settings(home=tmp_path / "file"))
    assert str(tmp_path / "file") in str(caught.value)


def test_libraries_are_silenced_for_this_process_and_its_children(monkeypatch, tmp_path):
    for name in (*QUIET, PAGE_FILES):
        monkeypatch.setenv(name, "noisy")  # so that it is put back afterwards
    tame_libraries(Settings(home=tmp_path))
    command = [sys.executable, "-c", "import os; print(os.environ['GRADIO_ANALYTICS_ENABLED'])"]
    assert subprocess.check_output(command, text=True).strip() == "False"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:1"),
        ("https_proxy", ":::"),
        ("SSL_CERT_FILE", "/nowhere.pem"),
        ("SSLKEYLOGFILE", "/nowhere/keys"),
        ("NO_PROXY", "::1,["),
    ],
)
def test_what_libraries_break_on_is_out_of_their_sight_and_comes_back(monkeypatch, name, value):
    """A proxy that Gradio cannot use kept the page from starting, which asks nobody."""
    monkeypatch.setenv(name, value)
    with without_network():
        assert name not in os.environ
    assert os.environ[name] == value


@pytest.mark.parametrize(
    "name",
    [
        "GRADIO_SERVER_PORT",
        "GRADIO_ROOT_PATH",
        "HF_HUB_DOWNLOAD_TIMEOUT",
        "MPLBACKEND",
        "TORCH_LOGS",
        "PYTORCH_JIT",
        "USE_TORCH",
        "WEB_CONCURRENCY",
    ],
)
def test_what_others_set_for_libraries_is_not_ours(monkeypatch, tmp_path, name):
    for ours in (*QUIET, PAGE_FILES):
        monkeypatch.setenv(ours, "noisy")
    monkeypatch.setenv(name, "nonsense")
    tame_libraries(Settings(home=tmp_path))
    assert name not in os.environ
    assert QUIET.items() <= os.environ.items()


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """A user whom the system does not know, with a temporary folder."""
    monkeypatch.delenv("HOME", raising=False)
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_user_without_a_home_gets_a_temporary_one(homeless):
    settings = load_settings({})
    assert settings.home.parent == homeless
    assert settings.home_is_temporary
    prepare_home(settings)
    assert settings.logs.is_dir()


def test_a_temporary_home_of_somebody_else_is_not_entered(homeless, monkeypatch):
    settings = load_settings({})
    settings.home.mkdir()
    monkeypatch.setattr("os.getuid", lambda: 4242)
    with pytest.raises(SettingsError, match="belongs to another user"):
        prepare_home(settings)


def test_folders_that_are_nice_to_have_may_be_missing(tmp_path):
    for name in ("logs", "models"):
        (tmp_path / name).touch()
    prepare_home(Settings(home=tmp_path))
    assert all((tmp_path / name).is_file() for name in ("logs", "models"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other variables")
@pytest.mark.parametrize("variable", ["HOME", "XDG_DATA_HOME"])
@pytest.mark.parametrize("place", ["file", "dangling", "file/below", "missing/deep", "ünï 家"])
def test_an_odd_home_leaves_a_folder_that_can_be_used(tmp_path, monkeypatch, variable, place):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv(variable, str(tmp_path / place))
    settings = load_settings({})
    prepare_home(settings)
    settings.database.touch()
    assert settings.home.is_relative_to(tmp_path)
    assert settings.home_is_temporary == (place in {"file", "dangling", "file/below"})


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
@pytest.mark.parametrize("mask", [0o777, 0o700, 0o277, 0o022, 0o007, 0])
def test_no_umask_closes_the_folders_to_their_owner(tmp_path, mask):
    before = os.umask(mask)
    try:
        prepare_home(Settings(home=tmp_path / "deep" / "home"))
    finally:
        left = os.umask(before)
    assert left == mask & 0o077
    for folder in (tmp_path / "deep", tmp_path / "deep/home", tmp_path / "deep/home/logs"):
        assert folder.stat().st_mode & 0o700 == 0o700


def test_another_users_config_is_none_of_ours(monkeypatch):
    read = Path.read_text

    def denied(self, **kinds):
        if self.name == "config.toml":
            raise PermissionError(13, "Permission denied")
        return read(self, **kinds)

    monkeypatch.setattr(Path, "read_text", denied)
    monkeypatch.setattr("os.path.exists", lambda file: False)
    assert load_settings({}).port == 7860


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("", "https://huggingface.co"),
        ("hf-mirror.com", "https://hf-mirror.com"),
        ("http://127.0.0.1:8/", "http://127.0.0.1:8"),
    ],
)
def test_a_mirror_is_named_with_or_without_https(given, used):
    assert load_settings({"HF_ENDPOINT": given}).hub == used
