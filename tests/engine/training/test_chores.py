"""Chores: every answer is right by a check that does not share code with the generator."""

import ast
import json
import re
from random import Random

from engine.training.chores import CHORES, FREQUENCY, draw_chore, is_held_out
from engine.training.passages import plain_answer, sentences_of, snippets_of


def drawn(kind, passages, count=60):
    rng = Random(kind)
    return [CHORES[kind](rng, passages) for _ in range(count)]


def test_sums_are_right(passages):
    for chore in drawn("sum", passages):
        left, right = chore.answer.split(" = ")
        a, sign, b = left.split()
        assert {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign] == int(
            right
        )
        assert set(re.findall(r"\d+", chore.prompt)) == {a, b}


def test_sorted_lists_are_sorted_and_complete(passages):
    for chore in drawn("sort", passages):
        given = chore.prompt.split(": ")[1].split(", ")
        answer = chore.answer.split(", ")
        assert sorted(given) == sorted(answer)
        keys = [int(a) for a in answer] if answer[0].isdigit() else answer
        assert keys == sorted(keys, reverse="largest to smallest" in chore.prompt)


def test_extracted_json_holds_only_what_the_text_says(passages):
    for chore in drawn("extract", passages):
        request, text = chore.prompt.split("\n", 1)
        rows = [json.loads(line) for line in chore.answer.splitlines()]
        for row in rows:
            for field, value in row.items():
                assert field in request
                assert str(value) in text


def test_renamed_code_parses_without_the_old_name(passages):
    for chore in drawn("rename", passages):
        old, new = re.search(r"(\w+) to (\w+)", chore.prompt).groups()
        ast.parse(chore.answer)
        assert not re.search(rf"\b{old}\b", chore.answer)
        code = chore.prompt.split("\n", 1)[1]
        assert ast.dump(ast.parse(code)).count(old) > 0
        assert re.sub(rf"\b{new}\b", old, chore.answer) == code


def test_only_the_replaced_words_changed(passages):
    for chore in drawn("replace", passages):
        text = chore.prompt.split("\n", 1)[1]
        was, now = text.split(" "), chore.answer.split(" ")
        assert len(was) == len(now)
        assert was != now


def test_quotes_are_in_the_text_and_hold_the_word(passages):
    for chore in drawn("quote", passages):
        assert chore.answer[1:-1] in chore.prompt
        words = re.findall(r"[A-Za-z]+", chore.prompt.split("\n")[0])
        assert any(word in chore.answer for word in words if len(word) > 3)


def test_conversions_are_whole_multiples(passages):
    factors = {("kilometers", "meters"): 1000, ("hours", "minutes"): 60, ("weeks", "days"): 7}
    seen = set()
    for chore in drawn("convert", passages, 300):
        n, large, result, small = re.fullmatch(
            r"(\d+) (\w+) are (\d+) (\w+)\.", chore.answer
        ).groups()
        if (large, small) in factors:
            seen.add((large, small))
            assert int(result) == int(n) * factors[large, small]
    assert seen == set(factors)


def test_repeats_and_reformats_keep_every_word(passages):
    for chore in drawn("repeat", passages):
        assert chore.prompt.endswith(chore.answer)
    for chore in drawn("reformat", passages):
        if "date" not in chore.prompt:
            words = set(re.findall(r"[A-Za-z]{3,}", chore.answer))
            assert words <= set(re.findall(r"[A-Za-z]{3,}", chore.prompt))


def test_draws_are_a_function_of_the_seed_and_cover_every_kind(passages):
    def take(seed):
        rng = Random(seed)
        return [draw_chore(rng, passages) for _ in range(300)]

    assert take(1) == take(1)
    assert {c.kind for c in take(1)} == set(CHORES) == set(FREQUENCY)


def test_about_a_tenth_is_held_out(passages):
    rng = Random(2)
    share = sum(is_held_out(draw_chore(rng, passages).prompt) for _ in range(2000)) / 2000
    assert 0.06 < share < 0.14


def test_sentences_keep_decimals_whole_and_snippets_parse(passages):
    assert sentences_of(
        ["It costs $1.50 for each of the many apples. Then they buy four more of them."]
    ) == [
        "It costs $1.50 for each of the many apples.",
        "Then they buy four more of them.",
    ]
    for snippet in passages.snippets:
        ast.parse(snippet)
    assert snippets_of(["def broken(:"]) == []


def test_calculator_marks_and_the_hash_line_become_sentences():
    raw = "She sold 48/2 = <<48/2=24>>24 clips.\n#### 24"
    assert plain_answer(raw) == "She sold 48/2 = 24 clips.\nThe answer is 24."
