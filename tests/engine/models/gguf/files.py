"""Real GGUF files for tests: the bundled models exported, and random ones of any shape."""

from engine.models.gguf.export import open_source, write_gguf
from engine.models.gguf.library import llama_library
from engine.request import ModelSpec
from tests.engine.models.conversations import SLOTS
from tests.engine.models.gguf.tiny import (
    F32,
    I32,
    STRING,
    U32,
    listed,
    pair,
    with_weights,
    write,
)


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
    numbers = {
        "context_length": context, "embedding_length": hidden, "block_count": layers,
        "feed_forward_length": hidden, "vocab_size": len(tokens),
        "attention.head_count": 2, "attention.head_count_kv": 2,
    }  # fmt: skip
    if head is not None:
        numbers |= {"attention.key_length": head, "attention.value_length": head}
    pairs = [
        pair("general.architecture", STRING, "llama"),
        *(pair(f"llama.{name}", U32, number) for name, number in numbers.items()),
        pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "gpt-2"),
        listed("tokenizer.ggml.tokens", STRING, tokens),
        listed("tokenizer.ggml.token_type", I32, [1] * len(tokens)),
        listed("tokenizer.ggml.merges", STRING, ["t 0"]),
        pair("tokenizer.ggml.bos_token_id", U32, 0),
        pair("tokenizer.ggml.eos_token_id", U32, 1),
    ]
    inner = 2 * head if head else hidden
    shapes = {"token_embd": (len(tokens), hidden), "output_norm": (hidden,)}
    for i in range(layers):
        shapes |= {f"blk.{i}.attn_{name}": (inner, hidden) for name in ("q", "k", "v")}
        shapes |= {f"blk.{i}.ffn_{name}": (hidden, hidden) for name in ("gate", "up", "down")}
        shapes[f"blk.{i}.attn_output"] = (hidden, inner)
        shapes |= {f"blk.{i}.{name}_norm": (hidden,) for name in ("attn", "ffn")}
    weights = ((f"{name}.weight", shape) for name, shape in shapes.items())
    return write(out, with_weights(pairs, weights, 0.3))
