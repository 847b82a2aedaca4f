"""GGUF headers: what can be read is read, everything else is refused in one sentence."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.placement.plans import forms
from engine.errors import ModelUnusable
from engine.models.gguf.consistency import check_consistent
from engine.models.gguf.header import TYPES, GgufHeader, GgufTensor, read_header, read_parts
from tests.engine.models.gguf import tiny
from tests.engine.models.gguf.families import KINDS, family_gguf
from tests.engine.models.gguf.tiny import (
    BOOL,
    STRING,
    U32,
    assembled,
    info,
    listed,
    one_tensor,
    only,
    pair,
)

ONE = [pair("general.architecture", STRING, "llama")]
HUGE = 2**64 - 1
SPECIAL_VALUES = {"other vocabulary", "weights not finite"}  # the header itself is in order


def refusal(path: Path, data: bytes) -> str:
    with pytest.raises(ModelUnusable) as caught:
        check_consistent(read_parts(tiny.write(path, data)))
    return str(caught.value)


def fault(path: Path) -> str:
    try:
        check_consistent(read_parts(path))
    except ModelUnusable as error:
        return str(error)
    return ""


class TestReading:
    def test_everything_is_found(self, tmp_path: Path) -> None:
        path = tiny.write(tmp_path / "m.gguf")
        header = read_header(path)
        assert header.architecture == "llama"
        assert header.of("block_count") == tiny.LAYERS
        assert header.metadata["tokenizer.ggml.tokens"][:3] == ("<unk>", "<s>", "</s>")
        assert header.metadata["tokenizer.ggml.scores"][3] == -1000.0
        assert [t.name for t in header.tensors] == [name for name, _ in tiny.shapes()]
        assert header.tensors[0].shape == (tiny.WIDTH, tiny.VOCAB)
        last = header.tensors[-1]
        assert header.data_start + last.offset + last.bytes == path.stat().st_size
        assert header.data_start % header.alignment == 0
        check_consistent([header])

    def test_an_independent_reader_agrees(self, tmp_path: Path) -> None:
        gguf = pytest.importorskip("gguf")
        path = tiny.write(tmp_path / "m.gguf")
        header, theirs = read_header(path), gguf.GGUFReader(path)
        assert [t.name for t in header.tensors] == [t.name for t in theirs.tensors]
        found = [header.data_start + t.offset for t in header.tensors]
        assert found == [t.data_offset for t in theirs.tensors]
        assert [t.bytes for t in header.tensors] == [t.n_bytes for t in theirs.tensors]

    def test_sizes_of_types_are_ggmls(self) -> None:
        gguf = pytest.importorskip("gguf")
        table = {int(kind): size for kind, size in gguf.GGML_QUANT_SIZES.items()}
        table.pop(9)  # never stored, and the package is wrong about it
        assert {kind: TYPES[kind][1:] for kind in table} == table

    def test_parts_of_a_split_model(self, tmp_path: Path) -> None:
        count = pair("split.count", U32, 2)
        for part in (1, 2):
            data = only(*ONE, count)
            tiny.write(tmp_path / f"m-0000{part}-of-00002.gguf", data)
        assert len(read_parts(tmp_path / "m-00001-of-00002.gguf")) == 2
        with pytest.raises(ModelUnusable, match="ends in -00001-of-00002"):
            read_parts(tmp_path / "m-00002-of-00002.gguf")
        (tmp_path / "m-00002-of-00002.gguf").unlink()
        with pytest.raises(
            ModelUnusable, match=r"one of 2 parts .* 1 are not beside it, m-00002-of"
        ):
            read_parts(tmp_path / "m-00001-of-00002.gguf")

    @pytest.mark.parametrize("ending", [".gguf", ".GGUF", ".Gguf"])
    def test_parts_are_those_that_their_names_say(self, tmp_path: Path, ending: str) -> None:
        for number, written in ((0, 0), (1, 1), (2, 1)):
            data = only(*ONE, pair("split.count", U32, 3), pair("split.no", U32, written))
            tiny.write(tmp_path / f"m-0000{number + 1}-of-00003{ending}", data)
        with pytest.raises(
            ModelUnusable, match=f"00003-of-00003{ending} is called part 3 of 3 and is"
        ):
            read_parts(tmp_path / f"m-00001-of-00003{ending}")


HEADERS = {
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1"),
    "future version": (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4"),
    "counts that multiply past 2^64": (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60), "claims"),
    "key of no bytes": (only(pair("", U32, 1)), "claims 0 bytes"),
    "key of 2^64 - 1 bytes": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, HUGE), f"claims {HUGE} bytes"
    ),
    "key twice": (only(*ONE, *ONE), "is there twice"),
    "unknown type of value": (only(tiny.text("a") + struct.pack("<I", 13)), "unknown type 13"),
    "a bool of 2": (only(tiny.text("a") + struct.pack("<IB", BOOL, 2)), "neither true nor false"),
    "list of lists": (only(tiny.text("a") + struct.pack("<IIQ", 9, 9, 1)), "unknown type 9"),
    "list of 2^64 - 1": (only(tiny.text("a") + struct.pack("<IIQ", 9, 4, HUGE)), "claims"),
    "text of 2^64 - 1 bytes": (
        only(tiny.text("a") + struct.pack("<IQ", 8, HUGE)), f"claims {HUGE} bytes"
    ),
    "alignment no power of two": (only(pair("general.alignment", U32, 48)), "not a power of two"),
    "alignment 0": (only(pair("general.alignment", U32, 0)), "not a power of two"),
    "alignment of a wrong type": (
        only(pair("general.alignment", STRING, "32")), "not a power of two"
    ),
    "tensor without name": (one_tensor("", (8,)), "claims 0 bytes"),
    "name too long": (one_tensor("n" * 64, (8,)), "claims 64 bytes"),
    "no dimensions": (one_tensor("t", ()), "claims 0 dimensions"),
    "five dimensions": (one_tensor("t", (1,) * 5), "claims 5 dimensions"),
    "dimension of 0": (one_tensor("t", (8, 0)), "impossible shape"),
    "elements past 2^63": (one_tensor("t", (2**32, 2**32)), "impossible shape"),
    "bytes past the file": (one_tensor("t", (2**40,)), "is cut off"),
    "no whole blocks": (one_tensor("t", (33,), 8), "impossible shape"),
    "removed type": (one_tensor("t", (32,), 4), "unknown type 4"),
    "unknown type": (one_tensor("t", (32,), 43), "unknown type 43"),
    "offset not aligned": (one_tensor("t", (8,), 0, 1), "lies at byte 1"),
    "offset 2^64 - 1": (one_tensor("t", (8,), 0, HUGE), "lies at byte"),
    "tensor twice": (
        assembled(ONE, [info("t", (8,)), info("t", (8,), 0, 32)], b"\0" * 64), "is there twice"
    ),
    "other alignment than it says": (
        assembled(
            [*ONE, pair("general.alignment", U32, 64)],
            [info("s", (8,)), info("t", (8,), 0, 32)],
            b"\0" * 128,
            alignment=64,
        ),
        "lies at byte 32 of the weights, not at 64",
    ),
    "not enough data": (one_tensor("t", (64,), weights=b"\0" * 255), "is cut off"),
}  # fmt: skip


@pytest.mark.parametrize("name", HEADERS)
def test_bad_headers(name: str, tmp_path: Path) -> None:
    data, says = HEADERS[name]
    assert says in refusal(tmp_path / "m.gguf", data)


@pytest.mark.parametrize("name", sorted(set(tiny.damaged()) - SPECIAL_VALUES))
def test_damaged_models_are_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", tiny.damaged()[name])
    said = fault(path)
    if said:
        assert said.startswith(str(path))
        assert "\n" not in said
    else:  # a random byte of a token's text or score may well leave a sound header
        assert name.startswith("flips")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("m.gguf-split-a", "join all of them"),
        ("m.gguf.part1of2", "join all of them"),
        ("m.gguf.001", "join all of them"),
        ("m.gguf.crdownload", "has not ended"),
        ("m.gguf.part", "has not ended"),
        ("m.gguf.incomplete", "has not ended"),
        ("part-1.gguf", "get the file again"),
    ],
)
@pytest.mark.parametrize("size", [100, 9000])
def test_what_helps_a_file_that_is_cut_off_is_told_by_its_name(tmp_path, name, said, size):
    path = tiny.write(tmp_path / name, tiny.whole()[:size])
    assert said in fault(path).rpartition(";")[2]


CONTRADICTIONS = {
    "no architecture": (lambda p: b"general.architecture" not in p, None, "architecture is ''"),
    "too many layers": (
        lambda p: b"llama.block_count" not in p, pair("llama.block_count", U32, 3), "promises 3 layers"
    ),
    "heads that do not divide": (
        lambda p: b"head_count_kv" not in p, pair("llama.attention.head_count_kv", U32, 3), "evenly"
    ),
    "epsilon below 0": (
        lambda p: b"rms_epsilon" not in p,
        pair("llama.attention.layer_norm_rms_epsilon", tiny.F32, -1.0), "epsilon is -1.0",
    ),
    "too few scores": (
        lambda p: b"ggml.scores" not in p, listed("tokenizer.ggml.scores", tiny.F32, [0.0]),
        "scores is no list of 320",
    ),
    "no tokens": (lambda p: b"ggml.tokens" not in p, None, "no list of texts"),
    "fewer tokens than rows": (
        lambda p: not any(k in p for k in (b"ggml.tokens", b"ggml.scores", b"ggml.token_type")),
        listed("tokenizer.ggml.tokens", STRING, ["a", "b", "c"]), "its numbers say (64, 3)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions(name: str, tmp_path: Path) -> None:
    keep, instead, says = CONTRADICTIONS[name]
    pairs = [p for p in tiny.metadata() if keep(p)] + ([instead] if instead else [])
    assert says in refusal(tmp_path / "m.gguf", tiny.with_weights(pairs, tiny.shapes(), 0.0))


def test_a_file_that_is_only_a_vocabulary(tmp_path: Path) -> None:
    assert "holds no weights" in refusal(tmp_path / "m.gguf", assembled(tiny.metadata(), [], b""))


@given(at=st.integers(0, 9000), damage=st.binary(min_size=1, max_size=16))
def test_no_damage_leads_to_anything_but_a_refusal(at, damage, tmp_path_factory) -> None:
    base = tiny.whole()
    path = tmp_path_factory.mktemp("fuzz") / "m.gguf"
    said = fault(tiny.write(path, base[:at] + damage + base[at + len(damage) :]))
    assert str(path) in said or not said
    path.unlink()


def kind(*pairs, tensors=("token_embd.weight",)) -> GgufHeader:
    named = {"general.architecture": "llama", **dict(pairs)}
    listed = tuple(GgufTensor(name, (1,), 0, 0, 4) for name in tensors)
    return GgufHeader(Path("m.gguf"), 3, named, listed, 32, 0)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (kind(("general.type", "adapter"), ("general.base_model.0.name", "Base")), r"adapter \(LoRA\).*Base"),
        (kind(tensors=("blk.0.attn_q.weight.lora_a",)), "adapter"),
        (kind(("general.architecture", "clip")), "sees pictures"),
        (kind(("general.type", "mmproj")), "sees pictures"),
        (kind(("general.type", "imatrix")), "imatrix"),
        (kind(("general.architecture", "nomic-bert")), "embeddings"),
        (kind(("llama.pooling_type", 3)), "embeddings"),
        (kind(("llama.pooling_type", 4)), "classifier"),
        (kind(tensors=("token_embd.weight", "cls.output.weight")), "classifier"),
        (kind(("general.architecture", "flux")), "pictures"),
        (kind(("tokenizer.ggml.tokens", ("a",)), tensors=()), "holds no weights"),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_is_called_what_it_is(header, said):
    """An adapter was "damaged"; getting it again would not have helped."""
    with pytest.raises(ModelUnusable, match=said) as caught:
        check_consistent((header,))
    assert "again" not in str(caught.value)


NUMBERS = [
    ("gemma4", {"attention.shared_kv_layers": 5}, "shared_kv_layers is 5, it has 6 layers"),
    ("gemma4", {"attention.shared_kv_layers": 7}, "shared_kv_layers is 7, it has 6 layers"),
    ("gemma4", {"attention.shared_kv_layers": 1}, "read the caches of layers 3 and 4"),
    ("gemma4", {"attention.shared_kv_layers": 4}, "read the caches of layers 0 and 1"),
    ("gpt-oss", {"attention.sliding_window": 1 << 31}, "sliding_window is 2147483648"),
    ("gemma3", {"attention.sliding_window_pattern": [False] * 6}, "has no layer with one"),
    ("gemma4", {"rope.dimension_count": 66}, "rope.dimension_count is 66, and heads have 64"),
    ("gemma4", {"rope.dimension_count_swa": 64}, "dimension_count_swa is 64, and heads have 32"),
    ("gemma4", {"rope.dimension_count_swa": 7}, "7 dimensions, an odd number"),
    ("qwen35", {"rope.dimension_sections": [20, 20, 0, 0]}, "heads have 32 numbers"),
    ("qwen3moe", {"expert_used_count": 0}, "expert_used_count is 0, it has 8 experts"),
    ("qwen3moe", {"expert_used_count": [9] * 6}, "expert_used_count is 9, it has 8 experts"),
    ("qwen3moe", {"expert_count": 0}, "expert_used_count is 2, it has 0 experts"),
    ("gemma3", {"expert_group_count": 2}, "expert_group_count is 2, it has 0 experts"),
    ("qwen3moe", {"expert_group_count": 3}, "expert_group_count is 3, it has 8 experts"),
    ("qwen3moe", {"expert_group_count": 8}, "expert_group_count is 8, it has 8 experts"),
    ("qwen3moe", {"expert_group_count": 2}, "expert_group_used_count is 0, it has 2 groups"),
    ("qwen3moe", {"nextn_predict_layers": 7}, "nextn_predict_layers is 7, it has 6 layers"),
]


@pytest.mark.parametrize(("family", "numbers", "said"), NUMBERS)
def test_numbers_at_which_llama_cpp_would_end_the_process_are_told(family, numbers, said, tmp_path):
    """Also by a plan, which asks the library in this process."""
    file = family_gguf(tmp_path / "m.gguf", family, **numbers)
    with pytest.raises(ModelUnusable, match=re.escape(said)):
        forms("m", file, "llama_cpp")


@pytest.mark.parametrize("family", KINDS)
def test_no_number_of_a_good_file_is_refused(family, tmp_path):
    check_consistent(read_parts(family_gguf(tmp_path / "m.gguf", family)))
