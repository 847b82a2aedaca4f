"""``slipstream bench`` as a person meets it, on the bundled model."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORDY = "Repeat after me: the cat and the dog and the cat and the dog"


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.jsonl"
    turns = [[WORDY], ["Hello", "Thank you"], ["word " * 5000]]
    file.write_text("".join(json.dumps({"turns": each}) + "\n" for each in turns))
    return str(file)


@pytest.fixture
def bench(slipstream, prompts):
    return partial(slipstream, "bench", "--prompts", prompts)


def cells(out: str, lane: str) -> list[str]:
    """The lane's row; its name has no spaces here."""
    return next(line.split() for line in out.splitlines() if line.startswith(f"{lane} "))


def test_a_table_for_people_and_every_number_for_machines(prompts, home, tmp_path):
    file = tmp_path / "out.json"
    script = "import sys; from app.commands.main import main; sys.exit(main(None, None))"
    call = [sys.executable, "-c", script, "bench", "--prompts", prompts, "--json", str(file)]
    call += ["--lane", "quick=lookup:length=fixed,depth=5", "--lane", "specexec:nodes=9"]
    call += ["--max-tokens", "10", "--repeats", "2"]
    ran = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "3 prompts, 2 repeats, 1 at a time" in ran.stdout
    assert "1 prompt skipped (past the context of 4096)" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "every token agrees"

    record = json.loads(file.read_text())
    plain, quick, tree = record["lanes"]
    assert (plain["lane"]["name"], plain["lane"]["drafter"]) == ("plain", "none")
    assert (quick["lane"]["name"], quick["lane"]["depth"]) == ("quick", 5)
    assert (tree["lane"]["name"], tree["lane"]["nodes"]) == ("specexec:nodes=9", 9)
    assert plain["tokens_per_pass"] == 1.0 < quick["tokens_per_pass"]
    assert plain["speedup"] is None
    assert quick["speedup"]["count"] == quick["rate"]["count"] == 6
    assert (quick["agreeing"], quick["answers"]) == (6, 6)
    assert len(record["samples"]) == 3 * 2 * 3
    assert {p["emitted"] for s in record["samples"] for p in s["prompts"]} >= {10}
    assert set(record["machine"]) == {"cpu", "cores", "threads", "torch", "date"}
    assert record["model"]["inflate"] == 1
    assert f"{quick['speedup']['median']:.2f}" == cells(ran.stdout, "quick")[3]


def test_an_inflated_model_costs_more_and_answers_alike(bench, tmp_path):
    records = []
    for times in ("1", "3"):
        file = tmp_path / f"{times}.json"
        asked = ["--limit", "1", "--repeats", "1", "--max-tokens", "8", "--inflate", times]
        code, out, _ = bench("--lane", "chain:length=fixed", "--json", str(file), *asked)
        assert code == 0
        records.append(json.loads(file.read_text()))
    small, large = records
    assert "The same function at a larger cost" in out
    assert large["model"]["parameters"] > 2 * small["model"]["parameters"]
    counts = ("emitted", "passes", "drafted", "accepted", "agreeing")
    assert [large["lanes"][1][key] for key in counts] == [small["lanes"][1][key] for key in counts]


def test_several_prompts_at_once_with_sampled_tokens(bench):
    asked = ["--limit", "2", "--repeats", "1", "--max-tokens", "8", "--concurrent", "2"]
    asked += ["--temperature", "1", "--dtype", "bfloat16", "--lane", "chain:length=fixed"]
    code, out, _ = bench(*asked)
    assert code == 0
    assert "2 at a time" in out
    assert "parameters, bfloat16; temperature 1" in out
    assert cells(out, "chain:length=fixed")[-1] == "sampled"
    assert out.splitlines()[-1].startswith("sampled, not compared")


def test_prompts_that_all_do_not_fit_are_no_measurement(slipstream, tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"turns": ["word " * 5000]}))
    code, _, err = slipstream("bench", "--prompts", str(file), "--lane", "lookup")
    assert code == 1
    assert err == ("slipstream: nothing was measured: no prompt fits the context of 4096 tokens\n")


def test_a_drafter_that_this_model_cannot_run(refused, prompts):
    err = refused("bench", "--prompts", prompts, "--lane", "chain", "--model", "pocket-draft")
    assert "'chain' cannot run here: no draft model is paired with pocket-draft" in err


MISTAKES = [
    ([], "slipstream: bench needs at least one --lane"),
    (["--lane", "chain:depth"], "the lane 'chain:depth' has 'depth' for KEY=VALUE"),
    (["--lane", "chain", "--lane", "chain"], "two lanes are named 'chain'"),
    (["--lane", "chain", "--top-p", "0"], "top_p is 0.0"),
    (["--lane", "chain", "--min-p", "1"], "min_p is 1.0"),
    (["--lane", "chain", "--top-k", "-1"], "'-1' is not a whole number from 0"),
    (["--lane", "chain", "--dtype", "int3"], "there is no 'int3'"),
    (["--lane", "chain", "--inflate", "0"], "'0' is not a whole number from 1"),
    (["--lane", "chain", "--repeats", "0"], "'0' is not a whole number from 1"),
    (["--lane", "chain", "--json", "/nowhere/x.json"], "there is no folder /nowhere"),
    (["--lane", "chain", "--json", "/"], "/ is a folder"),
    (["seeds", "--only", "magic"], "no claim 'magic'"),
    (["peers", "--llama-server", "/nowhere/x"], "there is no file /nowhere/x"),
    (["peers", "--picture", "/nowhere/x.svg"], "there is no folder /nowhere"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_a_mistake_is_one_line_before_a_model_is_loaded(
    arguments, sentence, prompts, refused, home
):
    assert sentence in refused("bench", "--prompts", prompts, *arguments)
    assert not home.exists()


def test_lanes_need_prompts(refused):
    assert "--prompts" in refused("bench", "--lane", "none")
