"""``bench gguf``: it runs on real files in miniature, and its rows hold only if the figures do."""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from app.bench.gguf import command
from app.bench.gguf.command import HIDDEN, INFLATE, draft_file, rows
from app.bench.gguf.measure import AUTO, CHORES, LANES, OURS, PROBLEMS, Figures, measure_file
from app.bench.gguf.rivals import LOOKUP, PLAIN
from app.bench.options import FixedBench
from app.bench.prompt_files import PromptSet
from app.settings import load_settings
from engine.request import ModelSpec
from tests.app.bench.samples import sample

BUNDLED = Path(__file__).parents[4] / "engine" / "bundled"


TEN = tuple(range(10))


def figures(**rates):
    """One prompt of every category; rates by lane, the same for every category."""
    lanes = {OURS: 100, AUTO: 200, PLAIN: 100, LOOKUP: 150} | rates
    categories = dict(enumerate((CHORES, PROBLEMS, "qa"), 1))
    samples = [
        sample(lane, (n, 1), TEN, 10 / rate) for n in categories for lane, rate in lanes.items()
    ]
    return Figures(samples, categories)


def test_good_figures_hold():
    assert all(row.holds for row in rows("bf16", figures()))


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({OURS: 96, AUTO: 192}, [True, False, False]),
        ({AUTO: 170}, [False, True, False]),
        ({AUTO: 90, LOOKUP: 80}, [False, True, False]),
        ({LOOKUP: 201}, [False, False, True]),
    ],
)
def test_each_row_falls_with_its_own_figures(changed, missed):
    assert [not row.holds for row in rows("q8_0", figures(**changed))] == missed


def test_a_categorys_rate_is_all_its_tokens_over_all_its_seconds():
    samples = [sample(OURS, (1, 1), TEN, 1.0), sample(OURS, (2, 1), TEN * 3, 3.0)]
    assert Figures(samples, {1: "qa", 2: "qa"}).rate("qa", OURS) == pytest.approx(10)


def test_it_measures_a_real_file_next_to_llama_cpp_python(tmp_path, monkeypatch, capsys):
    for name, value in {"FIRST": 1, "CHORE_COUNT": 1, "PROBLEM_COUNT": 1, "TOKENS": 6}.items():
        monkeypatch.setattr(f"app.bench.gguf.measure.{name}", value)
    monkeypatch.setattr("app.bench.gguf.command.INFLATE", 2)
    few = PromptSet((("What is 2 + 3?",),) * 2, (("Repeat after me: a b c",),) * 2, ())
    monkeypatch.setattr(command, "load_prompts", lambda file, each: few)
    out = tmp_path / "out.json"
    options = FixedBench("gguf", load_settings(), "pocket", None, out, tmp_path, only=("q8_0",))
    assert command.run(options) in (0, 1)
    assert "claims hold" in capsys.readouterr().out.splitlines()[-1]
    written = json.loads(out.read_text())["rows"]
    assert len(written) == 3
    assert written[0]["figures"]["q8_0, answers"] == 2
    assert {f"q8_0, {CHORES}, {lane}, tokens/s" for lane in (OURS, AUTO, PLAIN, LOOKUP)} <= set(written[0]["figures"])  # fmt: skip


def test_either_side_loads_first_for_half_of_the_questions_of_every_kind(tmp_path, monkeypatch):
    """Of several copies of the weights the first was the slowest, and it was always ours."""
    loaded = []

    class Answering:
        async def run(self, turn):
            yield None
            yield sample(turn.lane.name, (turn.prompts[0].number, 1), (1,), 0.1)

    def load(own, file, order, request):
        loaded.append(tuple(order))
        return {name: Answering() for name in order}

    monkeypatch.setattr("app.bench.gguf.measure.load_lanes", load)
    few = PromptSet((("a",),) * 7, (("b",),) * 5, (("kind", (("c",), ("d",))),))
    spec = ModelSpec("pocket", str(BUNDLED / "pocket"))
    found = measure_file(spec, tmp_path / "x.gguf", few, lambda said: None)
    names = tuple(lane.name for lane in LANES)
    assert loaded == [names, names[::-1]]
    assert Counter(found.categories.values()) == {CHORES: 2, PROBLEMS: 4, "kind": 2}
    halves = [found.samples[:16], found.samples[16:]]
    for half in halves:
        kinds = {found.categories[one.prompt] for one in half}
        assert kinds == {CHORES, PROBLEMS, "kind"}, "a question of every kind, each time"
    for number in found.categories:
        assert sorted(one.lane for one in found.samples if one.prompt == number) == sorted(names)


def test_blocks_of_256_divide_the_rows_so_that_4_bits_are_4_bits():
    """Rows of 320 became 5-bit blocks, whose passes cost something else altogether."""
    trained = json.loads((BUNDLED / "pocket" / "config.json").read_text())
    assert HIDDEN % 256 == 0
    assert trained["intermediate_size"] * INFLATE % 256 == 0


def test_files_of_weights_that_were_trained_again_are_made_again(tmp_path):
    source = Path(shutil.copytree(BUNDLED / "pocket-draft", tmp_path / "draft"))
    first = draft_file(source, tmp_path, lambda said: None)
    written = first.stat().st_mtime_ns
    assert draft_file(source, tmp_path, lambda said: None) == first
    assert first.stat().st_mtime_ns == written
    weights = load_file(source / "model.safetensors")
    weights["model.norm.weight"] = weights["model.norm.weight"] * 2
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    second = draft_file(source, tmp_path, lambda said: None)
    assert second != first
    assert second.read_bytes() != first.read_bytes()
