"""Streaming text: valid at every cut, whole when joined, and stop texts never leak."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from app.text.chat_text import ChatText
from app.text.detokenizer import StopFilter, byte_alphabet
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
        ids = TOKENIZER.encode(text, add_special_tokens=False).ids
        ids = [token for token in ids if token > 5]
        out = pieces(ids, chance)
        assert "".join(out).count("\ufffd") == TEXT.decode(ids).count("\ufffd")
        for piece in out:
            piece.encode()  # raises on half a character

    def test_an_emoji_waits_for_its_last_byte(self) -> None:
        ids = TOKENIZER.encode("👩‍🚀", add_special_tokens=False).ids
        stream = TEXT.detokenizer()
        out = [fed(stream, [token]) for token in ids]
        assert "".join(out) == "👩‍🚀"
        assert "" in out

    def test_an_incomplete_character_shows_at_the_end_only(self) -> None:
        ids = TOKENIZER.encode("🚀", add_special_tokens=False).ids
        stream = TEXT.detokenizer()
        assert fed(stream, ids[:1]) == ""
        assert rest(stream) == "\ufffd"

    def test_the_alphabet_is_a_bijection(self) -> None:
        assert sorted(byte_alphabet().values()) == list(range(256))


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
    def test_is_its_definition_whatever_the_portions(
        self, text: str, stops: list[str], data: st.DataObject
    ) -> None:
        gate, out, rest = StopFilter(stops), "", text
        while rest:
            size = data.draw(st.integers(1, 3))
            out += gate.feed(rest[:size])
            rest = rest[size:]
        assert (out + gate.end(), gate.hit) == cut_at_first(text, stops)

    @given(st.text("ab", max_size=20), st.lists(few, min_size=1, max_size=3))
    def test_what_is_shown_is_never_taken_back(self, text: str, stops: list[str]) -> None:
        gate, shown = StopFilter(stops), ""
        expected, _ = cut_at_first(text, stops)
        for character in text:
            shown += gate.feed(character)
            assert expected.startswith(shown)

    def test_text_that_cannot_become_a_stop_is_shown_at_once(self) -> None:
        gate = StopFilter(["###"])
        assert gate.feed("hello #") == "hello "
        assert gate.feed("1") == "#1"

    def test_nothing_follows_a_hit(self) -> None:
        gate = StopFilter(["stop"])
        assert gate.feed("a stop b") == "a "
        assert gate.feed("more") == ""
        assert gate.end() == ""

    @pytest.mark.parametrize("stops", [[], ["x"]])
    def test_without_a_hit_all_text_passes(self, stops: list[str]) -> None:
        gate = StopFilter(stops)
        assert gate.feed("ab") + gate.feed("") + gate.end() == "ab"
