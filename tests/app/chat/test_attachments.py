"""Text files in front of a message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.attachments import MAX_BYTES, Attachment, compose, read_attachment, split
from app.errors import AttachmentRefused

names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
files = st.lists(st.builds(Attachment, names, st.text()), max_size=3)


@given(st.text().filter(lambda text: not text.startswith("[File")), files)
def test_law_a_message_comes_apart_again(text, attached):
    assert split(compose(text, attached)) == (tuple(attached), text)


def test_a_message_that_looks_like_one_with_a_file_stays_a_message():
    text = "[File a.txt, 99 characters]\nshort"
    assert split(text) == ((), text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_texts_are_read(encoding):
    assert read_attachment("a\nb.txt", "naïve\r\n☃".encode(encoding)).text == "naïve\n☃"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x89PNG\r\n\xff", "no text in UTF-8 or UTF-16"),
        (b"a\0b", "no text file"),
        (b" \n", "is empty"),
        (b"x" * (MAX_BYTES + 1), "at most 2 MiB"),
    ],
)
def test_what_is_no_text_is_refused(data, told):
    with pytest.raises(AttachmentRefused, match=told):
        read_attachment("a.bin", data)
