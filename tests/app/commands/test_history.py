"""What ``slipstream history`` prints, and what ``--reset`` takes away."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.commands.history import HistoryOptions
from app.commands.history import run as report
from app.history.store import History
from app.settings import Settings
from tests.app.history.replies import CHAT, EDIT, run, stats


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


@pytest.fixture
def measured(settings: Settings) -> str:
    """Three replies of pocket, one of another model; the id of a stored conversation."""
    history = History.open(settings.database)
    chat = history.create_conversation("kept").id
    asked = history.add_message(chat, None, "user", "still here?")
    for _ in range(2):
        history.measurements.record(CHAT, stats(runs=(run("chain"),)), chat, asked.id)
    quick = run("lookup", ((20, 20), (20, 18), (18, 9), (9, 0), (0, 0)), pace=3.5)
    history.measurements.record(EDIT, stats(runs=(quick,)))
    other = replace(CHAT, model="other", draft="", machine="a phone")
    history.measurements.record(other, stats(runs=(run("none", ()),)))
    history.close()
    return chat


def printed(settings: Settings, capsys: pytest.CaptureFixture[str], **options: object) -> str:
    chosen = {"reset": False, "model": None} | options
    assert report(HistoryOptions(settings=settings, **chosen)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_an_empty_history_says_so(settings, capsys):
    assert printed(settings, capsys) == (
        "Nothing has been measured yet: every answer adds to it.\n"
    )
    assert printed(settings, capsys, reset=True) == (
        "There was nothing to forget. Conversations are as they were.\n"
    )


def test_the_table_has_a_section_for_each_model_and_machine(settings, measured, capsys):
    lines = printed(settings, capsys).splitlines()
    assert lines[0] == "other on a phone"
    assert lines[2].split() == ["none", "chat", "greedy", "1", "20", "1.00x", "-", "-", "-", "-"]
    assert lines[4] == f"pocket with pocket-draft on {CHAT.machine}"
    assert lines[5].split()[:6] == ["drafter", "task", "temperature", "replies", "tokens", "pace"]
    assert lines[6].split() == [
        "chain",
        "chat",
        "greedy",
        "2",
        "88",
        "2.00x",
        "75%",
        "60%",
        "-",
        "-",
    ]
    assert lines[7].split() == [
        "lookup",
        "edit",
        "greedy",
        "1",
        "67",
        "3.50x",
        "100%",
        "90%",
        "50%",
        "0%",
    ]
    assert len({len(line) for line in (lines[1], lines[2], lines[5], lines[6], lines[7])}) == 1


def test_one_model_alone(settings, measured, capsys):
    out = printed(settings, capsys, model="other")
    assert "a phone" in out
    assert "pocket" not in out


def test_a_model_that_was_never_measured(settings, measured, capsys):
    assert printed(settings, capsys, model="nobody") == (
        "Nothing has been measured of nobody yet; there are measurements of other, pocket.\n"
    )


def test_a_folder_is_remembered_by_its_name(settings, measured, capsys):
    assert printed(settings, capsys, model="/models/other") == printed(
        settings, capsys, model="other"
    )


def test_reset_of_one_model_leaves_the_others(settings, measured, capsys):
    assert printed(settings, capsys, reset=True, model="pocket") == (
        "Forgot 3 measured replies of pocket, with 3 drafter runs. "
        "Conversations are as they were.\n"
    )
    assert printed(settings, capsys, reset=True) == (
        "Forgot 1 measured reply, with 1 drafter run. Conversations are as they were.\n"
    )
    assert "Nothing has been measured yet" in printed(settings, capsys)


def test_reset_keeps_conversations(settings, measured, capsys):
    printed(settings, capsys, reset=True)
    history = History.open(settings.database)
    assert [one.content for one in history.messages(measured)] == ["still here?"]
    history.close()


def test_a_file_that_could_not_be_used_is_said(settings, capsys):
    settings.database.write_text("no database at all, but a text of some length\n" * 50)
    assert report(HistoryOptions(settings=settings, reset=False, model=None)) == 0
    assert "The history could not be used" in capsys.readouterr().err
