"""Write a safetensors checkpoint as a GGUF file, in full precision or quantised by llama.cpp."""

import ctypes
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.decoder.checkpoint import Checkpoint
from engine.decoder.config import read_config
from engine.decoder.families import FAMILIES
from engine.decoder.family import Family
from engine.errors import ModelUnusable
from engine.models.gguf.file_types import FILE_TYPES
from engine.models.gguf.library import llama_library
from engine.platform.cores import usable_threads

LONGEST_MESSAGE = 300  # characters of llama.cpp's error
_DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_SPECIALS = ("bos", "eos", "unk", "pad")


@dataclass(frozen=True, slots=True)
class Source:
    """A folder that can be written as GGUF."""

    folder: Path
    config: Mapping[str, Any]
    family: Family
    checkpoint: Checkpoint

    @property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return sum(int(np.prod(self.checkpoint.shape(n))) for n in self.checkpoint.names)


def open_source(folder: Path) -> Source:
    """Read the headers of a folder; raises ModelUnusable for what cannot be exported."""
    config = read_config(folder)
    family = FAMILIES.get(config["model_type"])
    if family is None or not family.gguf:
        able = ", ".join(name for name, other in FAMILIES.items() if other.gguf)
        raise ModelUnusable(
            f"{folder}: the family {config['model_type']!r} cannot be exported; families that can: "
            f"{able}"
        )
    rope = _rope(config).get("rope_type", "default")
    if rope not in ("default", "linear"):
        raise ModelUnusable(
            f"{folder}: rotary scaling {rope!r} cannot be exported; only models without, or with "
            "linear scaling, can"
        )
    return Source(folder, config, family, Checkpoint(folder))


def write_gguf(source: Source, kind: str, pre: str, out: Path) -> Iterator[tuple[int, int]]:
    """Write ``out`` with weights of type ``kind`` (f32, f16 or bf16); yields (tensors, of all).

    ``pre`` is llama.cpp's name of the rule that cuts text into words. Raises ModelUnusable.
    """
    from gguf import GGUFWriter

    writer = GGUFWriter(out, source.family.gguf)
    try:
        _add_numbers(writer, source)
        writer.add_file_type(FILE_TYPES[kind].number)
        _add_vocabulary(writer, source, pre)
        names = _names(source)
        for name, theirs in names:
            shape = source.checkpoint.shape(name)
            dtype = _dtype(shape, kind)
            size = int(np.prod(shape)) * dtype.itemsize
            writer.add_tensor_info(theirs, shape, _numpy_type(dtype), size, _ggml_type(dtype))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for done, (name, _) in enumerate(names, start=1):
            writer.write_tensor_data(_tensor(source, name, kind))
            yield done, len(names)
    finally:
        writer.close()


def quantise(source: Path, kind: str, out: Path, progress: Callable[[int, int], None]) -> None:
    """Let llama.cpp make a smaller file of a full one; ``progress(tensors, of all)``; raises ModelUnusable."""
    library = llama_library()
    api, last = library.api, [""]

    def note(_level: int, line: str) -> None:
        if found := re.match(r"\[ *(\d+)/ *(\d+)\]", line):
            progress(int(found[1]), int(found[2]))
        elif line.strip():
            last[0] = line.strip()

    parameters = api.llama_model_quantize_default_params()
    parameters.ftype = FILE_TYPES[kind].number
    parameters.nthread = usable_threads()
    files = (os.fsencode(source), os.fsencode(out))
    with library.listening(note):
        code = api.llama_model_quantize(*files, ctypes.byref(parameters))
    if code:
        raise ModelUnusable(f"llama.cpp cannot make {kind} of it ({last[0][:LONGEST_MESSAGE]})")


def write_vocabulary(source: Source, pre: str, out: Path) -> None:
    """A GGUF file of the vocabulary alone, to see how llama.cpp encodes with it."""
    from gguf import GGUFWriter

    writer = GGUFWriter(out, source.family.gguf)
    _add_numbers(writer, source)
    _add_vocabulary(writer, source, pre)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _add_numbers(writer: Any, source: Source) -> None:
    config = source.config
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim") or hidden // heads
    rope = _rope(config)
    writer.add_name(source.folder.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(hidden)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(float(rope.get("rope_theta", config.get("rope_theta", 10000.0))))
    writer.add_vocab_size(config["vocab_size"])
    if rope.get("rope_type") == "linear":
        from gguf import RopeScalingType

        writer.add_rope_scaling_type(RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(float(rope["factor"]))


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Rotary settings, in either of the two places where transformers writes them."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return {**found, "rope_type": found.get("rope_type", found.get("type", "default"))}


def _add_vocabulary(writer: Any, source: Source, pre: str) -> None:
    tokenizer = _json(source.folder / "tokenizer.json")
    model = tokenizer["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise ModelUnusable(
            f"{source.folder}: its tokenizer is no byte-level BPE, the only kind that can be exported"
        )
    size = source.config["vocab_size"]
    texts, types = [f"[PAD{token}]" for token in range(size)], [_UNUSED] * size
    for text, token in model["vocab"].items():
        texts[token], types[token] = text, _NORMAL
    for added in tokenizer.get("added_tokens", ()):
        token = added["id"]
        texts[token] = added["content"]
        types[token] = _CONTROL if added["special"] else _USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(texts)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_add_bos_token(value=False)  # templates write their own first token
    _add_specials(writer, source, {text: token for token, text in enumerate(texts)})


def _add_specials(writer: Any, source: Source, ids: Mapping[str, int]) -> None:
    config = _json(source.folder / "tokenizer_config.json")
    add = (
        writer.add_bos_token_id, writer.add_eos_token_id,
        writer.add_unk_token_id, writer.add_pad_token_id,
    )  # fmt: skip
    for name, put in zip(_SPECIALS, add, strict=True):
        given = config.get(f"{name}_token")
        text = given.get("content") if isinstance(given, dict) else given
        if isinstance(text, str) and text in ids:
            put(ids[text])
    file = source.folder / "chat_template.jinja"
    template = (
        file.read_text(encoding="utf-8-sig") if file.is_file() else config.get("chat_template")
    )
    if isinstance(template, str):
        writer.add_chat_template(template)


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelUnusable(f"{file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelUnusable(f"{file} holds {type(found).__name__}, not an object")
    return found


def _names(source: Source) -> list[tuple[str, str]]:
    """Each tensor's name in the folder and in the file."""
    from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, get_tensor_name_map

    kinds = {name: kind for kind, name in MODEL_ARCH_NAMES.items()}
    kind: MODEL_ARCH = kinds[source.family.gguf]
    table = get_tensor_name_map(kind, source.config["num_hidden_layers"])
    found = []
    for name in sorted(source.checkpoint.names):
        if name.endswith("rotary_emb.inv_freq"):
            continue
        if name == source.family.names.head and source.config.get("tie_word_embeddings"):
            continue
        theirs = table.get_name(name, try_suffixes=(".weight", ".bias"))
        if theirs is None:
            raise ModelUnusable(f"{source.folder}: the tensor {name} has no place in a GGUF file")
        found.append((name, theirs))
    return found


def _dtype(shape: tuple[int, ...], kind: str) -> torch.dtype:
    """Norms and biases stay in float32: they are small, and llama.cpp wants them so."""
    return torch.float32 if len(shape) == 1 else _DTYPES[kind]


def _numpy_type(dtype: torch.dtype) -> Any:
    return np.dtype(np.uint16 if dtype == torch.bfloat16 else str(dtype)[6:])


def _ggml_type(dtype: torch.dtype) -> Any:
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType.BF16 if dtype == torch.bfloat16 else None


def _tensor(source: Source, name: str, kind: str) -> Any:
    shape = source.checkpoint.shape(name)
    cpu = torch.device("cpu")
    weight = source.checkpoint.read([name], torch.float32, cpu)[name]
    if source.family.gguf_neighbours:
        weight = _neighbours(source.config, name, weight)
    stored = weight.to(_dtype(shape, kind)).contiguous()
    if not bool(torch.isfinite(stored).all()):
        raise ModelUnusable(
            f"{source.folder}: tensor {name} holds numbers that {kind} cannot; choose bf16 or f32"
        )
    return (stored.view(torch.uint16) if stored.dtype == torch.bfloat16 else stored).numpy()


def _neighbours(config: Mapping[str, Any], name: str, weight: Tensor) -> Tensor:
    """Rows of a head from (first halves, second halves) to pairs, as llama.cpp rotates them."""
    heads = config["num_attention_heads"]
    if ".k_proj." in name:
        heads = config.get("num_key_value_heads") or heads
    elif ".q_proj." not in name:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.transpose(1, 2).reshape(weight.shape)
