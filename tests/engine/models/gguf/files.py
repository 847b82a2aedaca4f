"""Real GGUF files for tests: the bundled models exported, and random ones of any shape."""

import numpy as np
from gguf import GGUFWriter

from engine.models.gguf.export import open_source, write_gguf
from engine.request import ModelSpec
from tests.engine.models.conversations import SLOTS


def exact(file, **changes):
    """A spec under which nothing is rounded that torch does not round."""
    given = {"slots": SLOTS, "threads": 1, "context": 1024, "kv_type": "f32"} | changes
    return ModelSpec("p", str(file), backend="llama_cpp", flash_attention=False, **given)


def exported(folder, out, kind="f32"):
    """A folder of safetensors as GGUF."""
    for _ in write_gguf(open_source(folder), kind, "gpt-2", out):
        pass
    return out


def random_gguf(out, vocab=64, hidden=32, layers=1, context=256, head=None):
    """A Llama with random weights, two heads of ``head`` numbers; ``vocab`` tokens, or these."""
    tokens = [f"t{i}" for i in range(vocab)] if isinstance(vocab, int) else vocab
    random = np.random.default_rng(0)
    numbers = {
        "context_length": context, "embedding_length": hidden, "block_count": layers,
        "feed_forward_length": hidden, "vocab_size": len(tokens),
        "attention.head_count": 2, "attention.head_count_kv": 2,
    }  # fmt: skip
    if head is not None:
        numbers |= {"attention.key_length": head, "attention.value_length": head}
    writer = GGUFWriter(out, "llama")
    for name, number in numbers.items():
        writer.add_uint32(f"llama.{name}", number)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges(["t 0"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    inner = 2 * head if head else hidden
    shapes = {"token_embd": (len(tokens), hidden), "output_norm": (hidden,)}
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
