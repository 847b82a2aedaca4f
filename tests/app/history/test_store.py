"""Laws of the conversations first, then their stories."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.errors import UnknownConversation
from app.history.records import AnswerFacts, Preset
from app.history.store import History
from engine.request import FinishReason
from tests.app.history.replies import CHAT, stats

# --- laws ---------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),  # which earlier message is the parent
        st.sampled_from(["system", "user", "assistant"]),
        st.text(),
        st.sampled_from([None, *FinishReason]),
    ),
    max_size=12,
)


@settings(max_examples=20)  # every example makes a database on disk
@given(steps)
def test_a_tree_of_messages_comes_back_as_written(written):
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "history.db"
        history = History.open(database)
        chat = history.create_conversation("a chat").id
        made = []
        for place, role, text, reason in written:
            parents = [None, *made]
            parent = parents[int(place * len(parents))]
            made.append(history.add_message(chat, parent and parent.id, role, text, reason))
        history.close()

        again = History.open(database)
        path = again.messages(chat)
        by_id = {message.id: message for message in made}
        expected = [made[-1]] if made else []
        while expected and expected[0].parent is not None:
            expected.insert(0, by_id[expected[0].parent])
        assert path == expected
        for parent, children in again.siblings(chat).items():
            assert children == [other.id for other in made if other.parent == parent]
        again.close()


@settings(max_examples=20)
@given(st.text(alphabet=st.characters(codec=None)))
@example("half \ud800 a character")
def test_any_text_can_be_stored(text):
    with tempfile.TemporaryDirectory() as folder:
        history = History.open(Path(folder) / "history.db")
        made = history.create_conversation(text)
        assert history.conversations() == [made]
        stored = text.encode("utf-8", "replace").decode()
        assert made.title == stored
        history.instruct(made.id, text)
        assert history.conversation(made.id).system == stored
        first = history.add_message(made.id, None, "user", text)
        history.rewrite(history.add_message(made.id, first.id, "assistant", "").id, text)
        assert [message.content for message in history.messages(made.id)] == [stored, stored]
        history.close()


# --- stories ------------------------------------------------------------------------------------


def test_a_new_message_brings_its_conversation_to_the_top(history):
    old = history.create_conversation("old")
    new = history.create_conversation("new")
    assert history.conversations() == [new, old]
    history.add_message(old.id, None, "user", "still there?")
    assert history.conversations() == [old, new]
    assert history.conversations(limit=1) == [old]


def test_rename_and_delete(history):
    kept = history.create_conversation("kept")
    gone = history.create_conversation("gone")
    history.rename(kept.id, "renamed")
    history.delete(gone.id)
    assert [(c.id, c.title) for c in history.conversations()] == [(kept.id, "renamed")]
    assert history.messages(gone.id) == []


def test_a_conversation_of_thousands_of_messages_opens_and_is_deleted_in_one_go(history, file):
    chat = history.create_conversation("long").id
    parent = None
    with file.writing() as database:
        for number in range(3000):
            key = f"m{number}"
            database.execute(
                "INSERT INTO messages(id, conversation, parent, role, content)"
                " VALUES (?, ?, ?, 'user', 'x')",
                (key, chat, parent),
            )
            parent = key
    assert len(history.messages(chat)) == 3000
    history.delete(chat)
    assert history.messages(chat) == []


def test_pinned_ones_stay_at_the_top(history):
    old = history.create_conversation("old")
    history.create_conversation("new")
    history.pin(old.id, pinned=True)
    assert [(one.title, one.pinned) for one in history.conversations()] == [
        ("old", True),
        ("new", False),
    ]
    history.pin(old.id, pinned=False)
    assert [one.title for one in history.conversations()] == ["new", "old"]


def test_the_branch_that_is_shown_stays_open(history):
    chat = history.create_conversation("branches").id
    asked = history.add_message(chat, None, "user", "2 + 2?")
    first = history.add_message(chat, asked.id, "assistant", "5")
    more = history.add_message(chat, first.id, "user", "really?")
    second = history.add_message(chat, asked.id, "assistant", "4")
    assert history.siblings(chat) == {asked.id: [first.id, second.id]}
    history.show(chat, first.id)
    assert history.messages(chat) == [asked, first, more]
    assert history.messages(chat, second.id) == [asked, second]
    history.add_message(chat, second.id, "user", "thanks")
    assert [one.content for one in history.messages(chat)] == ["2 + 2?", "4", "thanks"]


def test_an_answer_grows_and_keeps_its_facts(history):
    chat = history.create_conversation("growing").id
    answer = history.add_message(chat, None, "assistant", "one")
    facts = AnswerFacts("pocket", "auto", "lookup", "why", 1, 2, 3, 4, 5, 0.5, spans=((0, 3),))
    history.rewrite(answer.id, "one two", FinishReason.STOP, facts)
    assert history.messages(chat)[0].content == "one two"
    assert history.facts(chat) == {answer.id: facts}
    longer = replace(facts, spans=((0, 3), (4, 7)))
    history.rewrite(answer.id, "one two three", FinishReason.STOP, longer)
    assert history.facts(chat) == {answer.id: longer}
    assert history.conversations(words="two")
    history.delete(chat)
    assert history.facts(chat) == {}


def test_presets_are_kept_by_name(history):
    history.presets.put(Preset("brief", "Be brief.", {"temperature": 0.5}))
    history.presets.put(Preset("brief", "Be very brief.", {"temperature": 0.0}))
    assert history.presets.all() == [Preset("brief", "Be very brief.", {"temperature": 0.0})]
    history.presets.delete("brief")
    assert history.presets.all() == []


def test_unknown_ids_are_named(history):
    for call, rest in (
        (history.add_message, (None, "user", "hello")),
        (history.rename, ("title",)),
        (history.delete, ()),
    ):
        with pytest.raises(UnknownConversation, match="nowhere"):
            call("nowhere", *rest)
    with pytest.raises(UnknownConversation, match="no-such"):
        history.measurements.record(CHAT, stats(), message="no-such")


def test_a_message_of_another_conversation_is_no_parent_and_cannot_be_shown(history):
    one, two = (history.create_conversation(title).id for title in ("one", "two"))
    message = history.add_message(one, None, "user", "here")
    with pytest.raises(UnknownConversation, match=message.id):
        history.add_message(two, message.id, "assistant", "there")
    with pytest.raises(UnknownConversation, match=message.id):
        history.show(two, message.id)
    assert history.messages(two) == []


def test_order_does_not_follow_the_clock(history, monkeypatch):
    monkeypatch.setattr("app.history.store.utc_now", lambda: "1970-01-01T00:00:00+00:00")
    past = history.create_conversation("first")
    monkeypatch.setattr("app.history.store.utc_now", lambda: "1960-01-01T00:00:00+00:00")
    later = history.create_conversation("second")
    assert history.conversations() == [later, past]
