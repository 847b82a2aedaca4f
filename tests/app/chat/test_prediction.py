"""How much of a prediction came true: the longest common subsequence, counted."""

import time
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from app.chat.reply import compared
from app.request import PredictionUsage

WORDS = st.lists(st.integers(0, 4), max_size=12)


@given(WORDS, WORDS)
def test_it_is_the_longest_common_subsequence(prediction, answer):
    @cache
    def longest(n, m):
        if n == 0 or m == 0:
            return 0
        if prediction[n - 1] == answer[m - 1]:
            return longest(n - 1, m - 1) + 1
        return max(longest(n - 1, m), longest(n, m - 1))

    common = longest(len(prediction), len(answer))
    assert compared(prediction, answer) == PredictionUsage(common, len(prediction) - common)


def test_long_texts_of_few_words_take_no_time():
    words = [n * n % 7 for n in range(8000)]
    started = time.perf_counter()
    assert compared(words, words[::-1]).accepted > 1000
    assert time.perf_counter() - started < 2
