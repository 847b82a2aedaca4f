"""The kernels in C: near the plain map, the same bits for a row in passes of any width, absent without fuss."""

import ctypes
import subprocess

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.decoder.decoder import Dense
from engine.models.own.precision import FULL, INT8, read
from engine.platform.instructions import instruction_sets
from engine.platform.native_linear import bfloat16_kernel, int8_kernel
from engine.platform.onednn_int8 import Rounded
from engine.platform.onednn_linear import most_alike
from engine.request import ModelSpec
from tests.bundled import POCKET

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    found = bfloat16_kernel(tmp_path_factory.mktemp("kernel"))
    if found is None:
        pytest.skip("this processor does not multiply bfloat16, or there is no C compiler")
    return found


def dense(out, into, *, bias=False):
    generator = torch.Generator().manual_seed(out)
    weight = torch.randn(out, into, generator=generator).bfloat16()
    return Dense(weight, torch.randn(out, generator=generator).bfloat16() if bias else None)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("out", "into"), [(33, 127), (576, 1536), (80, 64), (16, 17)])
@pytest.mark.parametrize("rows", [1, 7, 40, 130])
def test_a_product_is_the_plain_one(kernel, bias, out, into, rows):
    plain = dense(out, into, bias=bias)
    x = torch.randn(rows, into).bfloat16()
    wanted = x.double() @ plain.weight.double().t()
    if plain.bias is not None:
        wanted += plain.bias.double()
    found = kernel.map(plain)(x.float())
    assert (found.double() - wanted).abs().max() < 1e-4 * into**0.5
    assert kernel.map(plain)(x.view(1, rows, into)).shape == (1, rows, out)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(shape=st.sampled_from([(64, 64), (33, 127), (576, 1536)]), rows=st.integers(1, 200))
def test_a_row_has_the_same_bits_alone(kernel, shape, rows):
    linear = kernel.map(dense(*shape))
    x = torch.randn(rows, shape[1])
    together = linear(x)
    for row in {0, rows // 2, rows - 1}:
        assert torch.equal(linear(x[row : row + 1])[0], together[row])


def test_what_is_not_a_number_stays_visible(kernel):
    x = torch.randn(3, 64)
    x[1, 40] = float("nan")
    found = kernel.map(dense(64, 64))(x)
    assert found[[0, 2]].isfinite().all()
    assert not found[1].isfinite().any()


def test_without_a_compiler_there_is_no_kernel_and_models_load(monkeypatch, tmp_path):
    monkeypatch.setattr("engine.platform.native_linear.shutil.which", lambda name: None)
    assert int8_kernel(tmp_path) is None
    assert bfloat16_kernel(tmp_path) is None
    for weights in (FULL, INT8):
        read(ModelSpec("p", str(POCKET), dtype="bfloat16", weights=weights), CPU)


@pytest.mark.parametrize("made", [int8_kernel, bfloat16_kernel])
def test_a_compiler_that_fails_is_told_of(monkeypatch, tmp_path, caplog, made):
    monkeypatch.setattr("engine.platform.native_linear.multiplies_int8", lambda: True)
    monkeypatch.setattr("engine.platform.native_linear.instruction_sets", lambda: ("amx_bf16",))
    monkeypatch.setattr("engine.platform.native_linear.FLAGS", ("--no-such-flag",))
    assert made(tmp_path) is None
    assert "could not be compiled" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_library_is_compiled_once(monkeypatch, tmp_path):
    if int8_kernel(tmp_path) is None:
        pytest.skip("this processor has no products of bytes, or there is no C compiler")
    (library,) = tmp_path.iterdir()
    written = library.stat().st_mtime_ns
    assert int8_kernel(tmp_path) is not None
    assert library.stat().st_mtime_ns == written


def test_the_kernel_is_still_wanted(kernel):
    """torch sums more rows than 32 in another order; once it does not, the kernel is for speed alone."""
    plain = dense(576, 1536)
    assert most_alike(kernel.map(plain), plain.weight) is None


SHAPES = """
#include <immintrin.h>
#include <stdint.h>
static uint8_t shapes[64] __attribute__((aligned(64)));
void load_shapes(void) {
    shapes[0] = 1;
    ((uint16_t *)(shapes + 16))[2] = 32;
    shapes[48 + 2] = 8;
    _tile_loadconfig(shapes);
}
int same_shapes(void) {
    uint8_t now[64];
    _tile_storeconfig(now);
    int same = 1;
    for (int i = 0; i < 64; i++) same &= now[i] == shapes[i];
    return same;
}
"""


@pytest.mark.skipif("amx_bf16" not in instruction_sets(), reason="this processor has no tiles")
@pytest.mark.parametrize("rows", [1, 40])
def test_tiles_that_others_configured_stay_as_they_were(kernel, tmp_path, rows):
    """llama.cpp configures them once in a thread; it would multiply other shapes from then on, or die."""
    source = tmp_path / "shapes.c"
    source.write_text(SHAPES)
    library = tmp_path / "shapes.so"
    flags = ["-O1", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", library, source], check=True)
    others = ctypes.CDLL(str(library))
    kernel.map(dense(64, 64))(torch.randn(rows, 64))  # asks for leave to use tiles
    others.load_shapes()
    kernel.map(dense(64, 64))(torch.randn(rows, 64))
    Rounded.of(dense(64, 64)).packed(int8_kernel(tmp_path))(torch.randn(rows, 64))
    assert others.same_shapes()
