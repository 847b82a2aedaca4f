"""The command train-head with the bundled pair: a head that the engine takes, told in one line."""

from pathlib import Path

import pytest

from app.commands.train_head import TrainHeadOptions, run
from app.models.catalog import resolve
from app.settings import Settings
from engine.draft_length.acceptance_head import load_head
from engine.errors import InvalidRequest, ModelUnusable

GREETINGS = ("Hello!", "Hi", "Who are you?", "Thank you", "Good bye")
PROMPTS = tuple((text,) for text in (*GREETINGS, "1 + 1", "2 + 3", "4 + 4", "What is 3 + 5?", "6 - 2"))  # fmt: skip


def options(tmp_path: Path, **changed) -> TrainHeadOptions:
    given = {"target": "pocket", "draft": "pocket-draft", "prompts": PROMPTS,
             "out": tmp_path / "head", "minutes": 5.0, **changed}  # fmt: skip
    return TrainHeadOptions(settings=Settings(home=tmp_path / "home"), **given)


def test_it_writes_a_head_and_says_how_to_use_it(tmp_path, capsys):
    assert run(options(tmp_path)) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"acceptance head written to {tmp_path / 'head'}: AUC 0.")
    assert shown.out.count("\n") == 1
    assert "answers: 10 of 10, 0:00 left" in shown.err
    assert "loss" in shown.err
    head, likeness = load_head(tmp_path / "head")
    assert head.width == 128
    assert likeness.target == (4096, 8)


def test_too_few_prompts_are_explained(tmp_path):
    with pytest.raises(InvalidRequest, match="give at least 10 prompts"):
        run(options(tmp_path, prompts=(("Hello!", "and a second turn"),)))


def test_models_of_different_vocabularies_are_refused(tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    source = Path(resolve(Settings(home=tmp_path), "pocket-draft").folder)
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    tokenizer = folder / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"<|unused|>"', '"<|other|>"').replace('"the":', '"teh":'))  # fmt: skip
    with pytest.raises(ModelUnusable, match="vocabulary differs"):
        run(options(tmp_path, draft=str(folder)))
