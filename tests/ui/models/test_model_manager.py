"""The library of the page: a real hub on real sockets, real weights, a real engine."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app.errors import SettingsError, UnknownRepository
from app.models.downloads.job import State
from app.models.library.installed import suggestion
from app.other_folders import OtherFolders
from app.settings import Settings, prepare_home
from engine.errors import InvalidRequest, ModelUnusable
from engine.hardware.plan import Plan
from tests.app.assisted import POCKET, assisted
from tests.app.asynchronous import asynchronous
from tests.app.models.downloads.hub import Fixed, Repo, StandInHub, model_files
from tests.app.models.library.places import gguf, model_folder
from ui.models.model_manager import ModelManager

MIB = 1 << 20
DRAFT, TARGET = "HuggingFaceTB/SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-360M-Instruct"


def real(folder: Path) -> Repo:
    """A bundled model as the hub would have it."""
    names = [file.name for file in folder.iterdir() if file.suffix in (".json", ".safetensors", ".jinja")]  # fmt: skip
    return Repo({name: Fixed((folder / name).read_bytes()) for name in names})


@pytest.fixture
def stand_in() -> Iterator[StandInHub]:
    repos = {
        "org/tiny": Repo(model_files(1, MIB)),
        TARGET: real(POCKET),
        DRAFT: real(POCKET.with_name("pocket-draft")),
    }
    with StandInHub(repos).running() as hub:
        yield hub


def copied(folder: Path) -> Path:
    """A small real model in a folder of its own."""
    return Path(shutil.copytree(POCKET.with_name("pocket-draft"), folder))


@asynccontextmanager
async def library(folder: Path, stand_in: StandInHub) -> AsyncIterator[ModelManager]:
    """One whose assistant has a fake engine until another model is used."""
    settings = Settings(
        home=folder, hub=stand_in.url, others=OtherFolders(lm_studio=(folder / "lm",))
    )
    prepare_home(settings)
    async with assisted(folder, settings=settings) as assistant:
        made = ModelManager(assistant)
        try:
            await made.visit()
            yield made
        finally:
            await made.close()


async def until(made: ModelManager, name: str, state: State) -> None:
    while not any((seen.name, seen.state) == (name, state) for seen in made.snapshots()):
        await made.changed(made.version)


def here(made: ModelManager) -> dict[str, bool]:
    return {one.entry.name: one.bundled for one in made.shelf.installed}


@asynchronous
async def test_a_visit_shows_everything_without_the_network(tmp_path, stand_in):
    gguf(tmp_path / "lm" / "org" / "repo" / "found-Q4_K_M.gguf")
    async with library(tmp_path, stand_in) as made:
        assert here(made) == {"pocket": True}
        assert [one.name for one in made.shelf.elsewhere] == ["found-Q4_K_M"]
        assert len(made.shelf.offered) >= 38
        assert not made.shelf.token
        assert stand_in.requests == []


@asynchronous
async def test_one_model_is_loaded_at_a_time_and_unloaded_before_it_is_removed(tmp_path, stand_in):
    async with library(tmp_path, stand_in) as made:
        for name in ("smollm2-360m-instruct", "smollm2-135m-instruct"):
            await made.add(str(copied(tmp_path / name)), name)
            shutil.rmtree(tmp_path / name)  # the imported links stay, and are alone
        using = asyncio.create_task(made.use("smollm2-360m-instruct"))
        await made.changed(made.version)
        with pytest.raises(InvalidRequest, match="smollm2-360m-instruct is being loaded"):
            await made.use("pocket")
        await using
        assert made.loading == ""
        loaded = made.assistant.loaded
        with pytest.raises(SettingsError, match="pocket comes with Slipstream"):
            await made.remove("pocket")
        assert made.assistant.loaded is loaded, "nothing was unloaded for a refusal"
        gone = await made.remove("smollm2-360m-instruct")
        assert (gone.instead, made.assistant.entry.name) == ("pocket", "pocket")
        assert gone.removed.freed > 2 * MIB
        assert gone.removed.idle_draft == "smollm2-135m-instruct"
        assert here(made) == {"pocket": True, "smollm2-135m-instruct": False}
        assert (await made.remove("smollm2-135m-instruct")).instead is None


@asynchronous
async def test_wrong_requests_are_refused(tmp_path, stand_in):
    async with library(tmp_path, stand_in) as made:
        with pytest.raises(UnknownRepository):
            await made.get("org/none")
        with pytest.raises(InvalidRequest, match="write a name"):
            await made.search(" ")
        with pytest.raises(InvalidRequest, match="write the path"):
            await made.add(" ")
        assert made.snapshots() == ()


@asynchronous
async def test_what_is_imported_must_load(tmp_path, stand_in):
    async with library(tmp_path, stand_in) as made:
        with pytest.raises(ModelUnusable, match="no file or folder"):
            await made.add("/nowhere/at/all")
        with pytest.raises(ModelUnusable):
            await made.add(str(gguf(tmp_path / "cut.gguf")))
        with pytest.raises(ModelUnusable, match="not a GGUF file"):
            await made.add(str(gguf(tmp_path / "x.gguf", b"text")))
        assert here(made) == {"pocket": True}
        assert await made.add(f" {POCKET} ", "mine") == "mine"
        assert here(made) == {"pocket": True, "mine": False}


@asynchronous
async def test_search_and_a_closer_look(tmp_path, stand_in):
    stand_in.rows = [{"id": TARGET, "tags": ["safetensors"], "downloads": 5}]
    names = ("m-Q4_K_M.gguf", "m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf")
    stand_in.repos["org/m-GGUF"] = Repo({name: Fixed(b"GGUF" + bytes(9)) for name in names})
    async with library(tmp_path, stand_in) as made:
        assert [found.repo for found in await made.search("smol")] == [TARGET]
        for pasted in (f"https://huggingface.co/{TARGET}", f"{TARGET}:Q4_K_M"):
            assert [found.repo for found in await made.search(pasted)] == [TARGET]
        assert {one["search"][0] for one in stand_in.searched} == {"smol", TARGET}
        look = await made.inspect_repository(TARGET)
        assert look.known.name == "smollm2-360m-instruct"
        [choice] = look.choices
        assert isinstance(choice.found, Plan)
        assert choice.found.context > 0
        assert "layers are in RAM" in choice.where
        look = await made.inspect_repository("org/m-GGUF")
        assert [(one.label, one.size) for one in look.choices] == [("m-Q4_K_M", 13), ("m-Q8_0", 26)]
        await made.get("org/m-GGUF", look.choices[1].files)
        await until(made, "m-Q8_0", State.DONE)
        stand_in.repos[DRAFT].gated = True
        look = await made.inspect_repository(DRAFT)
        assert look.gated
        assert "of weights are loaded whole into RAM" in look.choices[0].where
        look = await made.inspect_repository("org/tiny")
        assert not look.choices[0].runs
        assert "config.json" in look.choices[0].where
        stand_in.repos[TARGET].files["config.json"] = awq(POCKET)
        stand_in.repos[TARGET].__post_init__()
        look = await made.inspect_repository(TARGET)
        assert not look.choices[0].runs
        assert "the weights are stored quantised (awq)" in look.choices[0].where
        del stand_in.repos["org/m-GGUF"].files[names[1]]
        look = await made.inspect_repository("org/m-GGUF")
        assert [one.runs for one in look.choices] == [True, False]
        assert "1 of the 2 parts of m-Q8_0" in look.choices[1].where
        with pytest.raises(UnknownRepository, match="no repository"):
            await made.inspect_repository("../x")


def awq(folder: Path) -> Fixed:
    """The config of a folder, as of weights that were quantised for another engine."""
    config = json.loads((folder / "config.json").read_text())
    return Fixed(json.dumps({**config, "quantization_config": {"quant_method": "awq"}}).encode())


def test_nothing_better_is_suggested_than_what_is_here(tmp_path, monkeypatch):
    settings = Settings(home=tmp_path)
    prepare_home(settings)
    first = suggestion(settings)
    if first is None:
        pytest.skip("this machine has no room for any model of the catalogue")
    model_folder(settings.models_folder / first.entry.name)
    again = suggestion(settings)
    assert again is None or again.entry.parameters > first.entry.parameters
