"""Arguments that become options of commands without a test of their own."""

import json
from pathlib import Path

import pytest

from app.bench.options import SeedsOptions
from app.commands.options import HistoryOptions, TrainHeadOptions, parse
from app.errors import LaneError, PromptFileError
from app.settings import Settings

SETTINGS = Settings(Path("/nowhere"))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"turns": [text]}) + "\n" for text in "abc"))
    return file


def test_a_head_is_trained_for_a_pair_on_prompts(prompts: Path) -> None:
    asked = ["train-head", "--target", "t", "--draft", "d", "--prompts", str(prompts)]
    more = ["--out", "head", "--minutes", "1.5", "--limit", "2"]
    assert parse([*asked, *more], SETTINGS) == TrainHeadOptions(
        SETTINGS, "t", "d", (("a",), ("b",)), Path("head"), 1.5
    )


def test_a_head_needs_prompts_that_can_be_read(tmp_path: Path) -> None:
    asked = ["train-head", "--target", "t", "--draft", "d", "--out", "o", "--prompts"]
    with pytest.raises(PromptFileError, match="cannot be read"):
        parse([*asked, str(tmp_path / "none")], SETTINGS)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], HistoryOptions(SETTINGS, reset=False, model=None)),
        (["--reset"], HistoryOptions(SETTINGS, reset=True, model=None)),
        (["--model", "m"], HistoryOptions(SETTINGS, reset=False, model="m")),
    ],
)
def test_history_is_of_every_model_unless_one_is_named(
    arguments: list[str], options: HistoryOptions
) -> None:
    assert parse(["history", *arguments], SETTINGS) == options


def test_claims_need_no_lane_and_no_prompts(tmp_path: Path) -> None:
    asked = ["bench", "seeds", "--json", str(tmp_path / "out.json"), "--only", "auto, sequoia"]
    assert parse(asked, SETTINGS) == SeedsOptions(
        SETTINGS, SETTINGS.model, None, tmp_path / "out.json", ("auto", "sequoia")
    )
    assert parse(["bench", "seeds"], SETTINGS) == SeedsOptions(SETTINGS, SETTINGS.model, None, None)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bench"], "at least one --lane"),
        (["bench", "--lane", "none"], "--prompts"),
        (["bench", "seeds", "--only", "magic"], "no claim 'magic'"),
    ],
)
def test_a_benchmark_without_its_parts_is_refused(arguments: list[str], told: str) -> None:
    with pytest.raises(LaneError, match=told):
        parse(arguments, SETTINGS)
