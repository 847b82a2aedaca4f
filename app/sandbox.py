"""Child processes: untrusted work with limits, Ctrl-C blocked at the start, an end with the parent."""

import ctypes
import multiprocessing
import os
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

Work = Callable[..., None]  # (connection, *arguments); a function of a module

JOIN_SECONDS = 2.0  # after it was killed
EXIT_SECONDS = 30.0  # after it closed its end of the pipe; a busy machine takes seconds
OUT_OF_MEMORY = 77  # exit code
_STARTED = "started"  # the first message: a process that ends before it has seen no file


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """A process started inside has Ctrl-C blocked from its first instruction on."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # it unblocks Ctrl-C as it starts, with the first process
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class SandboxTimeout(Exception):
    """The process did not answer in time; it has been killed."""


class SandboxEnded(Exception):
    """The process ended without an answer; the message says how.

    ``passing``: its work may not be to blame, because it never began or the machine was short of
    memory or busy.
    """

    def __init__(self, message: str, *, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


class Sandbox:
    """One process that runs ``work`` and sends messages over a pipe; ends with its owner.

    ``memory`` bounds what it may allocate, in bytes, where the system can (Linux); mapped files
    do not count. Its standard error is dropped: libraries print there when they crash.
    """

    def __init__(self, work: Work, arguments: tuple[Any, ...], memory: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        process = context.Process(
            target=_main, args=(theirs, work, arguments, memory), name="slipstream-confined"
        )
        process.daemon = True
        with interrupts_blocked():
            process.start()
        theirs.close()
        self._process, self._memory, self._started = process, memory, False
        self._end = weakref.finalize(self, _end, process, self._connection)

    @property
    def pid(self) -> int | None:
        """The process id, for logs and tests."""
        return self._process.pid

    def send(self, message: object) -> None:
        """Send a message; raises SandboxEnded."""
        try:
            self._connection.send(message)
        except OSError as error:
            raise self._ended() from error

    def receive(self, seconds: float) -> Any:
        """The next message; raises SandboxTimeout or SandboxEnded, and the process is then gone."""
        deadline = time.monotonic() + seconds
        try:
            while self._connection.poll(max(0.0, deadline - time.monotonic())):
                message = self._connection.recv()
                if self._started:
                    return message
                self._started = True
            self.close()
            raise SandboxTimeout(f"it took more than {seconds:g} seconds")
        except (EOFError, OSError) as error:
            raise self._ended() from error

    def close(self) -> None:
        """End the process now."""
        self._end()

    def _ended(self) -> SandboxEnded:
        self._process.join(EXIT_SECONDS)
        code, started = self._process.exitcode, self._has_started()
        self.close()
        if code is None:
            return SandboxEnded(
                f"it neither answered nor ended in {EXIT_SECONDS:g} seconds", passing=True
            )
        if code == OUT_OF_MEMORY:
            limit = self._memory // 2**20
            return SandboxEnded(f"it needed more than {limit} MiB of memory", passing=True)
        if code == -signal.SIGKILL:
            return SandboxEnded(
                "it was killed, often because the machine ran out of memory", passing=True
            )
        if not started:
            return SandboxEnded(f"its process ended with code {code} before it began", passing=True)
        if code < 0:
            return SandboxEnded(f"its process was ended by signal {-code}")
        return SandboxEnded(f"its process ended with code {code}")

    def _has_started(self) -> bool:
        """Whether the work began; the first message may still be in the pipe."""
        with suppress(EOFError, OSError):
            if not self._started and self._connection.poll():
                self._started = self._connection.recv() == _STARTED
        return self._started


def _end(process: BaseProcess, connection: Connection) -> None:
    connection.close()
    process.kill()
    process.join(JOIN_SECONDS)


def _main(connection: Connection, work: Work, arguments: tuple[Any, ...], memory: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C
    _limit(memory)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        connection.send(_STARTED)
        work(connection, *arguments)
    except (EOFError, ConnectionError):
        return  # the owner is gone
    except MemoryError as error:
        raise SystemExit(OUT_OF_MEMORY) from error


def _limit(memory: int) -> None:
    if sys.platform == "win32":
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    ctypes.CDLL(None).setenv(b"GGML_NO_BACKTRACE", b"1", 1)  # it would start a debugger to die


def end_with_parent() -> None:
    """From now on; does nothing in a process that has no parent of this program."""
    if multiprocessing.parent_process() is not None:
        Thread(target=_exit_after_parent, name="end with the parent", daemon=True).start()


def _exit_after_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
