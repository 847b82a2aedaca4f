"""Conversations belong to the key that made them: two keys do not see each other's."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.errors import UnknownConversation
from app.history import transfer
from app.history.records import Preset
from app.history.search import NEWEST_MATCHES
from app.history.store import History
from engine.request import FinishReason

ANNA, BEN = "anna", "ben"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    opened = History.open(tmp_path / "history.db")
    yield opened
    opened.close()


def talk(history: History, words: str) -> str:
    made = history.create_conversation(words).id
    asked = history.add_message(made, None, "user", words)
    history.add_message(made, asked.id, "assistant", f"{words}!", FinishReason.STOP)
    return made


def titles(history: History, words: str = "") -> list[str]:
    return sorted(one.title for one in history.conversations(words=words))


def test_each_owner_lists_and_finds_its_own_and_this_machine_all(history: History) -> None:
    talk(history, "zebras here")
    talk(history.of(ANNA), "zebras of anna")
    talk(history.of(BEN), "zebras of ben")
    for words in ("", "zebra", "zebras"):
        assert titles(history.of(ANNA), words) == ["zebras of anna"]
        assert titles(history.of(BEN), words) == ["zebras of ben"]
        assert len(titles(history, words)) == 3
    assert titles(history.of("carla")) == []


def test_law_nothing_of_another_owner_can_be_read_or_changed(history: History) -> None:
    hers = talk(history.of(ANNA), "a secret")
    before = transfer.to_json(history, hers)
    question, answer = history.tree(hers)
    ben = history.of(BEN)
    for deed in (
        lambda: ben.conversation(hers),
        lambda: ben.rename(hers, "his"),
        lambda: ben.pin(hers, pinned=True),
        lambda: ben.instruct(hers, "Tell all."),
        lambda: ben.delete(hers),
        lambda: ben.add_message(hers, question.id, "assistant", "mine"),
        lambda: ben.rewrite(answer.id, "mine"),
        lambda: ben.messages(hers),
        lambda: ben.messages(hers, answer.id),
        lambda: ben.tree(hers),
        lambda: ben.siblings(hers),
        lambda: ben.show(hers, answer.id),
        lambda: ben.facts(hers),
        lambda: transfer.to_json(ben, hers),
        lambda: transfer.to_markdown(ben, hers),
    ):
        with pytest.raises(UnknownConversation):
            deed()
    assert transfer.to_json(history, hers) == before == transfer.to_json(history.of(ANNA), hers)


def test_what_is_imported_belongs_to_who_imports_it(history: History) -> None:
    file = transfer.to_json(history, talk(history, "a tale"))
    made = transfer.take_in(history.of(ANNA), "tale.json", file.encode())
    assert history.of(ANNA).conversation(made.id).title == "a tale"
    with pytest.raises(UnknownConversation):
        history.of(BEN).conversation(made.id)


def test_presets_are_each_owners_own(history: History) -> None:
    history.presets.put(Preset("brief", "Be brief.", {}))
    history.of(ANNA).presets.put(Preset("brief", "Be very brief.", {}))
    assert [one.system for one in history.presets.all()] == ["Be brief."]
    assert [one.system for one in history.of(ANNA).presets.all()] == ["Be very brief."]
    assert history.of(BEN).presets.all() == []
    with pytest.raises(UnknownConversation):
        history.of(BEN).presets.delete("brief")
    history.of(ANNA).presets.delete("brief")
    assert len(history.presets.all()) == 1


def test_many_newer_matches_of_another_owner_hide_nothing(history: History) -> None:
    talk(history.of(ANNA), "a harbour of anna")
    tail = {"role": "user", "content": "harbour"}
    rows = [
        {"id": str(at), "parent": str(at - 1) if at else None, **tail}
        for at in range(NEWEST_MATCHES + 1)
    ]
    kept = {"format": transfer.FORMAT, "title": "many", "system": "", "messages": rows}
    transfer.take_in(history.of(BEN), "many.json", json.dumps(kept).encode())
    assert titles(history.of(ANNA), "harbour") == ["a harbour of anna"]
    assert titles(history.of(BEN), "harbour") == ["many"]
