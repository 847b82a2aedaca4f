"""Real GGUF files for tests: the bundled models exported, and random ones of any shape."""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from engine.models.gguf.export import open_source, write_gguf
from engine.models.gguf.library import llama_library
from engine.request import ModelSpec

BUNDLED = Path(__file__).parents[4] / "engine/bundled"
SLOTS = 3


def exact(file, **changes):
    """A spec under which nothing is rounded that torch does not round."""
    given = {"slots": SLOTS, "threads": 1, "context": 1024, "kv_type": "f32"} | changes
    return ModelSpec("p", str(file), backend="llama_cpp", flash_attention=False, **given)


def exported(folder, out, kind="f32"):
    """A folder of safetensors as GGUF."""
    for _ in write_gguf(open_source(folder), kind, "gpt-2", out):
        pass
    return out


def quantized(file, out, kind):
    """A GGUF file with its weights rounded by llama.cpp; ``kind`` as in ``Q4_0``."""
    api = llama_library().api
    params = api.llama_model_quantize_default_params()
    params.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.nthread = 1
    assert not api.llama_model_quantize(str(file).encode(), str(out).encode(), params)
    return out


def random_gguf(out, vocab=64, hidden=32, layers=1, context=256, head=None):
    """A Llama with random weights, two heads of ``head`` numbers; ``vocab`` tokens, or these."""
    tokens = [f"t{i}" for i in range(vocab)] if isinstance(vocab, int) else vocab
    random = np.random.default_rng(0)
    writer = GGUFWriter(out, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    if head is not None:
        writer.add_key_length(head)
        writer.add_value_length(head)
    inner, shapes = (
        2 * head if head else hidden,
        {"token_embd": (len(tokens), hidden), "output_norm": (hidden,)},
    )
    for i in range(layers):
        shapes |= {f"blk.{i}.attn_{name}": (inner, hidden) for name in ("q", "k", "v")}
        shapes |= {f"blk.{i}.ffn_{name}": (hidden, hidden) for name in ("gate", "up", "down")}
        shapes[f"blk.{i}.attn_output"] = (hidden, inner)
        shapes |= {f"blk.{i}.{name}_norm": (hidden,) for name in ("attn", "ffn")}
    for name, shape in shapes.items():
        weights = np.ones(shape) if len(shape) == 1 else random.normal(0, 0.3, shape)
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
