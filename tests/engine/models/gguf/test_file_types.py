"""The type of a GGUF file, by its name and by its header."""

import pytest

from engine.models.gguf.file_types import FILE_TYPES, equals_of, type_in_header, type_in_name
from engine.models.gguf.header import read_header
from tests.engine.models.gguf.files import quantized, random_gguf


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("phi-4-Q4_K_M.gguf", "q4_k_m"),
        ("qwen2.5-coder-7b-instruct-q4_0.gguf", "q4_0"),
        ("Qwen3-32B-Q8_0-00001-of-00002.gguf", "q8_0"),
        ("model.IQ4_XS.gguf", "iq4_xs"),
        ("Q6_K/model-Q6_K-00001-of-00002.gguf", "q6_k"),
        ("model-fp16.gguf", "f16"),
        ("model-bf16.gguf", "bf16"),
        ("model-Q4_0_4_8.gguf", None),  # of old versions: another type
        ("model-Q4_K_L.gguf", None),
        ("model-UD-Q4_K_XL.gguf", None),
        ("qwen3-4b.gguf", None),
    ],
)
def test_a_name_tells_the_type_or_nothing(name, kind):
    assert type_in_name(name) == kind


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_K_M", "IQ4_NL", "Q8_0", "BF16"])
def test_llama_cpp_writes_the_number_that_the_table_has(kind, tmp_path):
    full = random_gguf(tmp_path / "full.gguf", hidden=256)
    assert type_in_header(read_header(full)) is None, "the file says nothing"
    made = quantized(full, tmp_path / "made.gguf", kind)
    assert type_in_header(read_header(made)) == kind.lower()


def test_types_of_equal_quality_are_ordered_by_exactness():
    assert equals_of("q4_0") == ("q4_k_m", "iq4_nl", "iq4_xs", "q4_k_s", "q4_1", "q4_0")
    assert all(kind in equals_of(kind) for kind in FILE_TYPES)
