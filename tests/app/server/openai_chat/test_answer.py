"""Offsets of tokens are those of their characters, whatever parts a text comes in."""

from codecs import decode
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.openai_chat.answer import Offsets

TEXTS = st.text("aé日😀\N{REPLACEMENT CHARACTER}", max_size=8)


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(whole) + 1) for place in places}), len(whole)]
    return [whole[a:b] for a, b in pairwise(edges) if a < b]


@given(TEXTS, st.lists(st.integers(0, 40)), st.integers(0, 9))
def test_law_a_token_begins_in_the_character_of_its_first_byte(
    text: str, places: list[int], start: int
) -> None:
    of_bytes = [at for at, character in enumerate(text) for _ in character.encode()]
    offsets, done = Offsets(start), 0
    for token in cut(text.encode(), places):
        assert offsets.next(token) == start + of_bytes[done]
        done += len(token)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([b"a", b"\xf0\x9f", b"\x98\x80", b"b"], [0, 1, 1, 2]),  # it was counted twice
        ([b"\xc3", b"word", b"\xc3", b"\xc3", b"\xa9", b""], [0, 1, 5, 6, 6, 7]),  # broken off
        ([b"\xff", b"\xe0", b"\x80", b"a"], [0, 1, 2, 3]),
    ],
)
def test_what_is_no_character_is_one_as_it_is_shown(
    tokens: list[bytes], expected: list[int]
) -> None:
    offsets = Offsets(0)
    assert [offsets.next(token) for token in tokens] == expected
    assert expected[-1] < len(decode(b"".join(tokens), errors="replace")) + 1
