"""Streaming text: valid at every cut, whole when joined, and stop texts never leak."""

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from app.text.chat_text import ChatText
from app.text.detokenizer import StopFilter
from tests.app.text.parsing import fed, rest

POCKET = Path(__file__).parents[3] / "engine" / "bundled" / "pocket"
TEXT = ChatText.load(POCKET)
TOKENIZER = Tokenizer.from_file(str(POCKET / "tokenizer.json"))

# Mostly single bytes, so that characters are broken in every way.
tokens = st.lists(st.one_of(st.integers(0, 261), st.integers(0, 4200)))
cuts = st.randoms(use_true_random=False)


def pieces(ids: list[int], chance: random.Random) -> list[str]:
    """The ids fed in random portions, as accepted drafts come."""
    stream, out = TEXT.detokenizer(), []
    while ids:
        size = chance.randint(1, 4)
        out.append(fed(stream, ids[:size]))
        ids = ids[size:]
    return [*out, rest(stream)]


class TestDetokenizer:
    @given(tokens, cuts)
    def test_joined_pieces_are_the_whole(self, ids: list[int], chance: random.Random) -> None:
        assert "".join(pieces(ids, chance)) == TEXT.decode(ids)

    @given(tokens)
    def test_the_whole_is_what_the_tokenizer_decodes(self, ids: list[int]) -> None:
        known = [token for token in ids if token < TOKENIZER.get_vocab_size()]
        assert TEXT.decode(ids) == TOKENIZER.decode(known, skip_special_tokens=True)

    @given(st.text(st.characters(exclude_categories=["Cs"])), cuts)
    def test_no_piece_breaks_a_character(self, text: str, chance: random.Random) -> None:
        whole = TOKENIZER.encode(text, add_special_tokens=False).ids
        ids = [token for token in whole if token > 5]
        out = pieces(ids, chance)
        assert "".join(out).count("\ufffd") == TEXT.decode(ids).count("\ufffd")
        for piece in out:
            piece.encode()  # raises on half a character


def cut_at_first(text: str, stops: list[str]) -> tuple[str, bool]:
    """The definition: walk on until a stop text is complete, leave it and all after it out."""
    for end in range(len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)], True
    return text, False


class TestStopFilter:
    few = st.text("ab", min_size=1, max_size=4)

    @given(st.text("ab", max_size=20), st.lists(few, max_size=3), st.data())
    def test_law_equals_its_definition(
        self, text: str, stops: list[str], data: st.DataObject
    ) -> None:
        gate, out, rest = StopFilter(stops), "", text
        while rest:
            size = data.draw(st.integers(1, 3))
            out += gate.feed(rest[:size])
            rest = rest[size:]
        assert (out + gate.end(), gate.hit) == cut_at_first(text, stops)

    def test_text_that_cannot_become_a_stop_is_shown_at_once(self) -> None:
        gate = StopFilter(["###"])
        assert gate.feed("hello #") == "hello "
        assert gate.feed("1") == "#1"
