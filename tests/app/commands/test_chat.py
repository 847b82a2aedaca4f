"""The command ``chat``: messages and commands of a person, one a line; the engine is a fake."""

import io
from functools import partial

import pytest

from app.commands.main import main
from app.history.store import History
from app.settings import Settings
from app.worker.worker import EngineWorker
from tests.app import fake_engine
from tests.app.conftest import no_page


@pytest.fixture
def chat(home, monkeypatch, capsys):
    """Types lines into a new chat; returns what was written and what was complained of."""
    engine = partial(EngineWorker, entry=fake_engine.parrot)
    monkeypatch.setattr("app.chat.loaded_model.EngineWorker", engine)

    def run(*lines: str, arguments: tuple[str, ...] = ()) -> tuple[str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        assert main(["chat", *arguments], no_page) == 0
        return capsys.readouterr()

    return run


def stored(home):
    history = History.open(Settings(home=home).database)
    try:
        found = [(one, history.messages(one.id)) for one in history.conversations()]
        return [
            (one.title, one.system, [(m.role, m.content) for m in messages])
            for one, messages in found
        ]
    finally:
        history.close()


def test_questions_are_answered_and_kept(chat, home):
    out, err = chat(
        "the first", "the second", "/new", "the third", arguments=("--system", "Be brief.")
    )
    assert err == ""
    assert all(out.count(f"the {word}") >= 1 for word in ("first", "second", "third"))
    third, first = stored(home)
    assert (third[0], first[0], first[1]) == ("the third", "the first", "Be brief.")
    assert [role for role, _ in first[2]] == ["user", "assistant"] * 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["/help"], "/temperature"),
        (["/dance"], "there is no command /dance"),
        (["/again"], "no conversation is open"),
        (["/temperature warm"], "'warm' is not a number"),
        (["/temperature"], "Temperature: 0, the default"),
        (["/temperature 0.5"], "Temperature: 0.5"),
        (["/temperature -1"], "temperature"),
        (["/open 7"], "a number of /list"),
        (["/model"], "pocket"),
        (["/model nobody"], "nobody"),
        (["/attach /nowhere/x.txt"], "/nowhere/x.txt: No such file"),
        (["/system Be kind.", "/system"], "System prompt: Be kind."),
        (["//not a command"], "/not a command"),
        (["hello", "/again", "/continue"], "hello"),
        (["", "  "], ""),
    ],
)
def test_commands_say_what_they_did_and_the_chat_goes_on(chat, lines, said):
    out, err = chat(*lines, "still here", "/exit", "never sent")
    assert said in out + err
    assert "still here" in out
    assert "never sent" not in out
    assert "Traceback" not in err


def test_an_answer_that_only_repeats_itself_ends(chat, monkeypatch):
    stuck = partial(EngineWorker, entry=fake_engine.stuck)
    monkeypatch.setattr("app.chat.loaded_model.EngineWorker", stuck)
    out, err = chat("What is it?", "/exit")
    assert err == ""
    assert "This answer repeats itself. /again gives another one." in out
    assert 1_000 < len(out) < 10_000


def test_files_are_attached_listed_opened_and_saved(chat, home, tmp_path):
    file, saved = tmp_path / "notes.txt", tmp_path / "saved.md"
    file.write_bytes("caf\xe9 \x1b[31m".encode("cp1252"))
    out, err = chat(
        f"/attach {file}", "sum it up", "/new", "/list caf\xe9", "/open 1", f"/save {saved}"
    )
    assert err == ""
    assert "  1  sum it up" in out
    assert "\x1b" not in out
    assert "caf\xe9" in saved.read_text(encoding="utf-8")
    [(_, _, [question, _])] = stored(home)
    assert "[File notes.txt, " in question[1]
