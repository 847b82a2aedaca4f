"""Which files are fetched of which kind of repository."""

import pytest

from app.errors import UnknownRepository
from app.models.hub.digest import Digest, Kind
from app.models.hub.repository import RemoteFile, Repository
from app.models.hub.selection import choose_files, model_name

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
