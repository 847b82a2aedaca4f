"""Laws of the attention that set-up compiles into llama.cpp: right, and a row's bits are its own."""

import ctypes
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from engine.models.gguf.library import llama_library

F32, F16 = 0, 1
HIDDEN = -np.inf


@pytest.fixture(scope="module")
def ggml():
    """llama.cpp's tensors; skipped where its attention is not ours."""
    if not llama_library().attends_alike:
        pytest.skip("set-up compiles this attention for processors with AVX2")
    from llama_cpp._ggml import libggml

    for name in ("init", "new_tensor_4d", "flash_attn_ext", "new_graph", "get_data"):
        getattr(libggml, f"ggml_{name}").restype = ctypes.c_void_p
    return libggml


@dataclass(frozen=True)
class Case:
    """q [heads, rows, width], k and v [kv heads, cells, width], mask [rows, cells]."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    mask: np.ndarray
    bias: float = 0.0
    cap: float = 0.0
    sinks: np.ndarray | None = None


class Init(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("bare", ctypes.c_bool))


def attention(ggml, case, threads=2):
    """[rows, heads, width], computed by llama.cpp."""
    q, v = case.q, case.v
    context = ctypes.c_void_p(ggml.ggml_init(Init(256 << 20, None, False)))

    def tensor(array, kind):
        array = np.ascontiguousarray(array, np.float16 if kind == F16 else np.float32)
        sizes = [ctypes.c_int64(size) for size in (1, 1, 1, 1, *array.shape)[-1:-5:-1]]
        made = ctypes.c_void_p(ggml.ggml_new_tensor_4d(context, kind, *sizes))
        ctypes.memmove(ggml.ggml_get_data(made), array.ctypes.data, array.nbytes)
        return made

    scale = ctypes.c_float(1 / math.sqrt(q.shape[-1]))
    made = ggml.ggml_flash_attn_ext(
        context, tensor(q, F32), tensor(case.k, F16), tensor(v, F16), tensor(case.mask, F16), scale,
        ctypes.c_float(case.bias), ctypes.c_float(case.cap),
    )  # fmt: skip
    result = ctypes.c_void_p(made)
    if case.sinks is not None:
        ggml.ggml_flash_attn_ext_add_sinks(result, tensor(case.sinks, F32))
    graph = ctypes.c_void_p(ggml.ggml_new_graph(context))
    ggml.ggml_build_forward_expand(graph, result)
    assert ggml.ggml_graph_compute_with_ctx(context, graph, threads) == 0
    shape = (q.shape[1], q.shape[0], v.shape[-1])
    data = ctypes.cast(ggml.ggml_get_data(result), ctypes.POINTER(ctypes.c_float))
    found = np.ctypeslib.as_array(data, shape).copy()
    ggml.ggml_free(context)
    return found


def reference(case):
    """The same in float64."""
    q, k, v, cap, bias, sinks = case.q, case.k, case.v, case.cap, case.bias, case.sinks
    heads, each = q.shape[0], q.shape[0] // k.shape[0]
    keys, values = (np.repeat(x, each, axis=0).astype(np.float16).astype(float) for x in (k, v))
    scores = q.astype(float) @ keys.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    scores = cap * np.tanh(scores / cap) if cap else scores
    level = 2 ** math.floor(math.log2(heads))
    powers = [h + 1 if h < level else h - level + 0.5 for h in range(heads)]
    slopes = [2.0 ** (-bias * power / level) for power in powers]
    scores = scores + (np.array(slopes)[:, None, None] if bias else 1.0) * case.mask
    extra = np.full(heads, HIDDEN) if sinks is None else sinks.astype(float)
    extra = extra[:, None, None]
    top = np.maximum(scores.max(-1, keepdims=True), extra)
    powers = np.exp(scores - top)
    whole = powers.sum(-1, keepdims=True) + np.exp(extra - top)
    return (powers @ values / whole).transpose(1, 0, 2)


def drawn(seed, shape, rows, cells):
    heads, shared, width, wide = shape
    numbers = np.random.default_rng(seed)
    q = numbers.normal(0, 1, (heads, rows, width)).astype(np.float32)
    k = numbers.normal(0, 1, (shared, cells, width)).astype(np.float16)
    v = numbers.normal(0, 1, (shared, cells, wide)).astype(np.float16)
    places = np.arange(cells)
    causal = np.where(places[None] <= cells - rows + np.arange(rows)[:, None], 0.0, HIDDEN)
    return Case(q, k, v, causal)


SHAPES = (  # heads, those that share keys, width of keys, width of values
    (9, 3, 64, 64), (14, 2, 64, 64), (4, 4, 80, 80), (8, 1, 128, 64), (4, 1, 256, 256), (3, 3, 8, 8),
)  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rows", "cells"), [(1, 1), (1, 700), (5, 37), (16, 530), (33, 64)])
def test_it_is_the_attention_of_the_papers(ggml, rows, cells, shape, threads):
    case = drawn(rows + cells, shape, rows, cells)
    found = attention(ggml, case, threads)
    np.testing.assert_allclose(found, reference(case), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("rows", [1, 6, 20])
def test_sinks_caps_and_slopes_are_held(ggml, rows):
    plain = drawn(rows, (6, 3, 64, 64), rows, 90)
    far = np.where(np.isfinite(plain.mask), np.arange(90)[None] - 90.0, HIDDEN)
    sinks = np.linspace(-2, 3, 6).astype(np.float32)
    for changed in (
        {"cap": 5.0},
        {"sinks": sinks},
        {"cap": 2.0, "sinks": sinks},
        {"mask": far, "bias": 8.0},
    ):
        case = replace(plain, **changed)
        np.testing.assert_allclose(attention(ggml, case), reference(case), atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES[:4])
def test_a_row_has_the_same_bits_whatever_is_beside_it(ggml, shape, threads):
    """Alone, among 2 to 40 rows, and with cells of other conversations between those it sees."""
    case = drawn(1, shape, 40, 600)
    whole = attention(ggml, case, threads)
    numbers = np.random.default_rng(7)
    for many in (1, 2, 3, 7, 8, 9, 17):
        first = int(numbers.integers(0, 40 - many))
        rows = slice(first, first + many)
        part = replace(case, q=case.q[:, rows], mask=case.mask[rows])
        assert (attention(ggml, part, threads) == whole[rows]).all()
    places = np.sort(numbers.permutation(900)[:600])  # the others are somebody else's

    def spread(array):
        wide = numbers.normal(0, 9, (len(array), 900, array.shape[-1])).astype(np.float16)
        wide[:, places] = array
        return wide

    mask = np.full((40, 900), HIDDEN)
    mask[:, places] = case.mask
    among = replace(case, k=spread(case.k), v=spread(case.v), mask=mask)
    assert (attention(ggml, among, threads) == whole).all()


def test_a_row_that_sees_nothing_is_zero(ggml):
    case = drawn(2, (4, 2, 64, 64), 3, 40)
    case.mask[1] = HIDDEN
    found = attention(ggml, case)
    assert not found[1].any()
    assert found[0].any()


def test_what_is_no_number_is_not_hidden(ggml):
    case = drawn(3, (4, 2, 64, 64), 2, 40)
    case.k[0, 5, 3] = np.nan
    found = attention(ggml, case)
    assert np.isnan(found[:, :2]).all()
    assert np.isfinite(found[:, 2:]).all()
