"""Answers of the target are made once, and an interrupted run resumes."""

import pytest
from torch import Generator

from engine.decoder.decoder import Architecture
from engine.models.own.target import load_target
from engine.request import SamplingParams
from engine.speculation.tree import chain
from engine.training.chores import is_held_out
from engine.training.corpus import Corpus, Mixture
from engine.training.network import TrainableDecoder
from engine.training.own_answers import (
    BATCH,
    Answer,
    Question,
    own_answers,
    plain_answers,
    read_answers,
)
from engine.training.pocket import ROPE_THETA, export
from engine.training.questions import Questions
from engine.training.tokenizer import END, token_id, train_tokenizer

ARCH = Architecture(32, 2, 4, 2, 8, 48, 400, 128, 1e-5)
GREEDY = SamplingParams()


@pytest.fixture(scope="module")
def tokenizer(problems):
    return train_tokenizer([p.question + p.answer for p in problems] * 3 + ["def f(x):"], 400)


@pytest.fixture(scope="module")
def target(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    export(TrainableDecoder(ARCH, ROPE_THETA, Generator().manual_seed(1)), tokenizer, folder)
    return load_target(folder, "float32", "cpu")


def greedy(target, prompt, count):
    """Token by token, each after all tokens before."""
    ids = list(prompt)
    for _ in range(count):
        target.crop(0, 0)
        ids.append(int(target.score([0], [chain(ids)])[0].logits[-1].argmax()))
    return tuple(ids[len(prompt) :])


def test_answers_of_a_batch_are_those_of_each_alone(target):
    prompts = [(7, 8, 9), (11,), (20, 21, 22, 23)]
    found = plain_answers(target, [Question(p, GREEDY) for p in prompts], 6, frozenset())
    assert found == [greedy(target, p, 6) for p in prompts]


def test_an_answer_ends_with_its_end_token_unless_it_was_cut(target, tmp_path):
    prompt = (7, 8, 9)
    usual = greedy(target, prompt, 6)
    end = usual[3]
    until = usual.index(end)
    (whole,) = list(own_answers(target, [prompt], 6, end, tmp_path / "ended"))[-1]
    assert whole == Answer(prompt, usual[: until + 1])
    (cut,) = list(own_answers(target, [prompt], 2, 399, tmp_path / "cut"))[-1]
    assert cut == Answer(prompt, usual[:2])


def test_an_interrupted_run_keeps_what_was_said(target, tmp_path):
    prompts = [(7 + n,) for n in range(BATCH + 3)]
    saved = tmp_path / "answers.jsonl"
    whole = list(own_answers(target, prompts, 3, 399, tmp_path / "whole"))[-1]
    first = next(own_answers(target, prompts, 3, 399, saved))
    assert len(first) == BATCH
    with saved.open("a") as file:
        file.write("[[9], [1")  # the power went here
    assert read_answers(saved) == first
    again = list(own_answers(target, prompts, 3, 399, saved))
    assert [len(done) for done in again[:-1]] == [BATCH + 3]
    assert again[-1] == whole == read_answers(saved)


def test_a_row_of_own_answers_weighs_them_alone(tokenizer, problems, passages):
    own = [Answer((0, 1, 50, 4, 2), (60, 61, 4))]
    corpus = Corpus(tokenizer, problems, passages, seed=1, own=own)
    rows = corpus.rows(Mixture(0, 0, 0, 0, 0, own=1.0), 2, 16)
    assert rows.tokens[0].tolist() == [0, 1, 50, 4, 2, 60, 61, 4] * 2
    assert rows.weights[0].tolist() == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0] * 2


def test_a_prompt_ends_where_the_answer_begins(tokenizer, problems, passages):
    corpus = Corpus(tokenizer, problems, passages, seed=1)
    whole = corpus.conversation([("What is 1 + 1?", "2")])
    prompt = corpus.prompt("What is 1 + 1?")
    assert tuple(whole.ids[: len(prompt)]) == prompt
    assert whole.ids[len(prompt) :] == [*tokenizer.encode("2").ids, token_id(tokenizer, END)]


def test_questions_follow_from_the_seed_hold_every_problem_once_and_nothing_held_out(
    problems, passages
):
    drawn, again = ([questions.draw() for _ in range(400)]
                    for questions in (Questions(problems, passages, seed=1) for _ in range(2)))  # fmt: skip
    assert drawn == again
    known = {p.question for p in problems}
    assert sorted(q for q in drawn if q in known) == sorted(p.question for p in problems)
    assert all(drawn)
    assert len({q[:12] for q in drawn}) > 50
    chores = Questions([], passages, seed=1)
    assert not any(is_held_out(chores.chore()) for _ in range(200))
