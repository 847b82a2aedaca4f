"""Plans of all models at once: on this machine, and on one with other memory."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from app.models.library.simulation import (
    PUBLISHED,
    Memory,
    SimulatedPlans,
    machine_with,
    published_plan,
    without,
)
from engine.hardware.plan import Plan, Refusal, Tier
from engine.hardware.planner import plan
from engine.hardware.profile import GIB, Gpu, HardwareProfile, Ram
from engine.hardware.published import candidates
from tests.app.models.library.places import wide_model

HERE = HardwareProfile("p", 4, ("avx2",), Ram(16 * GIB, 12 * GIB), disk_free=100 * GIB)
SIZES = st.none() | st.integers(0, 256).map(lambda size: size * GIB)


@given(SIZES, SIZES)
def test_other_memory_replaces_only_what_is_asked_for(gpu, ram):
    machine = machine_with(HERE, Memory(gpu, ram))
    assert machine.ram.total == (HERE.ram.total if ram is None else ram)
    assert 0 <= machine.ram.available <= machine.ram.total
    assert machine.gpus == (() if not gpu else (Gpu("an imagined GPU", gpu, gpu),))
    same = replace(machine, ram=HERE.ram, gpus=HERE.gpus)
    assert same == HERE


def test_what_other_programs_take_here_they_take_there():
    assert machine_with(HERE, Memory(ram=32 * GIB)).ram.available == 28 * GIB
    assert machine_with(HERE, Memory(ram=2 * GIB)).ram.available == 0
    assert Memory().here
    assert not Memory(gpu=0).here


def test_a_loaded_model_makes_room_for_the_one_that_replaces_it():
    loaded = plan(HERE, candidates("llama-3.2-3b"))
    assert isinstance(loaded, Plan)
    held = loaded.needed(Tier.RAM)
    busy = replace(HERE, ram=Ram(16 * GIB, 12 * GIB - held))
    assert without(busy, loaded) == HERE
    assert without(HERE, loaded).ram.available <= HERE.ram.total
    assert without(HERE, None) == HERE


def test_more_memory_lets_a_published_model_run():
    small = published_plan("llama-3.1-8b-q4", HERE, Memory(0, 4 * GIB))
    assert isinstance(small.found, Refusal)
    large = published_plan("llama-3.1-8b-q4", HERE, Memory(24 * GIB, 32 * GIB))
    assert isinstance(large.found, Plan)
    assert large.found.stage == "all on the GPU"
    assert {published_plan(name, HERE, Memory()).name for name in PUBLISHED} == set(PUBLISHED)


def test_installed_models_are_planned_small_ones_too(settings):
    wide_model(settings.models_folder / "wide")
    shelf = SimulatedPlans.read(settings)
    here = {one.name: one for one in shelf.plans(HERE, Memory())}
    small = here["pocket"].found
    assert isinstance(small, Plan)
    assert (small.stage, small.dtype) == ("all in RAM", "float32")  # halving it saves nothing
    assert isinstance(here["wide"].found, Plan)
    assert here["wide"].found.device == "cpu"
    there = {one.name: one for one in shelf.plans(HERE, Memory(24 * GIB, 16 * GIB))}
    assert there["wide"].found.device == "cuda"
    none = {one.name: one for one in shelf.plans(HERE, Memory(0, GIB))}
    assert isinstance(none["wide"].found, Refusal)


def test_a_model_whose_files_are_damaged_says_so_and_leaves_the_others(settings):
    folder = wide_model(settings.models_folder / "broken")
    (folder / "more.safetensors").write_bytes(b"\xff" * 64)
    found = {one.name: one for one in SimulatedPlans.read(settings).plans(HERE, Memory())}
    assert found["broken"].found is None
    assert "broken" in found["broken"].note
    assert "pocket" in found
