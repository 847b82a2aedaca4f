"""Which files of a repository are fetched, and what cannot run and is refused."""

import json
from contextlib import nullcontext

import pytest

from app.errors import UnknownRepository
from app.models.downloads.manifest import manifests_for
from app.models.hub.repository import Digest, Kind, RemoteFile, Repository, read_repository
from app.models.hub.selection import check_runs, choose_files, model_name
from engine.errors import ModelUnusable
from tests.app.models.downloads.hub import Content, Fixed, Repo, model_files

DIGEST = Digest(Kind.SHA256, "0" * 64)
SHARDS = ["Q4_K_M/m-Q4_K_M-00001-of-00002.gguf", "Q4_K_M/m-Q4_K_M-00002-of-00002.gguf"]


def repository(*names: str) -> Repository:
    return Repository("org/m", "c" * 40, tuple(RemoteFile(name, 1, DIGEST) for name in names))


def chosen(*names: str, wanted=()) -> list[str]:
    return sorted(file.name for file in choose_files(repository(*names), wanted))


def test_safetensors_come_with_what_loading_reads_and_nothing_else():
    beside = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    weights = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]  # fmt: skip
    rest = ["consolidated.safetensors", "pytorch_model.bin", "modeling_x.py", "README.md", "onnx/model.onnx", "m.gguf"]  # fmt: skip
    assert chosen(*beside, *weights, *rest) == sorted([*beside, *weights])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["m-Q8_0.gguf"], ["m-Q8_0.gguf"]),
        (["m-q4_k_m.gguf", "m-q8_0.gguf"], ["m-q4_k_m.gguf"]),
        ([*SHARDS, "m-Q8_0.gguf"], SHARDS),
        (["m-Q8_0.gguf", "mmproj-m-f16.gguf"], ["m-Q8_0.gguf"]),
        (["m-Q8_0.gguf", "m.imatrix.gguf"], ["m-Q8_0.gguf"]),
        (["m-Q4_K_M.gguf", "sub/mmproj-Q4_K_M.gguf"], ["m-Q4_K_M.gguf"]),
        (["M-Q8_0.GGUF"], ["M-Q8_0.GGUF"]),
    ],
)
def test_of_many_quantisations_the_usual_one_with_all_its_parts(names, found):
    assert chosen(*names) == found


def test_wanted_files_by_name_or_pattern():
    assert chosen("m-Q4_K_M.gguf", "m-Q8_0.gguf", wanted=["*Q8_0*"]) == ["m-Q8_0.gguf"]
    assert chosen(*SHARDS, "m-Q8_0.gguf", wanted=["*Q4_K_M*"]) == SHARDS


@pytest.mark.parametrize(
    ("names", "wanted", "said"),
    [
        (
            ["m-Q5.gguf", "m-Q6.gguf"],
            (),
            "has 2 GGUF files; name one with --file, such as m-Q5.gguf",
        ),
        (["mmproj-F16.gguf", "README.md"], (), "has mmproj-F16.gguf, which belongs beside a model"),
        (["m.imatrix.gguf"], (), "which belongs beside a model, and no model; choose"),
        (
            ["mmproj-F16.gguf", "m-Q5.gguf", "m-Q6.gguf"],
            (),
            "has 2 GGUF files; name one with --file, such as m-Q5.gguf",
        ),
        (
            ["pytorch_model.bin", "config.json"],
            (),
            "takes .* it has pytorch_model.bin, config.json",
        ),
        ([], (), "it has no files"),
        (["m-Q5.gguf"], ["*Q9*"], r"has no file \*Q9\*; it has m-Q5.gguf"),
        (["m-Q5.gguf", "m-Q6.gguf"], ["*.gguf"], "2 GGUF models of org/m match"),
        ([f"{number}.bin" for number in range(9)], (), "and 4 more"),
    ],
)
def test_what_cannot_be_chosen_is_explained(names, wanted, said):
    with pytest.raises(UnknownRepository, match=said):
        chosen(*names, wanted=wanted)


def test_a_model_is_called_after_its_file_or_its_repository():
    assert model_name(repository(*SHARDS), repository(*SHARDS).files) == "m-Q4_K_M"
    assert model_name(repository("model.safetensors"), repository("model.safetensors").files) == "m"
    assert model_name(repository(".x.gguf"), repository(".x.gguf").files) == "org--m"


WEIGHTS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
INDEX = "model.safetensors.index.json"


def config(**fields) -> Fixed:
    return Fixed(json.dumps({"model_type": "llama", **fields}).encode())


def index(*names: str) -> Fixed:
    return Fixed(json.dumps({"weight_map": {f"t{name}": name for name in names}}).encode())


def sharded(*names: str) -> dict[str, Content]:
    files = model_files(1, 1000)
    weights = files.pop("model.safetensors")
    return files | dict.fromkeys(names, weights) | {INDEX: index(*WEIGHTS)}


def without(name: str) -> dict[str, Content]:
    return {other: content for other, content in model_files(1, 1000).items() if other != name}


REFUSED = [
    ({"m.gguf": Fixed(b"")}, "org/tiny: m.gguf is empty; choose another file"),
    (model_files(1, 1000) | {"model.safetensors": Fixed(b"")}, "model.safetensors is empty"),
    (without("tokenizer.json"), "it has no tokenizer.json; choose another repository"),
    (without("config.json"), "it has no config.json; choose"),
    (
        {"model-00001-of-00001.safetensors": Content(1, 9), "config.json": config()},
        "it has no tokenizer.json and no model.safetensors; choose",
    ),
    (sharded(WEIGHTS[0]), f"1 of the 2 files of weights .* are missing, {WEIGHTS[1]} first"),
    (sharded(*WEIGHTS) | {INDEX: Fixed(b"{}")}, "names no files"),
    (sharded(*WEIGHTS) | {INDEX: Fixed(b"[" * 100_000)}, f"{INDEX} cannot be read"),
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


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("nomic-bert", "makes embeddings"),
        ("flux", "makes pictures"),
        ("whisper", "writes down speech"),
    ],
)
def test_a_gguf_of_another_kind_is_not_ordered_where_the_hub_tells(hub, stand_in, family, said):
    stand_in.repos["org/tiny"] = Repo({"m.gguf": Content(1, 9)})
    for told in (None, {"architecture": "llama"}, "odd", {"architecture": [1]}):
        stand_in.repos["org/tiny"].listing = lambda answer, told=told: {**answer, "gguf": told}
        assert manifests_for(hub, (), "org/tiny")
    stand_in.repos["org/tiny"].listing = lambda answer: {**answer, "gguf": {"architecture": family}}
    with pytest.raises(ModelUnusable, match=f"org/tiny is a model that {said}"):
        manifests_for(hub, (), "org/tiny")


def test_a_single_part_that_a_person_names_is_not_ordered(hub, stand_in):
    names = [f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    stand_in.repos["org/tiny"] = Repo({name: Content(1, 9) for name in names})
    with pytest.raises(ModelUnusable, match=r"or all parts with --file 'm-\*\.gguf'"):
        manifests_for(hub, (), "org/tiny", names[:1])
    assert len(manifests_for(hub, (), "org/tiny", ["m-*.gguf"])[0].files) == 2


def test_what_is_whole_passes(hub, stand_in):
    stand_in.repos["org/tiny"] = Repo(sharded(*WEIGHTS))
    assert len(manifests_for(hub, (), "org/tiny")[0].files) == 5


def test_what_the_hub_does_not_show_yet_is_left_to_the_download(hub, stand_in):
    broken = model_files(1, 1000) | {"config.json": Fixed(b"[]")}
    for gated in (True, False):
        stand_in.repos["org/tiny"] = Repo(broken, gated=gated)
        repository = read_repository(hub, "org/tiny")
        with nullcontext() if gated else pytest.raises(ModelUnusable):
            check_runs(hub, repository, repository.files)
    assert stand_in.fetched() == []
