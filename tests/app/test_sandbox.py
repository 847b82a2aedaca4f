"""Work in a confined process: its answers, its ends, and whose fault they are."""

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest

from app.models import gguf_check
from app.models.gguf_check import RECORD, check_gguf
from app.sandbox import Sandbox, SandboxEnded, SandboxTimeout
from app.settings import Settings
from engine.errors import ModelUnusable
from tests.engine.models.gguf.files import exported

MEMORY = 1 << 30
ROOT = Path(__file__).parents[2]


def echo(connection, *arguments):
    connection.send(arguments)
    while True:
        connection.send(connection.recv())


def slow(connection):
    time.sleep(60)


def leaves(connection, code):
    os._exit(code)


def greedy(connection):
    bytearray(4 * MEMORY)


@pytest.fixture
def nowhere():
    """A function of a module that no other process can import."""
    module = types.ModuleType("only_in_this_process")
    exec("def work(connection, *arguments): ...", module.__dict__)
    sys.modules[module.__name__] = module
    yield module.work
    del sys.modules[module.__name__]


def test_messages_go_both_ways_and_nothing_comes_before_the_first_answer():
    process = Sandbox(echo, (1, "two"), MEMORY)
    assert process.receive(60) == (1, "two")
    process.send({"three": 4})
    assert process.receive(60) == {"three": 4}
    process.close()


def test_a_late_process_is_reported_in_seconds_and_ended():
    process = Sandbox(slow, (), MEMORY)
    started = time.monotonic()
    with pytest.raises(SandboxTimeout, match="more than 5 seconds"):
        process.receive(5)
    assert time.monotonic() - started < 10
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


STARTED = {
    "confined": "from app.sandbox import Sandbox; from tests.app.test_sandbox import slow; "
    "owner = Sandbox(slow, (), 1 << 30)",
    "engine": "from app.worker.child import EngineChild; from engine.request import ModelSpec; "
    "from tests.app.test_sandbox import slow; "
    "owner = EngineChild(ModelSpec('m', '/m'), slow, 'WARNING')",
}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a process has blocked")
@pytest.mark.parametrize("kind", STARTED)
def test_the_interrupt_key_is_blocked_from_the_first_instruction(kind):
    """Ctrl-C while a model loads printed the traceback of a process that still imported."""
    code = (
        f"{STARTED[kind]}; import os; from pathlib import Path; "
        "print(Path(f'/proc/{owner.pid}/status').read_text()); os.kill(owner.pid, 9)"
    )
    shown = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    blocked = next(line for line in shown.splitlines() if line.startswith("SigBlk"))
    assert int(blocked.split()[1], 16) & 1 << (signal.SIGINT - 1)


def end_of(work, *arguments):
    with pytest.raises(SandboxEnded) as caught:
        Sandbox(work, arguments, MEMORY).receive(60)
    return caught.value


def test_an_end_says_how_and_whether_the_work_is_to_blame(nowhere):
    blamed = end_of(leaves, 3)
    assert (str(blamed), blamed.passing) == ("its process ended with code 3", False)
    short = end_of(greedy)
    assert short.passing
    assert "more than 1024 MiB of memory" in str(short)
    never = end_of(nowhere)
    assert never.passing
    assert "before it began" in str(never)


def test_an_end_is_blamed_on_the_work_also_before_its_start_was_read():
    process = Sandbox(leaves, (3,), MEMORY)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(SandboxEnded, match="code 3$") as caught:
        process.send("anything")
    assert not caught.value.passing


def test_a_file_is_not_blamed_for_a_process_that_never_began(tmp_path, monkeypatch, nowhere):
    settings = Settings(home=tmp_path / "home")
    file = tmp_path / "a.gguf"
    exported(Path(__file__).parents[2] / "engine/bundled/pocket-draft", file)
    with monkeypatch.context() as patched:
        patched.setattr(gguf_check, "_try", nowhere)
        with pytest.raises(ModelUnusable, match="before it began"):
            check_gguf(settings, file)
    assert not (settings.home / RECORD).exists()
    check_gguf(settings, file)
    assert (settings.home / RECORD).exists()
