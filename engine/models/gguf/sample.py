"""A small Llama without a meaning as a GGUF file, to measure passes with."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Eight layers: llama.cpp's mixed types then give half of them more bits, as in models of any size.
LAYERS, HIDDEN, FORWARD, HEADS, KV_HEADS, VOCAB, CONTEXT = 8, 1024, 3072, 16, 4, 4096, 512
SPREAD = 0.02  # of the weights, about that of trained ones


def write_sample(out: Path, layers: int = LAYERS) -> None:
    """Write the file in f16: 100 million weights in eight layers."""
    from gguf import GGUFWriter

    writer = GGUFWriter(out, "llama")
    try:
        writer.add_context_length(CONTEXT)
        writer.add_embedding_length(HIDDEN)
        writer.add_block_count(layers)
        writer.add_feed_forward_length(FORWARD)
        writer.add_head_count(HEADS)
        writer.add_head_count_kv(KV_HEADS)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(VOCAB)
        writer.add_file_type(1)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list([f"t{token}" for token in range(VOCAB)])
        writer.add_token_types([1] * VOCAB)
        writer.add_token_merges(["t 0"])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        for name, tensor in _tensors(layers):
            writer.add_tensor(f"{name}.weight", tensor)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _tensors(layers: int) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Only the first layer has numbers: zeros take a pass as long, and are quantised at once."""
    numbers = np.random.default_rng(0)
    ones, narrow = np.ones(HIDDEN, np.float32), HIDDEN // HEADS * KV_HEADS
    shapes = {
        "attn_q": (HIDDEN, HIDDEN), "attn_k": (narrow, HIDDEN), "attn_v": (narrow, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN), "ffn_gate": (FORWARD, HIDDEN), "ffn_up": (FORWARD, HIDDEN),
        "ffn_down": (HIDDEN, FORWARD),
    }  # fmt: skip

    def drawn(shape: tuple[int, int]) -> NDArray[np.generic]:
        return (SPREAD * numbers.standard_normal(shape, np.float32)).astype(np.float16)

    yield "token_embd", drawn((VOCAB, HIDDEN))
    for number in range(layers):
        yield from ((f"blk.{number}.{part}_norm", ones) for part in ("attn", "ffn"))
        for name, shape in shapes.items():
            yield (
                f"blk.{number}.{name}",
                drawn(shape) if not number else np.zeros(shape, np.float16),
            )
    yield "output_norm", ones
