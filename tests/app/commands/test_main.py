"""The command line as a person meets it: answers, one sentence for every mistake, exit codes."""

import errno
import json
import os
import signal
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path

import pytest

from app.commands import main as cli
from app.commands.serve import ServeOptions
from app.errors import HistoryError, SettingsError
from app.settings import Settings
from app.worker.worker import EngineWorker
from tests.app import fake_engine
from tests.app.conftest import no_page

ROOT = Path(__file__).parents[3]
COMMAND = "import sys; from app.commands.main import main; sys.exit(main(None, lambda options: 0))"
HEAVY = ("torch", "transformers", "gradio", "fastapi", "sqlite_utils", "tokenizers", "jinja2", "yaml")  # fmt: skip


def start(*arguments: str, code: str = COMMAND) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )


def run(*arguments: str, code: str = COMMAND) -> tuple[int, str, str]:
    """Exit code, output and errors of a process of its own."""
    with start(*arguments, code=code) as process:
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err


class TestStart:
    def test_help_imports_nothing_heavy(self, home):
        code = (
            "import sys; from app.commands.main import main\n"
            "try: main(['--help'], None)\n"
            f"except SystemExit: sys.exit(repr(sorted(set(sys.modules) & set({HEAVY}))))"
        )
        _, out, loaded = run(code=code)
        assert out.startswith("usage: slipstream")
        assert loaded.strip() == "[]"
        assert not home.exists()

    def test_without_a_command_the_page_is_started(self, home):
        seen: list[ServeOptions] = []
        page = lambda options: seen.append(options) or 7  # noqa: E731
        flags = ["--port", "0", "--model", "m", "--draft-model", "d", "--no-browser"]
        assert cli.main(flags, page) == cli.main(["--no-reading-ahead"], page) == 7
        given, usual = seen
        assert (given.port, given.model, given.draft_model) == (0, "m", "d")
        assert (given.browser, usual.browser) == (False, True)
        assert (given.settings.read_ahead, usual.settings.read_ahead) == (True, False)
        assert given.settings.home == home
        assert home.is_dir()

    def test_the_version_is_the_projects(self, home):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert run("--version") == (0, f"slipstream {project['version']}\n", "")
        assert not home.exists()

    def test_config_lists_every_setting_and_its_source(self, home, tmp_path, monkeypatch, capsys):
        file = tmp_path / "config.toml"
        file.write_text("port = 8000\nkeep_alive = 300\n")
        monkeypatch.setenv("SLIPSTREAM_CONFIG", str(file))
        monkeypatch.setenv("SLIPSTREAM_HOST", "::1")
        assert cli.main(["config"], no_page) == 0
        out = capsys.readouterr().out
        assert out.splitlines()[0] == f"config file  {file}"
        for line in (
            "host         ::1  (SLIPSTREAM_HOST)",
            f"port         8000  ({file})",
            f"home         {home}  (SLIPSTREAM_HOME)",
            f"keep_alive   300.0  ({file})",
            "dtype        automatic  (default)",
        ):
            assert line in out

    def test_config_is_json_where_asked(self, home, capsys):
        assert cli.main(["config", "--json"], no_page) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["settings"]["home"] == {"value": str(home), "source": "SLIPSTREAM_HOME"}

    def test_flags_override_the_environment_which_overrides_the_file(
        self, home, tmp_path, monkeypatch
    ):
        file = tmp_path / "config.toml"
        file.write_text('port = 1\nhost = "::1"\nmodel = "file"\n')
        monkeypatch.setenv("SLIPSTREAM_CONFIG", str(file))
        monkeypatch.setenv("SLIPSTREAM_PORT", "2")
        monkeypatch.setenv("SLIPSTREAM_MODEL", "variable")
        seen: list[tuple[str, int, str]] = []
        page = lambda given: seen.append((given.host, given.port, given.model)) or 0  # noqa: E731
        cli.main(["--model", "flag"], page)
        assert seen == [("::1", 2, "flag")]

    @pytest.mark.parametrize(
        "arguments", [["--log-level", "debug", "history"], ["history", "--log-level", "debug"]]
    )
    def test_the_log_level_may_come_before_or_after_the_command(self, arguments):
        settings = Settings(Path("/nowhere"))
        assert cli.parse(arguments, settings).options.settings.log_level == "debug"
        assert cli.parse(["history"], settings).options.settings.log_level == "warning"


MISTAKES = [
    (["ask", ""], "slipstream: the prompt is empty; write something to answer"),
    (["ask", " \t"], "slipstream: the prompt is empty"),
    (["ask", "a\ud800"], "'a\\ud800' is no text in an encoding that is known here"),
    (["models", "search", "tiny", "a\ud800"], "'a\\ud800' is no text in an encoding"),
    (["history", "--model", "a\ud800"], "'a\\ud800' is no text in an encoding"),
    (["chat", "--system", "a\ud800"], "'a\\ud800' is no text in an encoding"),
    (["ask"], "there is no question; write slipstream ask"),
    (["ask", "a", "--temperature", "nan"], "'nan' is not a number from 0 to 100"),
    (["ask", "a", "--temperature", "-1"], "'-1' is not a number from 0 to 100"),
    (["ask", "a", "--temperature", "warm"], "'warm' is not a number from 0 to 100"),
    (["ask", "a", "--top-p", "inf"], "'inf' is not a number from 0 to 1"),
    (["ask", "a", "--max-tokens", "0"], "'0' is not a whole number from 1"),
    (["ask", "a", "--max-tokens", "1e3"], "'1e3' is not a whole number from 1"),
    (["ask", "a", "--seed", "9" * 5000], "is not a whole number from 0"),
    (["ask", "a", "--draft", "magic"], "there is no drafter named 'magic'; choose from auto, none"),
    (["ask", "a", "--format", "/nowhere/x"], "/nowhere/x cannot be read: No such file"),
    (["ask", "a", "--format", "README.md"], "README.md is not JSON"),
    (["ask", "a", "--format", "/"], "/ cannot be read: Is a directory"),
    (["verify", "--prompts", "/nowhere/x", "--draft", "lookup,magic"], "no drafter named 'magic'"),
    (["verify", "--prompts", "/nowhere/x"], "the file /nowhere/x cannot be read: No such file"),
    (["verify"], "slipstream verify: the following arguments are required: --prompts"),
    (["--port", "70000"], "'70000' is not a whole number from 0 to 65535"),
    (["dance"], "invalid choice: 'dance'"),
    (["modles"], "slipstream: argument COMMAND: there is no 'modles'; did you mean 'models'"),
    (["models", "serach", "x"], "there is no 'serach'; did you mean 'search'?"),
    (
        ["ask", "a", "--thinking", "hihg"],
        "argument --thinking: there is no 'hihg'; did you mean 'high'?",
    ),
    (["pull", "x"], "there is no 'pull'; did you mean 'models pull'?"),
    (["help"], "there is no 'help'; did you mean '--help'?"),
    (["version"], "there is no 'version'; did you mean '--version"),
    (["models"], "required: search|pull|list|rm|import|token"),
    (["keys"], "required: add|list|remove"),
    (["ask", "a", "--dance"], "unrecognized arguments: --dance"),
    (["ask", "a", "--\x1b[2J"], "unrecognized arguments: --\u241b[2J"),
]


@pytest.mark.parametrize(
    ("given", "host"),
    [("[::1]", "::1"), ("::1", "::1"), ("[::]", "::"), ("localhost", "localhost")],
)
def test_an_address_of_version_6_may_have_the_brackets_of_a_browser(given, host, tmp_path):
    assert cli.parse(["--host", given], Settings(home=tmp_path)).options.host == host


class TestMistakes:
    @pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
    def test_are_one_line_before_anything_starts(self, arguments, sentence, home, refused):
        assert sentence in refused(*arguments)
        assert not home.exists()

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (["ask", "a", "--model", "nobody"], "no model named 'nobody'; known models: pocket"),
            (["ask", "a", "--model", "/nowhere"], "there is no file or folder /nowhere"),
            (["ask", "a", "--model", "~nouser/x"], "~nouser/x begins with a home folder that"),
            (["ask", "a", "--model", "a" * 300], "aaa: File name too long"),
            (["ask", "a" * 9000], "the model holds 4096"),
        ],
    )
    def test_that_need_the_model_to_be_seen(self, arguments, sentence, refused):
        assert sentence in refused(*arguments)

    @pytest.mark.parametrize(
        ("error", "code"), [(SettingsError("port 1 is taken"), 2), (HistoryError("full"), 1)]
    )
    def test_of_the_page(self, error, code, home, capsys):
        def page(options: ServeOptions) -> int:
            raise error

        assert cli.main([], page) == code
        assert capsys.readouterr().err == f"slipstream: {error}\n"

    @pytest.mark.parametrize(
        ("error", "code", "sentence"),
        [
            (PermissionError(errno.EACCES, "Permission denied", "/x"), 2, "/x: Permission denied"),
            (OSError(errno.ENOSPC, "No space left on device", "/x", None, "/y"), 1, "/y: No space"),
            (
                OSError(errno.ENOSPC, "No space left on device"),
                1,
                "a file, cannot be used: No space",
            ),
            (ConnectionRefusedError("nobody there"), 1, "nobody there"),
        ],
    )
    def test_of_a_file_that_nothing_expected(self, error, code, sentence, home, capsys):
        """People read a traceback of 20 lines; the log has it now."""

        def page(options: ServeOptions) -> int:
            raise error

        assert cli.main([], page) == code
        err = capsys.readouterr().err
        assert sentence in err
        assert len(err.splitlines()) == 1
        assert type(error).__name__ in (home / "logs" / "slipstream.log").read_text()

    def test_of_an_unknown_home_folder(self, home, monkeypatch, capsys):
        monkeypatch.setenv("SLIPSTREAM_HOME", "~nouser/x")
        assert cli.main(["plan"], no_page) == 2
        assert "~nouser/x begins with a home folder that this" in capsys.readouterr().err


class TestStreams:
    """Output to a full disk, and streams that the caller closed, ended in tracebacks."""

    def run(self, home: Path, arguments: str, ending: str) -> tuple[int, str, str]:
        words = ["sh", "-c", f'exec "$0" -m app {arguments} {ending}', sys.executable]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has /dev/full")
    @pytest.mark.parametrize("arguments", ["models list", "plan"])
    def test_a_full_disk_is_reported(self, arguments, home):
        code, _, err = self.run(home, arguments, "> /dev/full")
        assert code == 1
        assert err == (
            "slipstream: the output, or a file, cannot be used: No space left on device\n"
        )

    @pytest.mark.parametrize(
        ("arguments", "ending", "code"),
        [
            ("models list", ">&-", 0),
            ("models list", "2>&- <&-", 0),
            ("models rm nobody", "2>&-", 2),
            ("models token", "<&-", 0),
        ],
    )
    def test_a_closed_stream_is_none(self, arguments, ending, code, home):
        found, _, err = self.run(home, arguments, ending)
        assert (found, err) == (code, "")


class TestAsk:
    @pytest.mark.parametrize("place", ["history.db", "history.db.lock", "history.db-wal"])
    def test_a_history_that_cannot_be_opened_costs_no_answer(
        self, home, monkeypatch, capsys, place
    ):
        """On a full disk, or one that cannot be written, nothing was answered."""
        engine = partial(EngineWorker, entry=fake_engine.parrot)
        monkeypatch.setattr("app.chat.loaded_model.EngineWorker", engine)
        (home / place).mkdir(parents=True)
        assert cli.main(["ask", "hello"], no_page) == 0
        out, err = capsys.readouterr()
        assert "hello" in out
        assert "what is measured is not kept: the history" in err
        assert err.count("\n") == 1

    def test_prints_one_line_of_json_where_asked(self, home):
        code, out, err = run("ask", "hello", "--json", "--max-tokens", "20", "--draft", "specexec")
        assert (code, err) == (0, "")
        last = json.loads(out)
        assert len(out.splitlines()) == 1
        assert set(last) == {
            "token_ids", "text", "drafter", "reason", "passes", "drafted", "accepted", "near_ties",
            "seconds", "tokens_per_second", "finish_reason", "prompt_tokens",
        }  # fmt: skip
        assert last["drafter"] == "specexec"
        assert len(last["token_ids"]) > 0
        assert last["accepted"] <= last["drafted"]

    @pytest.mark.parametrize("temperature", ["0", "1.5"])
    def test_answers_in_a_format(self, temperature, slipstream, tmp_path):
        schema = {
            "type": "object",
            "properties": {"age": {"type": "integer", "minimum": 40, "maximum": 59}},
            "required": ["age"],
        }
        file = tmp_path / "schema.json"
        file.write_text(json.dumps(schema), encoding="utf-8")
        text = "Anna is 34 years old."
        asked = ("ask", text, "--format", str(file), "--temperature", temperature)
        code, out, _ = slipstream(*asked)
        assert code == 0
        assert 40 <= json.loads(out)["age"] <= 59

    def test_answers_as_a_grammar_says(self, slipstream, tmp_path):
        file = tmp_path / "size.gbnf"
        file.write_text('root ::= "small" | "large"', encoding="utf-8")
        code, out, _ = slipstream("ask", "Is an ant small or large?", "--format", str(file))
        assert code == 0
        assert out.strip() in ("small", "large")

    def test_an_answer_does_not_control_the_terminal(self, home, monkeypatch, capsys):
        monkeypatch.setattr(
            "app.chat.loaded_model.EngineWorker", partial(EngineWorker, entry=fake_engine.parrot)
        )
        assert cli.main(["ask", "a\x1b]0;title\x07b\x9bc\r\nd"], no_page) == 0
        out = capsys.readouterr().out
        assert not set(out) & {"\x1b", "\x07", "\x9b", "\r"}
        assert "\u241b]0;title\u2407b\ufffdc\nd" in out

    def test_the_interrupt_key_ends_it_cleanly(self, home):
        """And nothing is left that still holds the output open: the engine has ended too."""
        lines = " ".join(
            f"line {n} of the text" for n in range(150)
        )  # takes many seconds to repeat
        with start("ask", f"Repeat after me: {lines}", "--draft", "none") as process:
            process.stdout.read(1)
            os.killpg(process.pid, signal.SIGINT)
            _, err = process.communicate(timeout=20)
        assert process.returncode == 130
        assert err == ""

    def test_a_crash_of_the_engine_keeps_the_text_and_fails(self, home, monkeypatch, capsys):
        fake = partial(EngineWorker, entry=fake_engine.fragile)
        monkeypatch.setattr("app.chat.loaded_model.EngineWorker", fake)
        assert cli.main(["ask", "abc", "--json"], no_page) == 1
        out, err = capsys.readouterr()
        assert json.loads(out)["finish_reason"] == "error"
        assert err.startswith("slipstream: the engine stopped while it answered")
        assert len(err.splitlines()) == 1
        assert "Traceback" in (home / "logs" / "slipstream.log").read_text()

    def test_a_reader_that_has_had_enough(self, home):
        with start("ask", "hello", "--max-tokens", "9") as process:
            process.stdout.close()
            assert process.stderr.read() == ""
        assert process.returncode == 1


def test_output_needs_no_particular_encoding(home):
    """A terminal in Latin-1 shows a question mark, not a traceback."""
    code = (
        "import sys, io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer, 'latin-1')\n"
        "from app.commands.main import main\n"
        "sys.exit(main([], lambda options: print('☃', end='') or 0))"
    )
    assert run(code=code) == (0, "?", "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other variables")
@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("file", "{place}/file/.local/share/slipstream cannot be written; "),
        ("dangling", "{place}/dangling/.local/share/slipstream cannot be written; "),
        ("", "this user has no home folder; "),
        ("fine", ""),
    ],
)
def test_a_temporary_folder_for_data_has_a_reason(home, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    for name in ("SLIPSTREAM_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    if home:
        monkeypatch.setenv("HOME", str(tmp_path / home))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["--no-browser"], lambda options: 0) == 0
    err = capsys.readouterr().err
    assert err.startswith(f"slipstream: {said.format(place=tmp_path)}" if said else "")
    assert ("is used instead" in err) == bool(said)
