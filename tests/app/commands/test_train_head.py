"""The command train-head with the bundled pair: a head that the engine takes, told in one line."""

import json
import shutil
from pathlib import Path

import pytest

from app.models.catalog import resolve
from app.settings import Settings
from engine.draft_length.acceptance_head import load_head

GREETINGS = ("Hello!", "Hi", "Who are you?", "Thank you", "Good bye")
PROMPTS = tuple((text,) for text in (*GREETINGS, "1 + 1", "2 + 3", "4 + 4", "What is 3 + 5?", "6 - 2"))  # fmt: skip


@pytest.fixture
def train(slipstream, tmp_path):
    """Runs the command on prompts, for ten minutes at most."""

    def run(prompts=PROMPTS, draft="pocket-draft") -> tuple[int, str, str]:
        file = tmp_path / "prompts.jsonl"
        file.write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in prompts))
        asked = ("--target", "pocket", "--draft", str(draft), "--prompts", str(file))
        return slipstream("train-head", *asked, "--out", str(tmp_path / "head"), "--minutes", "10")

    return run


def test_it_writes_a_head_and_says_how_to_use_it(train, tmp_path):
    code, out, err = train()
    assert code == 0
    assert out.startswith(f"acceptance head written to {tmp_path / 'head'}: AUC 0.")
    assert out.count("\n") == 1
    assert "answers: 10 of 10, 0:00 left" in err
    assert "loss" in err
    head, likeness = load_head(tmp_path / "head")
    assert head.width == 128
    assert likeness.target == (4096, 8)


def test_prompts_that_are_too_few_or_cannot_be_read_are_refused(train, refused):
    assert "give at least 10 prompts" in train((("Hello!", "and a second turn"),))[2]
    asked = ["train-head", "--target", "t", "--draft", "d", "--out", "o", "--prompts", "/nowhere/x"]
    assert "cannot be read" in refused(*asked)


def test_models_of_different_vocabularies_are_refused(train, tmp_path):
    source = Path(resolve(Settings(home=tmp_path), "pocket-draft").folder)
    folder = Path(shutil.copytree(source, tmp_path / "other"))
    tokenizer = folder / "tokenizer.json"
    changed = tokenizer.read_text().replace('"<|unused|>"', '"<|other|>"')
    tokenizer.write_text(changed.replace('"the":', '"teh":'))
    code, _, err = train(draft=folder)
    assert code == 2
    assert "vocabulary differs" in err
