"""Start commands of other engines: every option exists there, and the plan's sizes are in it."""

import json
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.commands.export import ExportOptions, exported, shown
from app.export import ENGINES
from app.export.drafts import depth_worth, drafts_of
from app.export.serving import SHARE, Command, ExportRefused, Kind, fitting, split
from app.history.records import Origin, Remembered
from app.models.catalog import CatalogEntry, PublishedDraft, find_entry, load_catalog
from app.models.library.fit import by_shape
from app.settings import Settings
from engine.hardware.profile import GIB
from engine.request import DepthCount

FLAGS = Path(__file__).resolve().parents[2] / "data" / "engine_flags"
HEADED, PAIRED, PLAIN, FILE = "qwen3.5-4b", "smollm2-1.7b-instruct", "smollm3-3b", "qwen3-8b-q4"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path)


def a_file(settings: Settings) -> str:
    return next(one.name for one in load_catalog(settings) if one.gguf and one.shape and one.repo)


def option(line: tuple[str, ...], name: str) -> str:
    return line[line.index(name) + 1]


def speculation(line: tuple[str, ...]) -> dict[str, object]:
    return json.loads(option(line, "--speculative-config"))


@pytest.mark.parametrize("engine", ENGINES)
def test_every_option_is_one_of_the_engine(settings: Settings, engine: str) -> None:
    known = {*(FLAGS / f"{engine}.txt").read_text().split("\n")}
    models = [HEADED, PAIRED, PLAIN, a_file(settings)]
    drafts = ["auto", "none", "n-grams", "suffix"]
    made = 0
    for model, draft, gpus, nodes in product(models, drafts, (0, 1, 8), (1, 2)):
        options = ExportOptions(
            settings, engine, model, gpus, nodes, 80 * GIB, 8192, sessions=4, draft=draft
        )
        try:
            found = exported(options)
        except ExportRefused:
            continue
        made += 1
        assert len(found.lines) == nodes
        for line in found.lines:
            if line[0] != "rpc-server":  # has four options, none of them in this list
                assert {word for word in line if word.startswith("--")} <= known
    assert made >= 12


def test_the_other_machines_of_each_engine_know_the_first(settings: Settings) -> None:
    def made(engine: str, model: str = PLAIN) -> Command:
        return exported(ExportOptions(settings, engine, model, 8, 2, 80 * GIB))

    first, second = made("vllm").lines
    assert (option(first, "--node-rank"), option(second, "--node-rank")) == ("0", "1")
    assert "--headless" in second
    assert "--headless" not in first
    first, second = made("sglang").lines
    assert option(first, "--dist-init-addr") == option(second, "--dist-init-addr")
    main, other = made("llama-server", a_file(settings)).lines
    assert other[0] == "rpc-server"
    assert option(main, "--rpc").endswith(f":{option(other, '--port')}")


def test_a_head_goes_along_before_a_draft_model(settings: Settings) -> None:
    [line] = exported(ExportOptions(settings, "vllm", HEADED)).lines
    assert speculation(line) == {"method": "mtp", "num_speculative_tokens": 3}
    [line] = exported(ExportOptions(settings, "sglang", PAIRED)).lines
    assert option(line, "--speculative-algorithm") == "STANDALONE"
    assert option(line, "--speculative-draft-model-path") == "HuggingFaceTB/SmolLM2-135M-Instruct"
    found = exported(ExportOptions(settings, "vllm", PLAIN))
    assert "--speculative-config" not in found.lines[0]
    assert "drafts: none, so it decodes plainly" in found.notes


def measured(drafter: str, seconds: float, counts: list[tuple[int, int]]) -> Remembered:
    origin = Origin("m", "", "here", drafter, "chat", "greedy")
    depths = tuple(DepthCount(*count) for count in counts)
    return Remembered(origin, 9, 900, seconds, 10.0, depths)


def test_what_was_best_here_goes_along_with_its_length() -> None:
    entry = CatalogEntry("m", "", None)
    rows = [
        measured("lookup", 5.0, [(100, 90), (90, 60), (60, 40), (40, 20)]),
        measured("recycling", 2.0, [(100, 90)]),  # other engines have nothing like it
        measured("suffix", 6.0, [(100, 90)]),
    ]
    [draft] = drafts_of(entry, None, rows)
    assert (draft.kind, draft.tokens) == (Kind.NGRAM, 2)
    assert "2.00 times" in draft.origin
    assert [*drafts_of(entry, None, [measured("lookup", 11.0, [(9, 1)])])] == []  # it was slower
    headed = CatalogEntry("m", "", None, drafts=(PublishedDraft("MTP"), PublishedDraft("Other")))
    assert [one.kind for one in drafts_of(headed, None, rows)] == [Kind.MTP, Kind.NGRAM]


def test_a_kind_can_be_asked_for(settings: Settings) -> None:
    [line] = exported(ExportOptions(settings, "vllm", PLAIN, draft="n-grams")).lines
    assert speculation(line)["method"] == "ngram"
    found = exported(ExportOptions(settings, "sglang", PLAIN, draft="suffix"))
    assert "SGLang 0.5.23 cannot use suffix" in found.notes[1]
    with pytest.raises(ExportRefused, match="no EAGLE-3 is known for this model; known: none"):
        exported(ExportOptions(settings, "vllm", PLAIN, draft="EAGLE-3"))


def test_files_that_an_engine_does_not_read_are_refused(settings: Settings) -> None:
    with pytest.raises(ExportRefused, match="reads no GGUF files"):
        exported(ExportOptions(settings, "vllm", a_file(settings)))
    with pytest.raises(ExportRefused, match="slipstream export-gguf --model smollm3-3b"):
        exported(ExportOptions(settings, "llama-server", PLAIN))


def test_too_little_memory_shortens_the_context_and_then_refuses(settings: Settings) -> None:
    roomy = exported(ExportOptions(settings, "vllm", PLAIN, 1, 1, 24 * GIB))
    assert option(roomy.lines[0], "--max-model-len") == "65536"
    assert option(roomy.lines[0], "--gpu-memory-utilization") == str(SHARE)
    short = exported(ExportOptions(settings, "vllm", PLAIN, 1, 1, 8 * GIB))
    context = int(option(short.lines[0], "--max-model-len"))
    assert 1 < context < 65536
    assert f"context: {context} of 65536 tokens fit" in short.notes
    with pytest.raises(ExportRefused, match="at least 2 such GPUs"):
        exported(ExportOptions(settings, "vllm", PLAIN, 1, 1, 4 * GIB))


@given(st.integers(1, 16), st.integers(1, 4), st.sampled_from(["smollm3-3b", "qwen3-8b"]))
def test_law_all_gpus_are_used_and_heads_divide(gpus: int, nodes: int, name: str) -> None:
    entry = find_entry(load_catalog(Settings(home=Path("/nowhere"))), name)
    assert entry.shape is not None
    if gpus * nodes > entry.shape.layers:
        return
    found = split(entry.shape, gpus, nodes)
    assert found.tensor * found.pipeline == gpus * nodes
    assert entry.shape.heads % found.tensor == 0


@given(st.integers(1, 8), st.integers(1, 96), st.integers(1, 200_000))
def test_law_what_is_planned_fits(gpus: int, gib: int, context: int) -> None:
    entry = find_entry(load_catalog(Settings(home=Path("/nowhere"))), "qwen3-8b")
    form = by_shape(entry, None).forms[0]
    try:
        length, sessions = fitting(form, context, gpus, gib * GIB)
    except ExportRefused:
        assert form.weights + form.cache(1, 0, 1) > SHARE * gib * GIB * gpus
        return
    assert 1 <= length <= context
    assert form.weights + sessions * length * form.kv_row <= SHARE * gib * GIB * gpus


@given(st.lists(st.integers(0, 50), max_size=8))
def test_law_a_draft_is_no_deeper_than_half_of_all_drafts_get(accepted: list[int]) -> None:
    counts = [50, *(min(accepted[: n + 1]) for n in range(len(accepted)))]
    depths = [DepthCount(seen, kept) for seen, kept in pairwise(counts)]
    found = depth_worth(depths)
    if not depths:
        assert found is None
        return
    assert found is not None
    assert all(one.accepted >= 25 for one in depths[: found if found > 1 else 0])
    assert found == len(depths) or found == 1 or depths[found].accepted < 25


def test_it_is_printed_for_a_shell(slipstream) -> None:
    code, out, _ = slipstream("export", "--engine", "vllm", "--model", HEADED, "--gpus", "2")
    assert code == 0
    first, second, *notes = out.splitlines()
    assert first == "# for vLLM 0.33.0; on this machine"
    assert second.startswith("vllm serve Qwen/Qwen3.5-4B ")
    assert all(note.startswith("# ") for note in notes)
    code, out, _ = slipstream("export", "--engine", "vllm", "--model", HEADED, "--json")
    assert json.loads(out)["engine"] == "vLLM 0.33.0"
    assert [*shown(Command("E", (("a b", "c"),)))] == ["# for E; on this machine", "'a b' c"]
