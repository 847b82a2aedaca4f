"""The log file: there when something went wrong, and only then."""

import logging
from pathlib import Path

import pytest

from app.logs import logging_to_file
from app.settings import Settings, prepare_home


def test_warnings_go_to_the_file_and_nothing_else_does(tmp_path):
    settings = Settings(home=tmp_path)
    prepare_home(settings)
    file = settings.logs / "slipstream.log"
    with logging_to_file(settings):
        logging.getLogger("app.somewhere").info("all is well")
        assert not file.exists()
        logging.getLogger("app.somewhere").warning("something is odd")
    logging.getLogger("app.somewhere").warning("after the end")
    assert [line.split(" ", 2)[2] for line in file.read_text().splitlines()] == [
        "WARNING app.somewhere: something is odd"
    ]


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["app fine", "app detail", "app odd", "httpx odd", "app bad"]),
        ("error", ["app bad"]),
    ],
)
def test_the_level_is_of_our_own_records(tmp_path, level, written):
    settings = Settings(home=tmp_path, log_level=level)
    prepare_home(settings)
    before = logging.getLogger("app").level
    with logging_to_file(settings):
        for name, number, text in (
            ("app.x", logging.INFO, "app fine"),
            ("app.x", logging.DEBUG, "app detail"),
            ("httpx", logging.INFO, "httpx chatter"),
            ("app.x", logging.WARNING, "app odd"),
            ("httpx", logging.WARNING, "httpx odd"),
            ("app.x", logging.ERROR, "app bad"),
        ):
            logging.getLogger(name).log(number, text)
    lines = (settings.logs / "slipstream.log").read_text().splitlines()
    assert [line.split(": ")[1] for line in lines] == written
    assert logging.getLogger("app").level == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_log_that_cannot_grow_says_so_once_and_without_a_traceback(tmp_path, capsys):
    settings = Settings(home=tmp_path)
    prepare_home(settings)
    (settings.logs / "slipstream.log").symlink_to("/dev/full")
    with logging_to_file(settings):
        for _ in range(3):
            logging.getLogger("app.somewhere").warning("something is odd")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "slipstream.log cannot be written (No space left on device); check free space" in said[0]


def test_names_that_are_no_text_are_logged_all_the_same(tmp_path, capsys, monkeypatch):
    settings = Settings(home=tmp_path)
    prepare_home(settings)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest cannot pass such a name on
    with logging_to_file(settings):
        logging.getLogger("app.somewhere").warning("l\udce9.gguf is odd")
    assert r"l\udce9.gguf is odd" in (settings.logs / "slipstream.log").read_text()
    assert capsys.readouterr().err == ""
