"""Arguments that become options of commands without a test of their own."""

import json
from pathlib import Path

import pytest

from app.bench.options import SeedsOptions
from app.commands.history import HistoryOptions
from app.commands.main import parse
from app.commands.models import (
    ImportModel,
    ListModels,
    PullModel,
    RemoveModel,
    SearchModels,
)
from app.commands.train_head import TrainHeadOptions
from app.errors import LaneError, PromptFileError
from app.models.library.importing import Way
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
    assert parse([*asked, *more], SETTINGS).options == TrainHeadOptions(
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
    assert parse(["history", *arguments], SETTINGS).options == options


def test_claims_need_no_lane_and_no_prompts(tmp_path: Path) -> None:
    asked = ["bench", "seeds", "--json", str(tmp_path / "out.json"), "--only", "auto, sequoia"]
    assert parse(asked, SETTINGS).options == SeedsOptions(
        SETTINGS, SETTINGS.model, None, tmp_path / "out.json", ("auto", "sequoia")
    )
    assert parse(["bench", "seeds"], SETTINGS).options == SeedsOptions(
        SETTINGS, SETTINGS.model, None, None
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bench"], "at least one --lane"),
        (["bench", "--lane", "none"], "--prompts"),
        (["bench", "seeds", "--only", "magic"], "no claim 'magic'"),
    ],
)
def test_a_benchmark_without_its_parts_is_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(LaneError, match=sentence):
        parse(arguments, SETTINGS)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["search", "a", "b"], SearchModels(SETTINGS, "a b", 20)),
        (["pull", "m"], PullModel(SETTINGS, "m", (), draft=True)),
        (["pull", "m", "--file", "a", "--file", "b", "--no-draft"], PullModel(SETTINGS, "m", ("a", "b"), draft=False)),
        (["list", "--available"], ListModels(SETTINGS, available=True)),
        (["rm", "m"], RemoveModel(SETTINGS, "m")),
        (["import", "p"], ImportModel(SETTINGS, Path("p"), None, Way.LINK)),
        (["import", "p", "--copy", "--name", "n"], ImportModel(SETTINGS, Path("p"), "n", Way.COPY)),
        (["import", "p", "--reference"], ImportModel(SETTINGS, Path("p"), None, Way.REFERENCE)),
    ],
)  # fmt: skip
def test_each_action_of_models_has_its_options(arguments: list[str], options: object) -> None:
    assert parse(["models", *arguments], SETTINGS).options == options


@pytest.mark.parametrize(
    "arguments", [["--log-level", "debug", "history"], ["history", "--log-level", "debug"]]
)
def test_the_log_level_may_come_before_or_after_the_command(arguments: list[str]) -> None:
    assert parse(arguments, SETTINGS).options.settings.log_level == "debug"
    assert parse(["history"], SETTINGS).options.settings.log_level == "warning"
