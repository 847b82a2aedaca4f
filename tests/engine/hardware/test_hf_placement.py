"""Models that are loaded whole: the format follows the machine, and what does not fit is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.hardware.candidates import MARGIN
from engine.hardware.plan import Refusal
from engine.hardware.planner import HfPlacement, place_hf
from engine.hardware.profile import GIB, Gpu, HardwareProfile, Ram

BILLION = 10**9


def machine(free, *instructions):
    return HardwareProfile("p", 4, instructions, Ram(64 * GIB, int(free) + MARGIN))


@pytest.mark.parametrize(
    ("elements", "free", "instructions", "wanted"),
    [
        (BILLION // 10, 32 * GIB, ("avx512_bf16",), "float32"),  # small: exact sums cost nothing
        (3 * BILLION, 32 * GIB, ("avx512_bf16",), "bfloat16"),
        (3 * BILLION, 32 * GIB, ("avx2",), "float32"),  # it would be computed in float32 anyway
        (3 * BILLION, 8 * GIB, ("avx2",), "bfloat16"),  # all that fits
    ],
)
def test_the_format_suits_the_machine(elements, free, instructions, wanted):
    assert place_hf(machine(free, *instructions), "m", elements) == HfPlacement("cpu", wanted)


def test_a_wish_is_kept_or_refused():
    found = place_hf(machine(32 * GIB, "bf16"), "m", 3 * BILLION, "float32")
    assert found == HfPlacement("cpu", "float32")
    assert isinstance(place_hf(machine(8 * GIB), "m", 3 * BILLION, "float32"), Refusal)


@pytest.mark.parametrize(
    ("elements", "ram", "gpu", "wished", "wanted"),
    [
        (BILLION // 10, 32, 2, None, HfPlacement("cuda", "bfloat16")),
        (3 * BILLION, 32, 8, None, HfPlacement("cuda", "bfloat16")),
        (3 * BILLION, 32, 8, "float32", HfPlacement("cpu", "float32")),  # 11.2 GiB
        (3 * BILLION, 32, 16, "float32", HfPlacement("cuda", "float32")),
        (3 * BILLION, 32, 6, None, HfPlacement("cpu", "float32")),  # no room for a conversation
        (3 * BILLION, 4, 8, None, None),  # it is read through RAM
    ],
)
def test_a_gpu_takes_what_fits_with_its_conversations(elements, ram, gpu, wished, wanted):
    there = replace(machine(ram * GIB), gpus=(Gpu("g", gpu * GIB + MARGIN, 24 * GIB),))
    found = place_hf(there, "m", elements, wished)
    assert found == wanted or (wanted is None and isinstance(found, Refusal))


def test_a_refusal_has_both_numbers_and_what_to_do():
    found = place_hf(machine(4 * GIB), "m", 7 * BILLION)
    assert isinstance(found, Refusal)
    assert found.sentence.startswith("m needs 13.04 GiB in RAM in bfloat16, all of it at once")
    assert "4.00 GiB are free: choose a smaller model" in found.sentence


@given(st.integers(1, 10**11), st.integers(0, 2**38), st.integers(0, 2**38))
def test_more_memory_never_refuses_more(elements, free, more):
    less, rich = (place_hf(machine(size), "m", elements) for size in (free, free + more))
    assert isinstance(less, Refusal) or not isinstance(rich, Refusal)
