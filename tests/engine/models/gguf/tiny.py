"""A small GGUF model written byte by byte, so that every byte can be written wrong."""

import random
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from app.text.detokenizer import byte_alphabet

VOCAB, WIDTH, FORWARD, LAYERS, HEADS, SHARED = 320, 64, 128, 2, 4, 2
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value) -> bytes:
    if kind == STRING:
        return text(value)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def pair(key: str, kind: int, value) -> bytes:
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def listed(key: str, kind: int, values) -> bytes:
    start = text(key) + struct.pack("<IIQ", ARRAY, kind, len(values))
    return start + b"".join(scalar(kind, value) for value in values)


def metadata() -> list[bytes]:
    words = [f"▁w{i}" for i in range(VOCAB - 259)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), *words]
    scores = [0.0] * 3 + [-1e3] * 256 + [-float(i) for i in range(len(words))]
    return [
        pair("general.architecture", STRING, "llama"),
        pair("llama.context_length", U32, 512),
        pair("llama.embedding_length", U32, WIDTH),
        pair("llama.block_count", U32, LAYERS),
        pair("llama.feed_forward_length", U32, FORWARD),
        pair("llama.attention.head_count", U32, HEADS),
        pair("llama.attention.head_count_kv", U32, SHARED),
        pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("llama.rope.dimension_count", U32, WIDTH // HEADS),
        pair("llama.vocab_size", U32, VOCAB),
        pair("tokenizer.ggml.model", STRING, "llama"),
        listed("tokenizer.ggml.tokens", STRING, tokens),
        listed("tokenizer.ggml.scores", F32, scores),
        listed("tokenizer.ggml.token_type", I32, [2, 3, 3] + [6] * 256 + [1] * len(words)),
        pair("tokenizer.ggml.bos_token_id", U32, 1),
        pair("tokenizer.ggml.eos_token_id", U32, 2),
        pair("tokenizer.chat_template", STRING, TEMPLATE),
    ]


def byte_level(control: Sequence[str], eos: int, template: str = TEMPLATE) -> list[bytes]:
    """The same with these control tokens, one for every byte, and one word."""
    tokens = [*control, *byte_alphabet(), "ab"]
    kinds = [3] * len(control) + [1] * (len(tokens) - len(control))
    return [
        *metadata()[:9],
        pair("tokenizer.ggml.model", STRING, "gpt2"),
        pair("tokenizer.ggml.pre", STRING, "gpt-4o"),
        listed("tokenizer.ggml.tokens", STRING, tokens),
        listed("tokenizer.ggml.token_type", I32, kinds),
        listed("tokenizer.ggml.merges", STRING, ["a b"]),
        pair("tokenizer.ggml.eos_token_id", U32, eos),
        pair("tokenizer.chat_template", STRING, template),
    ]


def shapes() -> list[tuple[str, tuple[int, ...]]]:
    """Rows first, as NumPy has them."""
    narrow = WIDTH // HEADS * SHARED
    found = [("token_embd.weight", (VOCAB, WIDTH)), ("output_norm.weight", (WIDTH,))]
    for layer in range(LAYERS):
        found += [
            (f"blk.{layer}.{name}.weight", shape)
            for name, shape in (
                ("attn_norm", (WIDTH,)), ("attn_q", (WIDTH, WIDTH)), ("attn_k", (narrow, WIDTH)),
                ("attn_v", (narrow, WIDTH)), ("attn_output", (WIDTH, WIDTH)), ("ffn_norm", (WIDTH,)),
                ("ffn_gate", (FORWARD, WIDTH)), ("ffn_up", (FORWARD, WIDTH)),
                ("ffn_down", (WIDTH, FORWARD)),
            )
        ]  # fmt: skip
    return [*found, ("output.weight", (VOCAB, WIDTH))]


def info(name: str | bytes, shape, kind: int = 0, offset: int = 0) -> bytes:
    sizes = b"".join(struct.pack("<Q", size) for size in reversed(shape))
    return text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, offset)


def assembled(pairs, infos, weights: bytes, *, alignment: int = 32) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(pairs)) + b"".join([*pairs, *infos])
    return head + b"\0" * (-len(head) % alignment) + weights


def with_weights(pairs, named: Iterable[tuple[str, tuple[int, ...]]], scale: float) -> bytes:
    """Norms are ones, all else is random."""
    numbers = np.random.default_rng(0)
    infos, weights = [], b""
    for name, shape in named:
        data = np.ones(shape) if "norm" in name else numbers.normal(0, scale, shape)
        infos.append(info(name, shape, 0, len(weights)))
        weights += data.astype("<f4").tobytes()
    return assembled(pairs, infos, weights)


def whole() -> bytes:
    """A model that llama.cpp runs."""
    return with_weights(metadata(), shapes(), 0.25)


def write(path: Path, data: bytes | None = None) -> Path:
    path.write_bytes(whole() if data is None else data)
    return path


def damaged() -> dict[str, bytes]:
    """32 ways to break a file that works: cuts, wild counts, contradictions, random bytes."""
    base = whole()

    def put(at: int, form: str, value) -> bytes:
        return base[:at] + struct.pack(form, value) + base[at + struct.calcsize(form) :]

    def number(key: str, value: int) -> bytes:
        return put(base.index(key.encode()) + len(key) + 4, "<I", value)

    first = base.index(b"token_embd.weight") + len("token_embd.weight") + 4
    broken = {
        "half": base[: len(base) // 2],
        "header cut": base[:100],
        "empty": b"",
        "magic": b"FUGG" + base[4:],
        "version 0": put(4, "<I", 0),
        "version 99": put(4, "<I", 99),
        "tensors 2^64-1": put(8, "<Q", 2**64 - 1),
        "keys 2^64-1": put(16, "<Q", 2**64 - 1),
        "key of 2^63 bytes": put(24, "<Q", 2**63),
        "layers 2^31-1": number("llama.block_count", 2**31 - 1),
        "no heads": number("llama.attention.head_count", 0),
        "other width": number("llama.embedding_length", 128),
        "other vocabulary": number("llama.vocab_size", 5),
        "dimension 2^62": put(first, "<Q", 2**62),
        "type 9999": put(first + 16, "<I", 9999),
        "offset 2^40": put(first + 20, "<Q", 2**40),
        "no context": number("llama.context_length", 0),
        "end token outside": number("tokenizer.ggml.eos_token_id", 4_000_000),
        "odd rotation": number("llama.rope.dimension_count", 7),
        "weights not finite": base[: -WIDTH * VOCAB * 4] + b"\0\0\xc0\x7f" * WIDTH * VOCAB,
    }
    return broken | {f"flips {seed}": _flipped(base, seed, first) for seed in range(12)}


def _flipped(base: bytes, seed: int, most: int) -> bytes:
    rng = random.Random(seed)
    data = bytearray(base)
    for _ in range(8):
        data[rng.randrange(24, most)] = rng.randrange(256)
    return bytes(data)


def only(*pairs: bytes) -> bytes:
    return assembled(pairs, [], b"")


def one_tensor(*described, weights: bytes = b"\0" * 256) -> bytes:
    """A model of one tensor, of which this is said."""
    return assembled([pair("general.architecture", STRING, "llama")], [info(*described)], weights)
