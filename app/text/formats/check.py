"""Whether llguidance can hold a grammar: found out in a confined process, where a crash does no harm."""

from collections.abc import Sequence
from functools import cache
from multiprocessing.connection import Connection
from threading import Lock

from app.sandbox import Sandbox, SandboxEnded, SandboxTimeout

START_SECONDS, SECONDS = 60.0, 5.0
MEMORY = 1 << 30  # bytes


class Checker:
    """One process that compiles grammars, started at the first and again after it was killed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: Sandbox | None = None

    def trouble_with(self, source: str, marks: Sequence[str] = ()) -> str:
        """Why no answer can be held to this grammar; empty if one can.

        ``marks`` are the control tokens that it names.
        """
        with self._lock:
            try:
                if self._process is None:
                    self._process = _started()
                self._process.send((source, tuple(marks)))
                return str(self._process.receive(SECONDS))
            except (SandboxTimeout, SandboxEnded) as error:
                self._process = None
                return f"it was given up: {error}"


@cache
def checker() -> Checker:
    """The one of this program, which every request shares."""
    return Checker()


def _started() -> Sandbox:
    process = Sandbox(_serve, (), MEMORY)
    process.receive(START_SECONDS)
    return process


def _serve(connection: Connection) -> None:
    """In the confined process: one sentence for every grammar."""
    from engine.grammar.grammar import Grammar
    from engine.grammar.vocabulary import trouble_with

    connection.send("ready")
    while True:
        source, marks = connection.recv()
        connection.send(trouble_with(Grammar(source), marks))
