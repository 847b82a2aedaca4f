"""Footprint: the bytes that a model takes in one form, known before anything is loaded.

A form is a backend and a number format. The figures follow what the targets do: the torch target
packs every linear map into a copy of its own and lets a conversation's cache grow by doubling;
llama.cpp takes one cache for all conversations, and buffers for a prompt chunk or for logits, whichever
are more; what it takes is in memory only as far as conversations have grown.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.hardware.checkpoint_sizes import Stored
from engine.hardware.layers import expert_share
from engine.hardware.shape import ModelShape

BYTES = {"float32": 4, "bfloat16": 2}
INT8 = "int8"  # linear maps in bytes; embedding and cache in bfloat16, rows in float32
TORCH, LLAMA_CPP = "torch", "llama_cpp"
CPU, CUDA = "cpu", "cuda"
_TORCH_PROMPT = 256  # rows of a prompt chunk
_LLAMA_CHUNK = 256  # rows of a prompt chunk
_LLAMA_PROMPT = 328  # the same, rounded up to whole rows of each sequence and branch
_LLAMA_OUTPUTS = 128  # rows of logits that a pass has room for
_LLAMA_CACHE = 2 * 2**30  # bytes; a longer cache is taken for one conversation alone
_FIRST_ROWS = 512  # of a torch cache
_LLAMA_CELLS = 256  # llama.cpp rounds its cache up to a multiple
_LLAMA_BATCH = 256  # rows of the widest pass
_CHECKPOINTS = 4  # of a running state: three that are kept, and one before a pass with a draft
# of a layer besides its last form: as the file has it, its maps joined, freed but not given back
_READ_FORMS = 3
# More of them where layers are so small that the allocator keeps them: mostly one, next to other busy
# processes more than two of 28 MB were seen once.
_KEPT_FORMS, _KEPT_BYTES = 3, 2**25
_PROBABILITIES = 8  # bytes per token of the vocabulary: law and draws of one node, float32


@dataclass(frozen=True, slots=True)
class Passing:
    """Bytes that one pass takes for a while."""

    prompt: int  # rows of a prompt chunk, the widest pass
    row: int  # activations of a row
    cell: int  # of a row, for each token it sees
    head: int  # logits of a row, where the backend keeps room for them
    scored: int  # logits and probabilities of a scored row
    outputs: int = 0  # rows of logits that have a buffer of their own

    def bytes(self, context: int, nodes: int) -> int:
        """The widest pass after a full context, and a tree's logits."""
        if self.outputs:
            logits = self.outputs * self.head
            return (
                max(self.prompt * (self.row + self.cell * context), logits)
                + logits
                + nodes * self.scored
            )
        widest = self.prompt * (self.row + self.cell * context)
        return widest + nodes * (self.row + self.cell * context + self.scored)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one model takes in one form; all in bytes."""

    name: str
    backend: str
    dtype: str
    devices: tuple[str, ...]  # where it can run: cuda, cpu
    layers: tuple[int, ...]  # weights of each
    outside: int  # embedding, final norm, head
    kv_row: int  # keys and values of one token, all layers
    position: int  # rotary table, for each token of the context
    context: int  # tokens, the longest
    passing: Passing
    loading: int = 0  # held besides the weights while they are read
    dense: bool = True
    state: int = (
        0  # running state of a conversation, with those of its last rows that are kept, too
    )
    passed: int = 0  # of them, what a pass computes of a layer before it is kept
    experts: tuple[int, ...] = ()  # of ``layers``, what may lie in RAM where passes run on a GPU
    called: tuple[int, int] = (0, 0)  # experts of a layer, and those that a token goes through
    window: int = 0  # tokens that layers with windows keep; 0: all, or there are none
    aside: int = 0  # bytes of RAM of a conversation's checkpoints
    read: int = (
        0  # of ``outside``, what every token reads: the head; of an embedding it reads a row
    )
    tables: int = 0  # embeddings: llama.cpp leaves them out of a GPU, and reads their rows
    narrow: "Footprint | None" = None  # the same where such layers keep no more than they see

    @property
    def weights(self) -> int:
        """Of all layers and what lies outside them."""
        return sum(self.layers) + self.outside

    def edges(self, context: int, *, gpu: bool) -> int:
        """What lies outside the layers where passes run, with the rotary table of a context."""
        outside = self.read if gpu and self.backend == LLAMA_CPP else self.outside
        return outside + self.position * context

    def token_reads(self, cpu_experts: int = 0) -> tuple[int, int]:
        """What one token reads where passes run, and of experts that are in RAM; of experts only its own."""
        every, used = self.called
        called = [size * used // every if used else size for size in self.experts]
        aside = sum(called[:cpu_experts])
        others = sum(self.layers) - sum(self.experts)
        return self.read + others + sum(called) - aside, aside

    @property
    def streams(self) -> bool:
        """Whether layers may be read again for each pass.

        Experts may not, as a tree needs them all; rounded ones are not stored.
        """
        return self.backend == TORCH and self.dense and self.dtype != INT8

    def cache(self, context: int, nodes: int, batch: int) -> int:
        """Keys and values of ``batch`` conversations at their longest, each with a tree of ``nodes``."""
        if self.backend == LLAMA_CPP:
            return self._cells(context, batch) * self.kv_row + batch * self.state
        return batch * grown_rows(context + nodes) * self.kv_row

    def _cells(self, context: int, batch: int) -> int:
        """Of llama.cpp's one cache; a running state has a cache of its own."""
        if self.state:
            each = context + _LLAMA_OUTPUTS
            return batch * -(-each // _LLAMA_CELLS) * _LLAMA_CELLS
        together = min(batch * context, max(context, _LLAMA_CACHE // max(self.kv_row, 1)))
        return -(-(together + _LLAMA_OUTPUTS) // _LLAMA_CELLS) * _LLAMA_CELLS

    def working(self, context: int, nodes: int, batch: int = 1) -> int:
        """What a pass takes for a while; or, if that is more, a growing cache next to the old one."""
        if self.backend == LLAMA_CPP:  # a pass may see the cells of all conversations
            seen = self._cells(context, 1 if self.state else batch)
            return self.passing.bytes(seen, nodes) + batch * self.passed
        growing = grown_rows(context + nodes) * self.kv_row // 4 if self.backend == TORCH else 0
        return max(self.passing.bytes(context, nodes), growing)


def grown_rows(rows: int) -> int:
    """Rows that a torch cache holds once it has grown to ``rows`` one pass at a time."""
    doublings = (max(rows, 1) - 1) // _FIRST_ROWS
    return int(_FIRST_ROWS << doublings.bit_length())


def torch_footprint(
    name: str, shape: ModelShape, weights: Stored, dtype: str, device: str
) -> Footprint:
    """For the torch target; ``device`` is cpu or cuda."""
    size, mapped, rows = (2, 1, 4) if dtype == INT8 else (BYTES[dtype],) * 3
    # packing gives a tied head a copy of its own, on a processor
    head = weights.head.elements or (weights.embedding.elements if device == CPU else 0)
    tables = weights.embedding.elements + weights.tables.elements
    outside = size * (tables + weights.rest.elements) + mapped * head
    read = size * weights.rest.elements + (mapped * head or size * weights.embedding.elements)
    layers = tuple(mapped * layer.elements for layer in weights.layers)
    # smoothing computes in float32, and scales the head
    loaded = rows * max(layer.elements for layer in weights.layers)
    scaled = head if dtype == INT8 else weights.head.elements
    scores = 4 * shape.heads if device == CUDA else 0  # masked attention is not fused there
    widths = 6 * shape.hidden + 4 * shape.feed_forward
    heads = 2 * (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    passing = Passing(
        prompt=_TORCH_PROMPT,
        row=rows * (widths + heads),
        cell=size + scores,
        head=0,
        scored=shape.vocab * (rows + _PROBABILITIES),
    )
    return Footprint(
        name=name,
        backend=TORCH,
        dtype=dtype,
        devices=(device,),
        layers=layers,
        outside=outside,
        kv_row=size * shape.kv_values,
        position=2 * 4 * shape.head_dim,  # cosines and sines, float32
        context=shape.context,
        passing=passing,
        loading=_loading(loaded) + size * scaled if device == CPU else 0,
        dense=shape.dense,
        read=read,
    )


def _loading(layer: int) -> int:
    """Bytes in addition to the finished layers while the largest one is read."""
    return _READ_FORMS * layer + _KEPT_FORMS * min(layer, _KEPT_BYTES)


def llama_footprint(
    name: str,
    shape: ModelShape,
    weights: Stored,
    dtype: str,
    experts: Sequence[int] | None = None,
) -> Footprint:
    """For llama.cpp, whose weights stay as the file has them; keys and values are float16.

    ``experts`` are the bytes of each layer's, where they are known better than by the shape.
    """
    passing = Passing(
        prompt=_LLAMA_CHUNK if shape.state else _LLAMA_PROMPT,
        row=4 * (max(3 * shape.feed_forward, shape.mixed) + 4 * shape.hidden),
        cell=2 * (bool(shape.kv_values) + bool(shape.window)),  # a mask for each kind of attention
        head=4 * shape.vocab,
        scored=4 * shape.vocab,  # copied; a tree of half as many nodes has probabilities, too
        outputs=_LLAMA_OUTPUTS,
    )
    full = Footprint(
        name=name,
        backend=LLAMA_CPP,
        dtype=dtype,
        devices=(CUDA, CPU),
        layers=tuple(layer.bytes for layer in weights.layers),
        outside=(weights.embedding + weights.tables + weights.head + weights.rest).bytes,
        kv_row=2 * shape.kv_values,
        position=0,
        context=shape.context,
        passing=passing,
        dense=shape.dense,
        state=(1 + shape.rollback) * shape.state,
        passed=(1 + shape.rollback) * shape.layer_state,
        experts=tuple(experts) if experts is not None else _experts(shape, weights),
        called=(shape.experts, shape.used),
        aside=_CHECKPOINTS * shape.state,
        read=(weights.rest + (weights.head if weights.head.elements else weights.embedding)).bytes,
        tables=(weights.embedding + weights.tables).bytes,
    )
    return replace(full, narrow=_narrow(full, shape)) if shape.narrow else full


def _experts(shape: ModelShape, weights: Stored) -> tuple[int, ...]:
    sizes = enumerate(weights.layers)
    return tuple(int(expert_share(shape, index) * layer.bytes) for index, layer in sizes)


def _narrow(full: Footprint, shape: ModelShape) -> Footprint:
    """Cells for the whole text, and others for a window and a pass, of each conversation."""
    row = 2 * shape.narrow
    cells = -(-(shape.window + _LLAMA_BATCH) // _LLAMA_CELLS) * _LLAMA_CELLS
    passing = replace(full.passing, prompt=_LLAMA_CHUNK, cell=2, row=full.passing.row + 2 * cells)
    return replace(
        full,
        passing=passing,
        kv_row=full.kv_row - row,
        state=cells * row,
        window=shape.window,
        aside=_CHECKPOINTS * shape.window * row,
    )
