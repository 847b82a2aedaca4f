"""The bundled models keep the laws on real text and are as good as their cards say."""

import json

import pytest
import yaml
from tokenizers import Tokenizer

from engine.build import build
from engine.drafters import DRAFTERS
from engine.request import GenerationRequest, ModelSpec
from tests.bundled import BUNDLED, POCKET, POCKET_DRAFT, ROOT
from tests.engine.tiny import run_all

DATA = ROOT / "tests" / "data"
SPECULATIVE = tuple(name for name in DRAFTERS if name != "none")
TOGETHER = 8  # answers in one pass, which takes half of the time


@pytest.fixture(scope="module")
def engine():
    entries = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]
    exit_layer = next(e["exit_layer"] for e in entries if e["name"] == "pocket")
    shape = {"exit_layer": exit_layer, "slots": TOGETHER}
    return build(ModelSpec("pocket", str(POCKET), str(POCKET_DRAFT), **shape))


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(POCKET / "tokenizer.json"))


def rows(name, count):
    lines = (DATA / name).read_text().splitlines()
    return [json.loads(line) for line in lines[:: len(lines) // count][:count]]


def ask(engine, tokenizer, asked, drafter):
    """[(ids, Stats)] of what is asked."""
    requests = []
    for row in asked:
        prompt = f"<|bos|><|user|>{row['turns'][0]}<|end|><|assistant|>"
        request = GenerationRequest(
            tuple(tokenizer.encode(prompt).ids), 200, drafter=drafter, length="fixed",
            stop_tokens=frozenset({tokenizer.token_to_id("<|end|>")}),
        )  # fmt: skip
        requests.append(request)
    return [(ids, done.stats) for ids, done in run_all(engine, requests)]


def ids_of(answers):
    return [ids for ids, _ in answers]


@pytest.fixture(scope="module")
def plain_answers(engine, tokenizer):
    """The answers of plain decoding, each alone, computed once for all drafters."""
    return {
        name: [ids_of(ask(engine, tokenizer, [row], "none"))[0] for row in rows(name, 4)]
        for name in ("word_problems.jsonl", "edit_chores.jsonl")
    }


@pytest.mark.parametrize("name", ["word_problems.jsonl", "edit_chores.jsonl"])
@pytest.mark.parametrize("drafter", SPECULATIVE)
def test_drafted_answers_are_the_plain_answers(engine, tokenizer, plain_answers, drafter, name):
    assert ids_of(ask(engine, tokenizer, rows(name, 4), drafter)) == plain_answers[name]


@pytest.mark.parametrize(
    ("drafter", "name", "least"),
    [
        ("lookup", "edit_chores.jsonl", 3.0),
        ("specexec", "word_problems.jsonl", 2.5),
        ("chain", "word_problems.jsonl", 2.0),
        ("early_exit", "word_problems.jsonl", 1.8),
    ],
)
def test_tokens_per_pass(engine, tokenizer, drafter, name, least):
    stats = [stats for _, stats in ask(engine, tokenizer, rows(name, 16), drafter)]
    assert sum(s.emitted for s in stats) / sum(s.passes for s in stats) >= least


def test_most_chores_come_out_right(engine, tokenizer):
    """A sample of every kind; the card states the share of 360."""
    chores = rows("chores.jsonl", 45)
    answers = ids_of(ask(engine, tokenizer, chores, "lookup"))
    right = sum(
        tokenizer.decode(ids) == row["answer"] for ids, row in zip(answers, chores, strict=True)
    )
    assert right / len(chores) >= 0.75


@pytest.mark.parametrize(
    ("said", "expected"),
    [("Hello!", "Hello"), ("Who are you?", "Pocket"), ("thank you", "welcome"), ("Good bye", "Goodbye")],
)  # fmt: skip
def test_it_greets_a_person_sensibly(engine, tokenizer, said, expected):
    [(ids, _)] = ask(engine, tokenizer, [{"turns": [said]}], "auto")
    assert expected in tokenizer.decode(ids)


def test_each_model_has_a_card_with_its_licence():
    for folder in (POCKET, POCKET_DRAFT):
        assert "Apache-2.0" in (folder / "README.md").read_text()
    assert sum(f.stat().st_size for f in BUNDLED.rglob("*") if f.is_file()) < 40e6
