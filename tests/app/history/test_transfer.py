"""Conversations as files: laws of the round trip, then what is refused."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import ConversationFileError
from app.history import transfer
from app.history.store import History

BYTE_ORDER = b"\xef\xbb\xbf"  # some editors put this mark before every text
texts = st.one_of(
    st.text(st.characters(codec="utf-8")),
    st.lists(
        st.sampled_from(["", "<!-- user -->", "\\<!-- user -->", "## You", "a", "\\\\", "\r"])
    ).map("\n".join),
)
paths = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), texts), min_size=1, max_size=5)


@settings(max_examples=25)  # each of them four round trips through a database
@given(paths, texts)
def test_law_both_kinds_bring_every_message_back(path, system):
    with tempfile.TemporaryDirectory() as folder:
        history = History.open(Path(folder) / "history.db")
        chat = history.create_conversation("A title", system).id
        parent = None
        for role, text in path:
            parent = history.add_message(chat, parent, role, text).id
        for write in (transfer.to_json, transfer.to_markdown):
            for mark in (b"", BYTE_ORDER):
                made = transfer.take_in(history, "file", mark + write(history, chat).encode())
                kept = [(one.role, one.content) for one in history.messages(made.id)]
                assert (made.title, kept) == ("A title", path)
                assert history.conversation(made.id).system == system
        history.close()


def test_a_file_whose_line_ends_an_editor_has_changed_is_taken(history):
    chat = history.create_conversation("sums").id
    history.add_message(chat, None, "user", "2 + 2\n\n= ?")
    changed = transfer.to_markdown(history, chat).replace("\n", "\r\n").encode("utf-16")
    made = transfer.take_in(history, "sums.md", changed)
    assert [one.content for one in history.messages(made.id)] == ["2 + 2\n\n= ?"]


def test_json_keeps_every_version(history):
    chat = history.create_conversation("sums").id
    asked = history.add_message(chat, None, "user", "2 + 2?")
    for text in ("5", "4"):
        history.add_message(chat, asked.id, "assistant", text)
    made = transfer.take_in(history, "sums.json", transfer.to_json(history, chat).encode())
    assert [one.content for one in history.tree(made.id)] == ["2 + 2?", "5", "4"]
    assert {one.id for one in history.tree(made.id)}.isdisjoint(
        one.id for one in history.tree(chat)
    )


def kept(*messages: dict) -> bytes:
    return json.dumps({"format": transfer.FORMAT, "title": "t", "messages": messages}).encode()


USER = {"id": "a", "role": "user", "content": "hello"}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"just a text", "no line like <!-- user -->"),
        (b"\xff\xfe\x00", "it is no text"),
        (b"{}", "format"),
        (b"{", "not a conversation"),
        (kept(USER | {"role": "root"}), "messages.0.role"),
        (kept(USER | {"parent": "z"}), "follows 'z'"),
        (kept(USER, USER), "occurs twice"),
        (b"x" * (transfer.MAX_BYTES + 1), "at most 5 MiB"),
    ],
)
def test_what_is_no_conversation_is_refused_and_nothing_is_kept(history, data, sentence):
    with pytest.raises(ConversationFileError, match=sentence):
        transfer.take_in(history, "file", data)
    assert history.conversations() == []
