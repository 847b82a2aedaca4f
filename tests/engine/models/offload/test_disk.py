"""The disk source: right weights in any order, bounded memory, every fault reported; pieces of maps."""

import gc
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.errors import LayerUnreadable, ModelUnusable
from engine.interfaces.target import MapParts
from engine.models.offload.direct_files import read_into
from engine.models.offload.disk import BUFFERS, FEWEST_ROWS, MOST_ROWS, Disk, divide, open_disk
from engine.models.offload.shards import PAGE, cut
from engine.models.offload.tensor_ranges import TensorRange, locate
from tests.engine.models.offload.conftest import LAYERS, LIMIT, MEGABYTE, Stored


def whole(source: Disk, layer: int, name: str, rows: int, width: int) -> torch.Tensor:
    """A map put together from its blocks, which must cover every row once."""
    found = torch.full((rows, width), torch.nan)
    for block in source.blocks(layer, name):
        part = found[block.first : block.first + len(block.weight)]
        assert part.isnan().all()
        part.copy_(block.weight)
    return found


def check(source: Disk, stored: Stored, layer: int, name: str) -> None:
    wanted = stored.map(layer, name)
    assert torch.equal(whole(source, layer, name, *wanted.shape), wanted)


def test_every_map_is_what_is_stored_pass_after_pass(stored: Stored) -> None:
    """Most of them are streamed: otherwise the tests below would test what stays."""
    source = open_disk(stored.streaming)
    assert source.streamed > LIMIT // 4
    assert source.resident > 0
    for _ in range(3):
        full_pass(source, stored)
    source.close()


@pytest.mark.parametrize("order", [(5, 0, 3, 3, 1), (4, 5, 4, 5), (2, 5, 0)])
def test_any_order_gives_the_right_weights(stored: Stored, order: tuple[int, ...]) -> None:
    source = open_disk(stored.streaming)
    for layer in order:
        check(source, stored, layer, "down")
    source.close()


def test_a_map_that_is_left_in_the_middle_does_no_harm(stored: Stored) -> None:
    source = open_disk(replace(stored.streaming, limit=12 * MEGABYTE))
    for _ in range(2 * BUFFERS):
        next(iter(source.blocks(LAYERS - 1, "gate_up")))
    check(source, stored, LAYERS - 2, "gate_up")
    source.close()


def test_what_stays_and_what_moves_fit_the_limit(stored: Stored) -> None:
    for limit in (10, 12, 16):
        source = open_disk(replace(stored.streaming, limit=limit * MEGABYTE))
        room = divide(limit * MEGABYTE, 0, 1024)
        assert source.resident + BUFFERS * room.buffer <= limit * MEGABYTE
        total = sum(t.nbytes for t in stored.tensors.values())
        assert source.resident + source.streamed == total
        source.close()


def test_a_limit_with_room_for_all_streams_nothing(stored: Stored) -> None:
    reads: list[int] = []

    def read(descriptor: int, buffer: memoryview, offset: int) -> int:
        reads.append(offset)
        return read_into(descriptor, buffer, offset)

    source = Disk(replace(stored.streaming, limit=100 * MEGABYTE), read=read)
    at_first = len(reads)
    check(source, stored, 0, "gate_up")
    check(source, stored, LAYERS - 1, "down")
    assert (source.streamed, source.whole, len(reads)) == (0, LAYERS, at_first)


def test_too_small_a_limit_is_refused_with_both_numbers(stored: Stored) -> None:
    with pytest.raises(ModelUnusable, match=r"5 MB is too small.* need \d+ MB"):
        open_disk(replace(stored.streaming, limit=5 * MEGABYTE))


def test_readers_work_ahead_around_the_end(stored: Stored) -> None:
    faulty = Faulty()
    source = Disk(replace(stored.streaming, limit=12 * MEGABYTE), read=faulty)
    full_pass(source, stored)
    wait_for(lambda: source_idle(source))
    faulty.fault = OSError(5, "Input/output error")  # what was read ahead needs no disk
    check(source, stored, *first_moving(source, stored))
    source.close()


def first_moving(source: Disk, stored: Stored) -> tuple[int, str]:
    """The first map of which not every row stays in memory."""
    left = source.resident
    for parts in stored.streaming.maps:
        left -= stored.map(parts.layer, parts.name).nbytes
        if left < 0:
            return parts.layer, parts.name
    raise AssertionError("nothing moves")


def source_idle(source: Disk) -> bool:
    """Whether every buffer is filled: nothing is left to read ahead."""
    return source.buffered == BUFFERS


def wait_for(condition) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Faulty:
    """Reads that fail from the moment ``fault`` is set."""

    def __init__(self) -> None:
        self.fault: BaseException | None = None
        self.short = False
        self.held = threading.Event()
        self.held.set()

    def __call__(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        self.held.wait()
        if self.fault is not None:
            raise self.fault
        return read_into(descriptor, buffer, offset) - (4096 if self.short else 0)


def full_pass(source: Disk, stored: Stored) -> None:
    for layer in range(LAYERS):
        check(source, stored, layer, "gate_up")
        check(source, stored, layer, "down")


def two_passes(source: Disk, stored: Stored) -> None:
    """The first may still find what was read ahead."""
    full_pass(source, stored)
    full_pass(source, stored)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(5, "Input/output error"), r"layer \d+ could not be read.*Input/output error"),
        (OSError(116, "Stale file handle"), r"layer \d+ could not be read.*Stale file handle"),
        (MemoryError("no memory"), "ended unexpectedly"),
        ("short", r"gave \d+ of \d+ bytes"),
    ],
)
def test_a_fault_names_the_layer_and_passes(
    stored: Stored, fault: BaseException | str, message: str
) -> None:
    faulty = Faulty()
    source = Disk(stored.streaming, read=faulty)
    full_pass(source, stored)
    if isinstance(fault, BaseException):
        faulty.fault = fault
    else:
        faulty.short = True
    with pytest.raises(LayerUnreadable, match=message):
        two_passes(source, stored)
    faulty.fault, faulty.short = None, False
    two_passes(source, stored)
    source.close()


def test_a_disk_that_never_answers_does_not_hang_the_request(stored: Stored) -> None:
    faulty = Faulty()
    source = Disk(stored.streaming, read=faulty, patience=0.3)
    faulty.held.clear()
    with pytest.raises(LayerUnreadable, match="no answer"):
        full_pass(source, stored)
    faulty.held.set()
    full_pass(source, stored)
    source.close()


def test_waiting_for_the_disk_is_counted(stored: Stored) -> None:
    faulty = Faulty()
    source = Disk(stored.streaming, read=faulty)
    full_pass(source, stored)
    wait_for(lambda: source_idle(source))
    before = source.waited
    check(source, stored, source.whole, "gate_up")  # it was read ahead
    assert source.waited - before < 0.1
    faulty.held.clear()
    threading.Timer(0.3, faulty.held.set).start()
    two_passes(source, stored)
    assert source.waited - before > 0.2
    assert source.ahead <= LIMIT // 3
    source.close()


def test_a_file_that_was_replaced_stays_the_one_that_was_opened(stored: Stored) -> None:
    source = open_disk(stored.streaming)
    file = stored.file_of(LAYERS - 1)
    other = file.with_suffix(".new")
    other.write_bytes(b"something else")
    other.replace(file)
    two_passes(source, stored)
    source.close()


def test_a_dropped_source_ends_its_readers(stored: Stored) -> None:
    def readers() -> int:
        return sum(thread.name == "layer reader" for thread in threading.enumerate())

    before = readers()
    source = open_disk(stored.streaming)
    full_pass(source, stored)
    assert readers() > before
    del source
    gc.collect()
    wait_for(lambda: readers() <= before)


def test_without_direct_reads_the_weights_are_the_same(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.models.offload.direct_files._DIRECT", 0)
    source = open_disk(stored.streaming)
    two_passes(source, stored)
    source.close()


LIMITS = st.integers(1 << 20, 1 << 37)


@given(limit=LIMITS, fixed=st.integers(0, 1 << 32), row=st.integers(1, 1 << 24))
def test_the_parts_fit_the_limit(limit: int, fixed: int, row: int) -> None:
    try:
        room = divide(limit, fixed, row)
    except ModelUnusable:
        assume(False)
    assert fixed + BUFFERS * room.buffer + room.held + room.widest * row <= limit
    assert room.held >= 0
    assert FEWEST_ROWS <= room.widest <= MOST_ROWS


@given(limit=LIMITS, row=st.integers(1, 1 << 20))
def test_more_memory_never_means_shorter_passes(limit: int, row: int) -> None:
    try:
        less = divide(limit, 0, row)
    except ModelUnusable:
        assume(False)
    assert divide(2 * limit, 0, row).widest >= less.widest


# Pieces: every row once, every span on pages and inside the bound.


@given(
    rows=st.lists(st.integers(1, 700), min_size=1, max_size=3),
    columns=st.integers(1, 3000),
    start=st.integers(0, 10_000),
    most=st.integers(4 * PAGE, 40 * PAGE),
)
def test_pieces_tile_their_map(rows: list[int], columns: int, start: int, most: int) -> None:
    extents = {
        str(i): TensorRange(Path("f"), start, count, columns, torch.float32)
        for i, count in enumerate(rows)
    }
    pieces = cut([MapParts(0, "m", tuple(extents))], extents, most)[0, "m"]
    following = 0
    for piece in pieces:
        assert piece.first == following
        following += piece.rows
        first, size = piece.span
        assert first % PAGE == 0
        assert size % PAGE == 0
        assert first <= piece.start
        assert piece.start + piece.size <= first + size
        assert size <= most or piece.rows == 1
    assert following == sum(rows)


def test_tensors_are_found_where_their_bytes_are(stored: Stored) -> None:
    found = locate(stored.streaming.files)
    assert set(found) == set(stored.tensors)  # the vectors are left out
    for name, extent in found.items():
        with extent.file.open("rb") as file:
            file.seek(extent.start)
            data = bytearray(file.read(extent.size))
        read = torch.frombuffer(data, dtype=extent.dtype).view(extent.rows, extent.columns)
        assert torch.equal(read, stored.tensors[name])


def test_a_tensor_that_cannot_be_streamed_is_named() -> None:
    with pytest.raises(ModelUnusable, match=r"lm\.weird cannot be streamed"):
        cut([MapParts(0, "m", ("lm.weird",))], {}, 10 * PAGE)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"\xff" * 100)
    with pytest.raises(ModelUnusable, match="not a readable safetensors file"):
        locate([file])
