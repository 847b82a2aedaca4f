"""Files that are no language model, though they are GGUF or have its name: what they are instead."""

from collections.abc import Collection

from engine.errors import ModelUnusable
from engine.models.gguf.header import GgufHeader

_ANOTHER = "choose a model that generates text"
_EMBEDDING = frozenset({
    "bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "eurobert",
    "modern-bert", "gemma-embedding", "llama-embed", "t5encoder",
})  # fmt: skip
_PICTURES = frozenset({
    "sd1", "sdxl", "sd3", "flux", "wan", "hyvid", "hunyuanvideo", "ltxv", "aura", "cosmos", "lumina2",
    "qwen_image", "hidream", "pig", "sd",
})  # fmt: skip
_OTHERS = {
    "clip": "the part of a model that sees pictures (mmproj): give the model's own file",
    "whisper": f"a model that writes down speech; {_ANOTHER}",
    "wavtokenizer-dec": f"a part of a model that speaks; {_ANOTHER}",
    "t5": f"an encoder with a decoder; {_ANOTHER}",
    "controlvector": "a control vector, which changes a model and is none",
    "imatrix": "a table for quantising (imatrix), without weights",
    "eagle3": "a draft head, without a model of its own: give the model that it drafts for",
    "dflash-draft": "a draft head, without a model of its own: give the model that it drafts for",
}
_TYPES = {
    "mmproj": _OTHERS["clip"],
    "imatrix": _OTHERS["imatrix"],
    "vocab": "a vocabulary and holds no weights: get the file of the model",
}
_RANKS, _NO_POOLING = 4, 0  # of llama.cpp's ways to pool


def other_end(family: str) -> str:
    """What a family, by llama.cpp's name, is where it has another end than words; else empty."""
    if family in _PICTURES:
        return f"a model that makes pictures ({family}); {_ANOTHER}"
    if family in _EMBEDDING:
        return f"a model that makes embeddings and writes no text; {_ANOTHER}"
    return _OTHERS.get(family, "")


def check_kind(header: GgufHeader, tensors: Collection[str]) -> None:
    """Raise ModelUnusable where a readable file is of another kind; ``tensors`` are its names."""
    if kind := _kind(header, tensors):
        raise ModelUnusable(f"{header.path} is {kind}")


def _kind(header: GgufHeader, tensors: Collection[str]) -> str:
    said, family = header.metadata.get("general.type"), header.architecture
    if said == "adapter" or any(name.endswith((".lora_a", ".lora_b")) for name in tensors):
        return _adapter(header)
    if not tensors and "tokenizer.ggml.tokens" in header.metadata:
        said = "vocab"
    return other_end(family) or _TYPES.get(str(said)) or _without_text(header, tensors)


def _without_text(header: GgufHeader, tensors: Collection[str]) -> str:
    """Of the right kind of network, but with another end than words."""
    pooling = header.of("pooling_type")
    if pooling == _RANKS or header.of("classifier.output_labels") or "cls.output.weight" in tensors:
        return f"a classifier, which grades texts and writes none; {_ANOTHER}"
    if pooling not in (None, _NO_POOLING):
        return f"a model that makes embeddings and writes no text; {_ANOTHER}"
    return ""


def _adapter(header: GgufHeader) -> str:
    base = header.metadata.get("general.base_model.0.name")
    named = f" {base}" if isinstance(base, str) and base.isprintable() else ""
    return (
        f"an adapter (LoRA), which changes a model and is none: give its model{named}, or a file "
        "into which it was merged"
    )
