"""What ``ask`` and ``chat`` make of the options that they share, and of what is piped in."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.commands import main as cli
from app.commands.main import parse
from app.errors import UnknownDrafter
from app.request import SAMPLING
from app.settings import Settings
from tests.app.conftest import no_page

BOTH = pytest.mark.parametrize("command", [("ask", "hello"), ("chat",)], ids=" ".join)


def given(command, home, *options):
    return parse([*command, *options], Settings(home=home)).options


def asked(options):
    """Sampling, drafter, longest answer, thinking and what is left to the model."""
    one = options.turn if hasattr(options, "turn") else options.reply
    return one.sampling, one.drafter, one.max_tokens, one.thinking, one.unset


@BOTH
def test_without_options_all_is_the_models_own(command, home):
    sampling, drafter, longest, thinking, unset = asked(given(command, home))
    assert (sampling.temperature, sampling.penalties, drafter, longest, thinking) == (
        0,
        None,
        "auto",
        None,
        "",
    )
    assert unset == frozenset(SAMPLING)


def test_both_understand_every_option_alike(home):
    options = [
        "--temperature",
        "0.7",
        "--top-p",
        "0.9",
        "--top-k",
        "40",
        "--min-p",
        "0.05",
        "--seed",
        "7",
        "--repeat-penalty",
        "1.1",
        "--max-tokens",
        "40",
        "--draft",
        "lookup",
        "--thinking",
        "low",
        "--dtype",
        "float32",
        "--context",
        "512",
    ]
    ask, chat = given(("ask", "hello"), home, *options), given(("chat",), home, *options)
    assert asked(ask) == asked(chat)
    sampling, drafter, longest, thinking, unset = asked(chat)
    assert (sampling.temperature, sampling.top_k, sampling.seed) == (0.7, 40, 7)
    assert (sampling.penalties.repeat, drafter, longest, thinking) == (1.1, "lookup", 40, "low")
    assert unset == frozenset()
    assert ask.settings == chat.settings
    assert (chat.settings.dtype, chat.settings.context) == ("float32", 512)


@BOTH
@pytest.mark.parametrize(
    ("option", "left"), [("--repeat-penalty=1", "repeat"), ("--temperature=0", "temperature")]
)
def test_off_is_not_the_models_own(command, home, option, left):
    *_, unset = asked(given(command, home, option))
    assert left not in unset


@BOTH
def test_a_drafter_that_does_not_exist(command, home):
    with pytest.raises(UnknownDrafter):
        given(command, home, "--draft", "magic")


@contextmanager
def feeding(monkeypatch, data: bytes) -> Iterator[None]:
    """A pipe with ``data`` as standard input."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(data)
    with os.fdopen(reading) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield


@pytest.mark.parametrize(
    ("arguments", "data", "asked"),
    [
        (["shorten"], b"a text", "a text\n\nshorten"),
        (["shorten"], b"", "shorten"),
        (["what", "is", "2", "+", "3?"], b"", "what is 2 + 3?"),
        ([], "na\xefve\r\n".encode("cp1252"), "na\xefve\n"),
        (["-"], "北京".encode("utf-16"), "北京"),
        ([os.fsdecode("na\xefve caf\xe9".encode("cp1252"))], b"", "na\xefve caf\xe9"),
        (["na\xefve".encode().decode("ascii", "surrogateescape")], b"", "na\xefve"),
    ],
)
def test_ask_reads_what_is_piped_in(arguments, data, asked, home, monkeypatch):
    seen = []
    monkeypatch.setattr("app.commands.ask.run", lambda options: seen.append(options) or 0)
    with feeding(monkeypatch, data):
        assert cli.main(["ask", *arguments], no_page) == 0
    assert seen[0].turn.messages[0].content == asked


def test_ask_refuses_a_pipe_with_no_text(home, monkeypatch, capsys):
    with feeding(monkeypatch, b"\x89PNG\0\0"):
        assert cli.main(["ask", "what is it?"], no_page) == 2
    assert "standard input is a picture, and only text is read" in capsys.readouterr().err
