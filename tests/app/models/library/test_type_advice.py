"""Advice on the type of a model's file: where a person chooses one, and only where it was measured."""

import json
from contextlib import closing
from dataclasses import replace

import pytest

from app.models.catalog import find_entry, load_catalog
from app.models.downloads.queue import open_hub
from app.models.library.installed import read_inventory
from app.models.library.repository_view import inspect_repository
from app.models.library.type_advice import UNMEASURED, TypeAdvice
from app.settings import Settings
from tests.app.models.downloads.hub import Fixed, Repo, StandInHub
from tests.app.row_tables import remember
from tests.engine.models.gguf.files import quantized, random_gguf

pytest.importorskip("llama_cpp.llama_cpp")

FAST = "Q4_0 is 2.0x as fast as Q4_K_M here, 1.5x with 16 rows in a pass; answers are slightly less exact."


def advised(settings: Settings, name: str) -> str:
    entry = find_entry(load_catalog(settings), name)
    return TypeAdvice.read(settings).of_entry(entry)


def test_a_catalogue_entry_with_other_files_names_the_fastest_of_them(settings):
    remember(settings)
    assert advised(settings, "phi-4-q4") == f"{FAST} The same repository has it as phi-4-Q4_0.gguf."
    entry = find_entry(load_catalog(settings), "phi-4-q4")
    other = replace(entry, other_files=tuple(f for f in entry.other_files if "Q4_0" not in f))
    said = TypeAdvice.read(settings).of_entry(other)
    assert said.startswith("IQ4_NL is 1.2x as fast"), "that repository has no Q4_0"


def test_without_other_files_the_type_alone_is_named(settings):
    remember(settings)
    assert advised(settings, "qwen3-8b-q4") == FAST


def test_nothing_is_said_of_other_models_or_of_types_without_a_faster_one(settings):
    remember(settings)
    assert advised(settings, "pocket") == advised(settings, "qwen3-0.6b-q8") == ""


def test_of_a_file_here_the_header_tells_the_type_where_the_name_does_not(settings, tmp_path):
    remember(settings)
    full = random_gguf(tmp_path / "full.gguf", hidden=256)
    file = quantized(full, tmp_path / "mine.gguf", "Q4_K_M")
    assert advised(settings, str(file)) == FAST
    assert advised(settings, str(quantized(full, tmp_path / "fast.gguf", "Q4_0"))) == ""


def test_without_a_table_the_way_to_measure_is_said_and_no_advice(settings):
    assert advised(settings, "phi-4-q4") == ""
    inventory = read_inventory(settings)
    assert (inventory.advice, inventory.unmeasured) == ({}, UNMEASURED)


def test_without_llama_cpp_nothing_is_to_be_measured(settings, monkeypatch):
    monkeypatch.setattr("app.models.library.type_advice.find_spec", lambda name: None)
    assert read_inventory(settings).unmeasured == ""
    remember(settings)
    assert advised(settings, "qwen3-8b-q4") == FAST, "it may come back"


def test_the_inventory_has_the_advice_on_every_model(settings):
    remember(settings)
    inventory = read_inventory(settings)
    assert inventory.unmeasured == ""
    assert inventory.advice["qwen3-8b-q4"] == FAST
    assert {name.rpartition("-")[2] for name in inventory.advice} == {"q4"}


def test_each_file_of_a_repository_is_compared_with_the_others_there(settings):
    files = {f"m-{kind}.gguf": Fixed(b"x") for kind in ("Q4_K_M", "IQ4_NL", "Q8_0")}
    with StandInHub({"org/m-GGUF": Repo(files)}).running() as stand_in:
        settings = Settings(home=settings.home, hub=stand_in.url)
        remember(settings)
        with closing(open_hub(settings)) as hub:
            look = inspect_repository(settings, hub, "org/m-GGUF")
    said = {choice.label: choice.advice for choice in look.choices}
    assert said["m-Q8_0"] == said["m-IQ4_NL"] == ""
    assert said["m-Q4_K_M"].endswith("The same repository has it as m-IQ4_NL.")


def test_plan_shows_the_advice_in_text_and_json_but_not_for_another_machine(slipstream, home):
    remember(Settings(home=home))
    asked = ("plan", "--model", "smollm2-1.7b-instruct-q4")
    code, text, _ = slipstream(*asked)
    assert (code, FAST in text) == (0, True)
    assert json.loads(slipstream(*asked, "--json")[1])["type"] == FAST
    assert "Q4_0" not in slipstream(*asked, "--ram", "16GiB")[1]
