"""``chat`` and ``ask`` in a real terminal: what a person sees, types and interrupts."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bundled import ROOT

WIDE, NARROW = 100, 38
PATIENCE = 60.0  # seconds
_SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\x1b\][^\x07]*\x07|\x1b[=>]")


class Terminal:
    """A terminal of ``columns``, and a program that was started in it."""

    def __init__(self, columns: int, *arguments: str) -> None:
        self.columns, self.raw = columns, ""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        variables = os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app", *arguments],
            cwd=ROOT,
            env={name: value for name, value in variables.items() if name != "COLUMNS"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C needs it
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read(self, seconds: float) -> bool:
        """What comes within ``seconds``; False at the end."""
        if select.select([self._ours], [], [], seconds)[0]:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the program has ended
                return False
            self.raw += data.decode(errors="replace")
            return bool(data)
        return True

    def until(self, text: str, times: int = 1) -> None:
        end = time.monotonic() + PATIENCE
        while "\n".join(self.lines).count(text) < times:
            assert self.read(0.1), f"it ended before {text!r} came:\n{self.raw}"
            assert time.monotonic() < end, f"{text!r} did not come:\n{self.raw!r}"

    def ended(self) -> int:
        while self.read(PATIENCE):
            pass
        return self.process.wait(PATIENCE)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen, with all that was scrolled away; long lines are wrapped."""
        rows: list[list[str]] = [[]]
        at = place = 0
        while place < len(self.raw):
            found = _SEQUENCE.match(self.raw, place)
            if found and found[3] == "K":
                del rows[-1][at:]
            elif not found:
                at = self._put(rows, at, self.raw[place])
            place = found.end() if found else place + 1
        return ["".join(row) for row in rows]

    def _put(self, rows: list[list[str]], at: int, character: str) -> int:
        """Write a character at ``at``; returns where the next one stands."""
        if character in "\r\b\n":
            rows += [[]] if character == "\n" else []
            return {"\r": 0, "\b": max(0, at - 1), "\n": at}[character]
        if character < " ":
            return at
        if at == self.columns:
            rows.append([])
            at = 0
        rows[-1] += [" "] * (at - len(rows[-1]))
        rows[-1][at : at + 1] = character
        return at + 1

    def close(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(PATIENCE)
        os.close(self._ours)


@contextmanager
def terminal(columns: int, *arguments: str) -> Iterator[Terminal]:
    opened = Terminal(columns, *arguments)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> None:
    """Every program has a folder of its own."""


CHAT = ("chat", "--model", "pocket", "--temperature", "0")
SENTENCE = (
    "The boat left the harbour at six in the morning. The sea was calm and the sky was clear."
)


@pytest.mark.parametrize("columns", [WIDE, NARROW])
def test_the_whole_answer_stays_on_the_screen(columns):
    with terminal(columns, *CHAT) as screen:
        screen.until("> ")
        screen.type(f"Repeat this text exactly: {SENTENCE}\r")
        screen.until("> ", 2)
        said = "".join(screen.lines).replace(" ", "")
        assert said.count(SENTENCE.replace(" ", "")) == 2, screen.lines
        assert "loading" not in said
        assert "reading" not in said
        screen.type("\x04")
        assert screen.ended() == 0


def test_lines_come_back_with_the_arrow_also_in_the_next_chat():
    with terminal(WIDE, *CHAT) as screen:
        screen.until("> ")
        screen.type("/temperature 0.5\r")
        screen.until("Temperature: 0.5")
        screen.type("\x1b[A\r")
        screen.until("Temperature: 0.5", 2)
        screen.type("/system one\\\r")  # a message of several lines
        screen.type("two\r")
        screen.until("System prompt: one")
        screen.until("two\n")
        screen.type("/exit\r")
        assert screen.ended() == 0
    with terminal(WIDE, *CHAT) as screen:
        screen.until("> ")
        screen.type("\x1b[A" * 4 + "\r")
        screen.until("Temperature: 0.5")


def test_lines_that_cannot_be_kept_keep_nobody_from_talking(home):
    (home / "chat-lines").mkdir(parents=True)
    with terminal(WIDE, *CHAT) as screen:
        screen.until("lines of earlier chats cannot be kept")
        screen.type("What is 17 + 25?\r")
        screen.until("> ", 2)
        screen.type("\x04")
        assert screen.ended() == 0
        assert "Traceback" not in screen.raw


def test_the_interrupt_key_empties_the_line_and_stops_an_answer():
    with terminal(WIDE, *CHAT, "--draft", "none") as screen:
        screen.until("> ")
        screen.type("half a quest")
        screen.until("half a quest")
        screen.type("\x03")
        screen.until("> ", 2)
        screen.type(
            "Repeat this text exactly:\\\r"
            + "Anna has a red hat and Ben has a blue boat. " * 60
            + "\r"
        )
        screen.until("Anna has", 62)
        screen.type("\x03")
        screen.until("(stopped)")
        screen.type("/continue\r")
        screen.until("Anna has", 64)
        screen.type("\x03")
        screen.until("(stopped)", 2)
        screen.type("\x04")
        assert screen.ended() == 0
        assert "Traceback" not in screen.raw


def test_ask_shows_the_load_and_takes_it_away():
    with terminal(NARROW, "ask", "--model", "pocket", "What is 17 + 25?") as screen:
        assert screen.ended() == 0
        assert "loading pocket" in screen.raw
        assert "loading" not in "\n".join(screen.lines)
        assert "42" in "".join(screen.lines[-2:])


def test_json_in_a_terminal_is_one_line_of_json():
    with terminal(400, "ask", "--model", "pocket", "--json", "--max-tokens", "4", "hi") as screen:
        assert screen.ended() == 0
        assert [line for line in screen.lines if line][-1].startswith('{"token_ids"')


def test_the_interrupt_key_while_a_model_loads():
    with terminal(WIDE, *CHAT) as screen:
        screen.until("loading pocket")
        screen.type("\x03")
        assert screen.ended() == 130
        assert "Traceback" not in screen.raw
