"""Fit before download: laws of the catalogue's shapes, and the planner's answers on known machines."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from app.models.catalog import CatalogEntry, load_catalog
from app.models.library.fit import (
    READABLE,
    USUAL_GPU_RATE,
    USUAL_RATE,
    ability,
    best,
    fits,
    shape_forms,
    size_class,
)
from app.settings import Settings
from engine.hardware.candidates import SCORED_ROWS, USEFUL
from engine.hardware.layers import drafting_weights, idle_weights
from engine.hardware.plan import Plan, Stage, Tier
from engine.hardware.profile import GIB, HardwareProfile, Rates, imagined
from engine.hardware.published import FP16, weights

CATALOG = load_catalog(Settings(home=Path("/nowhere")))


def machine(ram: int, disk: int = 1000) -> HardwareProfile:
    return replace(imagined(0, ram * GIB), disk_free=disk * GIB)


@pytest.fixture
def catalog(settings: Settings) -> tuple[CatalogEntry, ...]:
    return load_catalog(settings)


def of(offered, name: str):
    return next(fit for fit in offered if fit.entry.name == name)


# --- the shapes in the catalogue ------------------------------------------------------------------


def test_a_shape_counts_the_weights_that_the_catalogue_names(catalog):
    shaped = [entry for entry in catalog if entry.shape is not None]
    assert len(shaped) >= 35
    for entry in shaped:
        counted = weights(entry.shape, FP16).total.elements + drafting_weights(entry.shape)
        assert counted == pytest.approx(entry.parameters, rel=1e-4), (
            entry.name
        )  # biases, small norms


def test_a_quantised_form_weighs_what_of_its_file_is_loaded(catalog):
    for entry in catalog:
        if entry.gguf:
            (form,) = shape_forms(entry.name, entry.shape, entry.size)
            drafting = drafting_weights(entry.shape) / entry.parameters
            assert form.weights == pytest.approx(entry.size * (1 - drafting), rel=1e-4, abs=200)
            assert form.dense == (entry.shape.experts == 0)


def test_a_running_state_is_as_large_as_llama_cpp_reports_it_and_does_not_grow(catalog):
    """MiB of one conversation; 62.81 and 149.62 are in its logs."""
    known = {
        "qwen3.5-0.8b-q4": 19.27, "qwen3.5-2b-q4": 19.27, "qwen3.5-4b-q4": 50.25,
        "qwen3.5-9b-q4": 50.25, "qwen3.8-27b-q4": 149.62, "qwen3.6-35b-a3b-q4": 62.81,
        "qwen3-8b-q4": 0, "gemma-4-12b-q4": 0, "gpt-oss-20b": 0,
    }  # fmt: skip
    entries = {entry.name: entry for entry in catalog}
    for name, size in known.items():
        shape = entries[name].shape
        assert shape.state / 2**20 == pytest.approx(size, abs=0.005), name
        (form,) = shape_forms(name, shape, entries[name].size)
        short, long = form.cache(8192 - 128, 0, 1), form.cache(16384 - 128, 0, 1)
        assert long - short == 8192 * 2 * shape.kv_values
        assert short - 8192 * 2 * shape.kv_values >= shape.state


def test_a_layer_that_reads_anothers_cache_has_none(catalog):
    """Numbers of one token by the configurations: layers with a cache of their own, heads, width."""
    entries = {entry.name: entry for entry in catalog}
    for name, layers in {
        "gemma-4-e2b-q4": [(12, 1, 256), (3, 1, 512)],
        "gemma-4-e4b-q4": [(20, 2, 256), (4, 2, 512)],
        "gemma-4-31b-q4": [(50, 16, 256), (10, 4, 512)],
        "qwen3.5-9b-q4": [(8, 4, 256)],
        "gpt-oss-20b": [(24, 8, 64)],
    }.items():
        cached = sum(2 * count * heads * width for count, heads, width in layers)
        assert entries[name].shape.kv_values == cached, name


# --- on a machine ---------------------------------------------------------------------------------


def test_everything_that_could_be_downloaded_has_an_answer_with_numbers(catalog):
    for ram in (4, 16, 256):
        offered = fits(catalog, machine(ram))
        assert len(offered) == sum(entry.repo is not None for entry in catalog)
        for fit in offered:
            assert "GiB" in fit.where or "MiB" in fit.where, fit.where
            assert fit.runs or not fit.whole


def test_more_memory_never_takes_a_model_away(catalog):
    before: set[str] = set()
    for ram in (2, 4, 8, 16, 32, 64, 128, 512):
        whole = {fit.entry.name for fit in fits(catalog, machine(ram)) if fit.whole}
        assert before <= whole
        before = whole
    assert "llama-3.3-70b-instruct-q4" in before


def test_the_draft_is_planned_and_counted_until_it_is_here(catalog, tmp_path):
    fit = of(fits(catalog, machine(16)), "qwen3-4b-q4")
    assert isinstance(fit.found, Plan)
    assert (fit.found.draft_model, fit.draft.name) == ("qwen3-0.6b-q8", "qwen3-0.6b-q8")
    assert fit.size == 2_497_280_256 + 639_446_688
    here = [
        replace(one, folder=tmp_path) if one.name == "qwen3-0.6b-q8" else one for one in catalog
    ]
    fit = of(fits(here, machine(16)), "qwen3-4b-q4")
    assert (fit.draft, fit.size) == (None, 2_497_280_256)
    assert fit.found.draft_model == "qwen3-0.6b-q8"


def test_large_models_stream_and_larger_ones_are_refused_with_both_numbers(catalog):
    offered = fits(catalog, machine(16))
    streamed = of(offered, "qwen3-32b")
    assert streamed.runs
    assert not streamed.whole
    assert streamed.found.stage is Stage.RAM_DISK
    refused = of(offered, "llama-3.3-70b-instruct-q4")
    assert not refused.runs
    assert "llama-3.3-70b-instruct-q4 needs" in refused.where
    assert "are free" in refused.where


def test_speed_is_given_only_where_it_was_measured(catalog):
    known = machine(16)
    assert of(fits(catalog, known), "qwen3-0.6b-q8").rate is None
    known = replace(known, rates=Rates(memory=40e9))
    rate = of(fits(catalog, known), "qwen3-0.6b-q8").rate
    assert rate == pytest.approx(40e9 / 639_446_688, rel=1e-3)


def test_experts_that_a_token_passes_by_cost_no_time(catalog):
    known = replace(machine(64), rates=Rates(memory=40e9))
    rates = {fit.entry.name: fit.rate for fit in fits(catalog, known)}
    for name, active in (("gpt-oss-20b", 3.6e9), ("gemma-4-26b-a4b-q4", 3.8e9)):
        (entry,) = (entry for entry in catalog if entry.name == name)
        read = entry.size * active / entry.parameters
        assert rates[name] == pytest.approx(40e9 / read, rel=0.2), name


def test_without_llama_cpp_no_gguf_is_offered(catalog, monkeypatch):
    monkeypatch.setattr("app.models.library.fit.find_spec", lambda name: None)
    offered = fits(catalog, machine(64))
    assert not any(fit.runs for fit in offered if fit.entry.gguf)
    assert "llama-cpp-python" in of(offered, "qwen3-4b-q4").where
    assert not best(offered).entry.gguf


# --- the best -------------------------------------------------------------------------------------

NEWEST = {
    "qwen3.5",
    "qwen3.6",
    "qwen3.8",
    "gemma",
    "gpt",
    "minicpm5",
}  # families of 2026, and gpt-oss
GPUS = (0, 6, 8, 12, 16, 24, 32, 48)  # GB
RAMS = (6, 8, 16, 24, 32, 64, 128)


def chosen_for(catalog, gpu: float, ram: float, rates: Rates | None = None):
    known = replace(imagined(int(gpu * GIB), int(ram * GIB)), disk_free=1000 * GIB)
    return best(fits(catalog, replace(known, rates=rates or Rates()), elsewhere=True))


@settings_of_hypothesis(max_examples=25)
@given(st.floats(0, 100), st.floats(2, 200), st.sampled_from([None, 10e9, 40e9, 200e9]))
def test_the_best_fits_leaves_room_and_can_be_read_along(gpu, ram, rate):
    chosen = chosen_for(CATALOG, gpu, ram, Rates(memory=rate))
    if chosen is None:
        return
    assert chosen.entry.all_round
    assert not chosen.entry.gated
    assert chosen.whole
    assert chosen.storable
    assert chosen.speed >= READABLE
    assert (chosen.rate is None) == (chosen.planned.stage is not Stage.RAM or rate is None)
    assert chosen.planned.context >= min(USEFUL - SCORED_ROWS, chosen.entry.context)
    free = {Tier.DEVICE: int(gpu * GIB), Tier.RAM: int(ram * GIB)}
    for tier, size in free.items():
        assert chosen.planned.needed(tier) <= size


def test_more_memory_is_never_worse_and_the_best_is_never_of_an_older_family():
    """By size class first, then by speed at the same rates of memory."""
    found = {(gpu, ram): chosen_for(CATALOG, gpu, ram) for gpu in GPUS for ram in RAMS}
    worth = {where: (size_class(one.entry), one.speed) for where, one in found.items()}
    for (gpu, ram), (other, more) in product(found, found):
        if gpu <= other and ram <= more:
            assert worth[gpu, ram] <= worth[other, more], (gpu, ram, other, more)
    assert {one.entry.name.partition("-")[0] for one in found.values()} <= NEWEST


def test_experts_in_ram_let_a_small_gpu_have_a_large_mixture_at_the_speed_of_both_memories():
    chosen = chosen_for(CATALOG, 8, 32)
    assert chosen.planned.stage is Stage.SHARED
    assert 0 < chosen.planned.cpu_experts < chosen.entry.shape.layers
    assert "in RAM and computed by the processor" in chosen.where
    assert chosen.speed > chosen_for(CATALOG, 0, 32).speed
    entry = chosen.entry
    read = (entry.parameters - idle_weights(entry.shape)) / entry.parameters * entry.size
    assert USUAL_RATE < chosen.speed * read < USUAL_GPU_RATE


def test_a_slow_memory_gets_a_smaller_model_and_a_full_disk_none(catalog):
    fast, slow = (chosen_for(catalog, 0, 64, Rates(memory=rate)) for rate in (80e9, 10e9))
    assert slow.entry.parameters < fast.entry.parameters
    assert best(fits(catalog, machine(64, disk=0))) is None


def test_a_mixture_is_less_able_than_all_its_weights_and_more_than_those_that_answer(catalog):
    of_name = {entry.name: ability(entry) for entry in catalog}
    assert 9 < of_name["qwen3.6-35b-a3b-q4"] < 27
    assert of_name["gemma-4-e2b-q4"] < of_name["qwen3.5-4b-q4"]  # most of it is a table
    assert of_name["qwen3.5-9b-q4"] == pytest.approx(8.95, abs=0.01)


# What people choose for such a machine at the end of 2026: billions of weights, how many of them answer.
USUAL = {
    (0, 8): ((2, 5), (1, 5)),
    (0, 16): ((4, 10), (1, 5)),
    (0, 32): ((20, 36), (2, 5)),
    (0, 64): ((20, 36), (2, 5)),
    (8, 16): ((7, 10), (7, 10)),
    (8, 32): ((30, 36), (2, 5)),
    (12, 32): ((9, 36), (2, 13)),
    (16, 32): ((11, 36), (2, 15)),
    (24, 64): ((25, 36), (2, 36)),
    (48, 64): ((25, 36), (2, 36)),
}


@pytest.mark.parametrize("sizes", USUAL, ids=str)
def test_the_best_is_what_a_person_of_late_2026_would_choose(catalog, sizes):
    entry = chosen_for(catalog, *sizes).entry
    (least, most), (fewest, greatest) = USUAL[sizes]
    assert least < entry.parameters / 1e9 < most, entry.name
    assert fewest < (entry.parameters - idle_weights(entry.shape)) / 1e9 < greatest, entry.name
