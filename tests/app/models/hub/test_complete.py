"""What could never be loaded is refused before a byte of it is fetched."""

import json

import pytest

from app.models.downloads.manifest import manifests_for
from app.models.hub.complete import check_runs
from app.models.hub.repository import read_repository
from engine.errors import ModelUnusable
from tests.app.models.downloads.hub import Content, Fixed, Repo, model_files

SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
INDEX = "model.safetensors.index.json"


def config(**fields) -> Fixed:
    return Fixed(json.dumps({"model_type": "llama", **fields}).encode())


def index(*names: str) -> Fixed:
    return Fixed(json.dumps({"weight_map": {f"t{name}": name for name in names}}).encode())


def sharded(*names: str) -> dict[str, Content]:
    files = model_files(1, 1000)
    weights = files.pop("model.safetensors")
    return files | dict.fromkeys(names, weights) | {INDEX: index(*SHARDS)}


def without(name: str) -> dict[str, Content]:
    return {other: content for other, content in model_files(1, 1000).items() if other != name}


REFUSED = [
    (without("tokenizer.json"), "it has no tokenizer.json; choose another repository"),
    (without("config.json"), "it has no config.json; choose"),
    (
        {"model-00001-of-00001.safetensors": Content(1, 9), "config.json": config()},
        "it has no tokenizer.json and no model.safetensors; choose",
    ),
    (sharded(SHARDS[0]), f"1 of the 2 files of weights .* are missing, {SHARDS[1]} first"),
    (sharded(*SHARDS) | {INDEX: Fixed(b"{}")}, "names no files"),
    (sharded(*SHARDS) | {INDEX: Fixed(b"[" * 100_000)}, f"{INDEX} cannot be read"),
    ({"m-00001-of-00003.gguf": Content(1, 9), "m-00003-of-00003.gguf": Content(2, 9)}, "2 of the 3 parts of m are not"),
    (model_files(1, 1000) | {"config.json": config(quantization_config={"quant_method": "awq"})}, r"org/tiny: the weights are stored quantised \(awq\)"),
    (model_files(1, 1000) | {"config.json": config(auto_map={"AutoModelForCausalLM": "odd.Odd"})}, "code of its own"),
    (model_files(1, 1000) | {"config.json": Fixed(b"[]")}, "config.json holds no fields"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "said"), REFUSED)
def test_what_cannot_run_is_not_ordered(hub, stand_in, files, said):
    """Gigabytes came, and the model was said to be ready."""
    stand_in.repos["org/tiny"] = Repo(files)
    with pytest.raises(ModelUnusable, match=said):
        manifests_for(hub, (), "org/tiny")
    assert stand_in.fetched() == []


def test_a_single_part_that_a_person_names_is_not_ordered(hub, stand_in):
    names = [f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    stand_in.repos["org/tiny"] = Repo({name: Content(1, 9) for name in names})
    with pytest.raises(ModelUnusable, match=r"or all parts with --file 'm-\*\.gguf'"):
        manifests_for(hub, (), "org/tiny", names[:1])
    assert len(manifests_for(hub, (), "org/tiny", ["m-*.gguf"])[0].files) == 2


def test_what_is_whole_passes(hub, stand_in):
    stand_in.repos["org/tiny"] = Repo(sharded(*SHARDS))
    assert len(manifests_for(hub, (), "org/tiny")[0].files) == 5


def test_what_the_hub_does_not_show_yet_is_left_to_the_download(hub, stand_in):
    broken = model_files(1, 1000) | {"config.json": Fixed(b"[]")}
    stand_in.repos["org/tiny"] = Repo(broken, gated=True)
    repository = read_repository(hub, "org/tiny")
    check_runs(hub, repository, repository.files)
