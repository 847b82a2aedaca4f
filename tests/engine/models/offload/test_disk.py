"""The disk source: right weights in any order, bounded memory, every fault reported; pieces of maps."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
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
from tests.waiting import wait_for


class Faulty:
    """Reads that fail from the moment ``fault`` is set, and wait while ``held`` is cleared."""

    def __init__(self) -> None:
        self.fault: BaseException | None = None
        self.short = False
        self.count = 0
        self.held = threading.Event()
        self.held.set()

    def __call__(self, descriptor: int, buffer: memoryview, offset: int) -> int:
        self.held.wait()
        self.count += 1
        if self.fault is not None:
            raise self.fault
        return read_into(descriptor, buffer, offset) - (4096 if self.short else 0)


@pytest.fixture
def faulty() -> Faulty:
    return Faulty()


@pytest.fixture
def opened(stored: Stored, faulty: Faulty) -> Iterator[Callable[..., Disk]]:
    """Opens the source under another limit, or with less patience; every one is closed."""
    with ExitStack() as stack:

        def make(limit: int = LIMIT, **more: float) -> Disk:
            source = Disk(replace(stored.streaming, limit=limit), read=faulty, **more)
            return stack.enter_context(closing(source))

        yield make


def test_every_map_is_what_is_stored_pass_after_pass(stored: Stored) -> None:
    """Most of them are streamed: otherwise the tests below would test what stays."""
    source = open_disk(stored.streaming)
    assert source.streamed > LIMIT // 4
    assert source.resident > 0
    for _ in range(3):
        stored.check(source)
    source.close()


@pytest.mark.parametrize("order", [(5, 0, 3, 3, 1), (4, 5, 4, 5), (2, 5, 0)])
def test_any_order_gives_the_right_weights(opened, stored: Stored, order: tuple[int, ...]) -> None:
    source = opened()
    for layer in order:
        stored.check(source, [layer])


def test_a_map_that_is_left_in_the_middle_does_no_harm(opened, stored: Stored) -> None:
    source = opened(12 * MEGABYTE)
    for _ in range(2 * BUFFERS):
        next(iter(source.blocks(LAYERS - 1, "gate_up")))
    stored.check(source, [LAYERS - 2])


@pytest.mark.parametrize("limit", [10 * MEGABYTE, 12 * MEGABYTE, 16 * MEGABYTE])
def test_what_stays_and_what_moves_fit_the_limit(opened, stored: Stored, limit: int) -> None:
    source = opened(limit)
    assert source.resident + BUFFERS * divide(limit, 0, 1024).buffer <= limit
    total = sum(tensor.nbytes for tensor in stored.tensors.values())
    assert source.resident + source.streamed == total


def test_a_limit_with_room_for_all_streams_nothing(opened, stored: Stored, faulty: Faulty) -> None:
    source = opened(100 * MEGABYTE)
    at_first = faulty.count
    stored.check(source)
    assert (source.streamed, source.whole, faulty.count) == (0, LAYERS, at_first)


def test_too_small_a_limit_is_refused_with_both_numbers(opened) -> None:
    with pytest.raises(ModelUnusable, match=r"5 MB is too small.* need \d+ MB"):
        opened(5 * MEGABYTE)


def test_readers_work_ahead_around_the_end(opened, stored: Stored, faulty: Faulty) -> None:
    source = opened(12 * MEGABYTE)
    stored.check(source)
    wait_for(lambda: source.buffered == BUFFERS)
    faulty.fault = OSError(5, "Input/output error")  # what was read ahead needs no disk
    left, moving = source.resident, iter(stored.streaming.maps)
    while left >= 0:  # to the first map of which not every row stays in memory
        parts = next(moving)
        left -= stored.map(parts.layer, parts.name).nbytes
    found = [block.weight.clone() for block in source.blocks(parts.layer, parts.name)]
    assert torch.equal(torch.cat(found), stored.map(parts.layer, parts.name))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (OSError(5, "Input/output error"), r"layer \d+ could not be read.*Input/output error"),
        (OSError(116, "Stale file handle"), r"layer \d+ could not be read.*Stale file handle"),
        (MemoryError("no memory"), "ended unexpectedly"),
        (None, r"gave \d+ of \d+ bytes"),
    ],
)
def test_a_fault_names_the_layer_and_passes(opened, stored: Stored, faulty, fault, message) -> None:
    source = opened()
    stored.check(source)
    faulty.fault, faulty.short = fault, fault is None
    with pytest.raises(LayerUnreadable, match=message):
        two_passes(source, stored)
    faulty.fault, faulty.short = None, False
    two_passes(source, stored)


def two_passes(source: Disk, stored: Stored) -> None:
    """The first may still find what was read ahead."""
    stored.check(source)
    stored.check(source)


def test_a_disk_that_never_answers_does_not_hang_the_request(opened, stored, faulty) -> None:
    source = opened(patience=0.3)
    faulty.held.clear()
    with pytest.raises(LayerUnreadable, match="no answer"):
        stored.check(source)
    faulty.held.set()
    stored.check(source)


def test_waiting_for_the_disk_is_counted(opened, stored: Stored, faulty: Faulty) -> None:
    source = opened()
    stored.check(source)
    wait_for(lambda: source.buffered == BUFFERS)
    before = source.waited
    assert list(source.blocks(source.whole, "gate_up"))  # it was read ahead
    assert source.waited - before < 0.1
    faulty.held.clear()
    threading.Timer(0.3, faulty.held.set).start()
    two_passes(source, stored)
    assert source.waited - before > 0.2
    assert source.ahead <= LIMIT // 3


def test_a_file_that_was_replaced_stays_the_one_that_was_opened(opened, stored: Stored) -> None:
    source = opened()
    file = stored.streaming.files[LAYERS - 1]
    other = file.with_suffix(".new")
    other.write_bytes(b"something else")
    other.replace(file)
    two_passes(source, stored)


def test_a_dropped_source_ends_its_readers(stored: Stored) -> None:
    def readers() -> int:
        return sum(thread.name == "layer reader" for thread in threading.enumerate())

    before = readers()
    source = open_disk(stored.streaming)
    stored.check(source)
    assert readers() > before
    del source
    gc.collect()
    wait_for(lambda: readers() <= before)


def test_without_direct_reads_the_weights_are_the_same(opened, stored, monkeypatch) -> None:
    monkeypatch.setattr("engine.models.offload.direct_files._DIRECT", 0)
    two_passes(opened(), stored)


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
