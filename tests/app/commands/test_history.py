"""What ``slipstream history`` prints, and what ``--reset`` takes away."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.history.store import History
from app.settings import Settings
from tests.app.history.replies import CHAT, EDIT, run, stats


@pytest.fixture
def settings(home: Path) -> Settings:
    home.mkdir()
    return Settings(home=home)


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


@pytest.fixture
def printed(slipstream):
    def run(*arguments: str) -> str:
        code, out, err = slipstream("history", *arguments)
        assert (code, err) == (0, "")
        return out

    return run


def test_an_empty_history_says_so(printed):
    assert printed() == "Nothing has been measured yet: every answer adds to it.\n"
    assert printed("--reset") == ("There was nothing to forget. Conversations are as they were.\n")


def test_the_table_has_a_section_for_each_model_and_machine(measured, printed):
    lines = printed().splitlines()
    assert lines[0] == "other on a phone"
    assert " ".join(lines[2].split()) == "none chat greedy 1 20 1.00x - - - -"
    assert lines[4] == f"pocket with pocket-draft on {CHAT.machine}"
    assert " ".join(lines[5].split()).startswith("drafter task temperature replies tokens pace")
    assert " ".join(lines[6].split()) == "chain chat greedy 2 88 2.00x 75% 60% - -"
    assert " ".join(lines[7].split()) == "lookup edit greedy 1 67 3.50x 100% 90% 50% 0%"
    assert len({len(line) for line in (lines[1], lines[2], lines[5], lines[6], lines[7])}) == 1


def test_one_model_alone_by_its_name_or_its_folder(measured, printed):
    out = printed("--model", "other")
    assert "a phone" in out
    assert "pocket" not in out
    assert printed("--model", "/models/other") == out
    assert printed("--model", "nobody") == (
        "Nothing has been measured of nobody yet; there are measurements of other, pocket.\n"
    )


def test_reset_of_one_model_or_all_keeps_conversations(settings, measured, printed):
    assert printed("--reset", "--model", "pocket") == (
        "Forgot 3 measured replies of pocket, with 3 drafter runs. "
        "Conversations are as they were.\n"
    )
    assert printed("--reset") == (
        "Forgot 1 measured reply, with 1 drafter run. Conversations are as they were.\n"
    )
    assert "Nothing has been measured yet" in printed()
    history = History.open(settings.database)
    assert [one.content for one in history.messages(measured)] == ["still here?"]
    history.close()


def test_a_file_that_could_not_be_used_is_reported(settings, slipstream):
    settings.database.write_text("no database at all, but a text of some length\n" * 50)
    code, _, err = slipstream("history")
    assert code == 0
    assert "The history could not be used" in err
