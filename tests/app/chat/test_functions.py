"""The chat's pure functions: attached files, what is still seen of a long talk, how far a prediction held."""

import os
import time
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.attachments import MAX_BYTES, Attachment, compose, read_attachment, read_file, split
from app.chat.engine_answer import compared
from app.chat.loaded_model import ANSWER, AROUND, first_seen
from app.errors import AttachmentRefused
from app.request import Message, PredictionUsage, ReplyOptions
from app.text.decoding import decoded
from engine.request import Penalties, SamplingParams

# --- attachments ----------------------------------------------------------------------------------

names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
files = st.lists(st.builds(Attachment, names, st.text()), max_size=3)


@given(st.text().filter(lambda text: not text.startswith("[File")), files)
def test_law_a_message_comes_apart_again(text, attached):
    assert split(compose(text, attached)) == (tuple(attached), text)


def test_a_message_that_looks_like_one_with_a_file_stays_a_message():
    text = "[File a.txt, 99 characters]\nshort"
    assert split(text) == ((), text)


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"],
)
def test_texts_are_read(encoding):
    read = read_attachment("a\nb.txt", "naïve\r\na\rb ☃".encode(encoding))
    assert read.text == "naïve\na\nb ☃"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "12 € for a naïve café, “quoted” Müller"),
        ("cp1252", "price £5"),
        ("latin-1", "perché è così però la città è più bella"),
        ("cp1250", "Cześć, jak się masz? Wszystko w porządku."),
        ("iso8859-2", "Cześć, jak się masz? Zażółć gęślą jaźń."),
        ("cp1254", "Türkçe için İstanbul çok güzel, değil mi şimdi?"),
        ("shift_jis", "これは日本語のテキストです。"),
        ("cp932", "これはテスト①②です。"),
        ("shift_jis", "テスト"),
        ("euc_jp", "これは日本語のテキストです。"),
        ("iso2022_jp", "これは日本語のテキストです。"),
        ("gb18030", "北京是中国的首都。这是一个普通的文本文件。"),
        ("big5", "北京是中國的首都。這是一個普通的文字檔案。"),
        ("euc_kr", "서울은 대한민국의 수도이다."),
        ("cp1251", "Привет, как дела? Это обычный текст."),
        ("koi8_r", "Привет, как дела? Это обычный текст."),
        ("cp1253", "Καλημέρα κόσμε, τι κάνεις;"),
        ("tis_620", "กรุงเทพเป็นเมืองหลวงของประเทศไทย"),
        ("cp850", "Über die Straße läuft ein großer Hund, der am Freitag früh sehr müde war."),
        ("cp866", "Вчера я ходил в магазин, чтобы купить свежий хлеб и молоко."),
        ("iso8859-5", "Вчера я ходил в магазин, чтобы купить свежий хлеб и молоко."),
        ("cp1252", "L'été dernier, nous avons visité un château près de la forêt."),
        ("cp1252", "A ação não começou; amanhã à tarde haverá uma reunião com os irmãos."),
    ],
)
def test_texts_in_old_encodings_are_read(encoding, text):
    assert read_attachment("a.txt", text.encode(encoding)).text == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_law_utf8_is_never_taken_for_another_encoding(text):
    assert decoded(text.encode()) == text.removeprefix("\ufeff")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is a picture"),
        (b"%PDF-1.7\n\x01\x02\xe2\xe3\x03\x90\x81", "is a PDF, and only text"),
        (b"PK\x03\x04" + b"x" * MAX_BYTES, "is an office document or an archive"),
        (bytes(range(128, 256)), "no text in an encoding"),
        (b"a\0b", "no text in an encoding"),
        (b" \n", "is empty"),
        (b"x" * (MAX_BYTES + 1), "at most 2 MiB"),
    ],
)
def test_what_is_no_text_is_refused(data, sentence):
    with pytest.raises(AttachmentRefused, match=sentence):
        read_attachment("a.bin", data)


@pytest.mark.parametrize("place", ["/dev/zero", "pipe", "."])
def test_no_file_is_waited_for_or_read_for_ever(tmp_path, place):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AttachmentRefused, match="is no file; name a file with text"):
        read_file(tmp_path / place)


def test_of_a_large_file_no_more_is_read_than_is_taken(tmp_path):
    with (tmp_path / "large").open("wb") as out:
        out.truncate(1 << 40)
    with pytest.raises(AttachmentRefused, match="large is too large"):
        read_file(tmp_path / "large")


# --- truncation -----------------------------------------------------------------------------------

CONTEXT = 400

sizes = st.lists(st.integers(1, 150), min_size=1, max_size=60)


def conversation(count: int, *, system: bool = False) -> list[Message]:
    """Questions and answers by turns, a question last; perhaps after a system prompt."""
    roles = ["user" if (count - n) % 2 else "assistant" for n in range(count)]
    return [*[Message("system", "x")] * system, *(Message(role, "x") for role in roles)]


def taken(found: list[int]) -> int:
    return sum(size + AROUND for size in found)


@given(sizes, st.booleans())
def test_what_is_seen_leaves_room_for_an_answer_or_is_one_question(found, system):
    messages, own = conversation(len(found), system=system), [10] * system + found
    first = first_seen(messages, own, CONTEXT)
    seen = own[:system] * (first > 0) + own[first:]
    assert taken(seen) <= (1 - ANSWER) * CONTEXT or first == len(messages) - 1
    if first:
        assert messages[first].role == "user"


@given(sizes)
def test_nothing_is_left_out_that_has_room(found):
    messages = conversation(len(found))
    if taken(found) <= (1 - ANSWER) * CONTEXT:
        assert first_seen(messages, found, CONTEXT) == 0
    elif len([one for one in messages if one.role == "user"]) > 1:
        assert first_seen(messages, found, CONTEXT) > 0


@given(st.lists(st.integers(1, 40), min_size=80, max_size=120))
def test_truncation_goes_in_steps(found):
    """Of one message for each new one, every prompt would begin differently."""
    firsts = []
    for count in range(1, len(found) + 1, 2):
        messages = conversation(count)
        firsts.append(first_seen(messages, found[:count], CONTEXT))
    assert firsts == sorted(firsts)
    room = (1 - ANSWER) * CONTEXT
    assert len(set(firsts)) <= 2 + taken(found) / (room / 2)


def test_a_system_prompt_that_is_too_long_is_for_the_engine_to_refuse():
    assert first_seen(conversation(3, system=True), [900, 5, 5, 5], CONTEXT) == 0


# --- predictions ----------------------------------------------------------------------------------

WORDS = st.lists(st.integers(0, 4), max_size=12)


@given(WORDS, WORDS)
def test_a_prediction_holds_as_far_as_the_longest_common_subsequence(prediction, answer):
    @cache
    def longest(n, m):
        if n == 0 or m == 0:
            return 0
        if prediction[n - 1] == answer[m - 1]:
            return longest(n - 1, m - 1) + 1
        return max(longest(n - 1, m), longest(n, m - 1))

    common = longest(len(prediction), len(answer))
    assert compared(prediction, answer) == PredictionUsage(common, len(prediction) - common)


def test_long_predictions_of_few_words_take_no_time():
    words = [n * n % 7 for n in range(8000)]
    started = time.thread_time()
    assert compared(words, words[::-1]).accepted > 1000
    assert time.thread_time() - started < 2


# --- options --------------------------------------------------------------------------------------


def test_options_of_a_reply_are_those_of_its_sampling():
    options = ReplyOptions(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, seed=7)
    assert options.sampling == SamplingParams(0.5, 3, 0.9, 0.1, 7)
    assert ReplyOptions(repeat=1.2).sampling.penalties == Penalties(repeat=1.2)
