"""The terminal: nothing that is written controls it; a line of progress; and watchers of a state."""

import asyncio
import io
import re
import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import terminal as place
from app.observable import Observable
from app.terminal import harmless, notify, show_progress, waiting, write, write_lines
from tests.app.asynchronous import asynchronous


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    found = Terminal()
    monkeypatch.setattr(place, "sys", SimpleNamespace(stderr=found))  # pytest sets the real one
    monkeypatch.setattr(place, "EVERY", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    return found


def lines(terminal):
    """What stood on the line, one after the other."""
    return terminal.getvalue().split("\r\x1b[K")[1:]


async def seven(after):
    await asyncio.sleep(after)
    return 7


def test_the_line_is_kept_up_to_date_and_taken_away(terminal):
    assert asyncio.run(waiting("loading pocket", seven(0.05))) == 7
    *shown, last = lines(terminal)
    assert all(re.fullmatch(r"loading pocket, \d+ s", line) for line in shown)
    assert len(shown) > 1
    assert last == ""


def test_seconds_are_counted(terminal, monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(place, "monotonic", lambda: next(clock))
    asyncio.run(waiting("loading pocket", seven(0.05)))
    assert lines(terminal)[:2] == ["loading pocket, 1 s", "loading pocket, 2 s"]


def test_what_fails_fails_and_the_line_is_gone(terminal):
    async def fail():
        await asyncio.sleep(0)
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"):
        asyncio.run(waiting("loading", fail()))
    assert lines(terminal)[-1] == ""


def test_who_stops_waiting_lets_the_work_clean_up(terminal):
    cleaned = []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    async def stop():
        task = asyncio.create_task(waiting("loading", work()))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled()

    assert asyncio.run(stop())
    assert cleaned == [True]
    assert lines(terminal)[-1] == ""


def test_nothing_is_shown_without_a_terminal(monkeypatch):
    found = io.StringIO()
    monkeypatch.setattr(place, "sys", SimpleNamespace(stderr=found))
    assert asyncio.run(waiting("loading", seven(0))) == 7
    assert found.getvalue() == ""


@pytest.mark.parametrize(("kind", "shown"), [("dumb", False), ("unknown", False), ("vt100", True)])
def test_a_terminal_that_cannot_replace_a_line_gets_none(terminal, monkeypatch, kind, shown):
    """In the shell of an editor, each of them stood there with its control sequence."""
    monkeypatch.setenv("TERM", kind)
    show_progress("loading")
    assert bool(terminal.getvalue()) is shown


@given(st.text())
def test_law_no_text_has_control_over_the_terminal(text):
    shown = harmless(text)
    assert [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"] == []
    kept = "".join(c for c in text if unicodedata.category(c) != "Cc" or c in "\n\t")
    assert [c for c in shown if not 0x2400 <= ord(c) < 0x2422 and c != "\ufffd"] == [
        c for c in kept if not 0x2400 <= ord(c) < 0x2422 and c != "\ufffd"
    ]


@pytest.mark.parametrize("write", [write, lambda text: write_lines([text]), notify])
def test_everything_that_is_written_is_harmless(write, capsys):
    write("a name\x1b[2J\x9b1m\x07")
    out, err = capsys.readouterr()
    assert (out + err).rstrip() == "a name\u241b[2J\ufffd1m\u2407"


def test_a_line_of_progress_is_harmless_and_does_not_wrap(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    show_progress("loading \x1b[31mred" + "x" * 50)
    assert lines(terminal) == ["loading \u241b[31mredxxxx"[:19]]


@asynchronous
async def test_every_watcher_is_woken_and_none_waits_for_a_past_change():
    state = Observable()
    watchers = [asyncio.create_task(state.changed(0)) for _ in range(3)]
    await asyncio.sleep(0)
    state.change()
    await asyncio.wait_for(asyncio.gather(*watchers), 1)
    await asyncio.wait_for(state.changed(0), 1)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(state.changed(state.version), 0.01)
