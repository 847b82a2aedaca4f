"""The cost curve measured at load: machines and disks are moody, and reading overlaps computing."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.early_exit import EXIT_STEP, EarlyExit
from engine.drafting.draft_model import READ_REPEATS, READ_SECONDS, read_seconds
from engine.interfaces.drafter import DrafterResources
from engine.interfaces.target import UNLIMITED, Scores, Target
from engine.runtime.profiling import (
    PROFILE_ROWS,
    WIDER_ROWS,
    StreamedPass,
    fit_rounds,
    fit_streamed,
    look,
    measure,
    profile,
)
from engine.runtime.rounding import ALONE
from engine.speculation.tree import DraftTree
from engine.statistics.pass_cost import PassCost


def fitted(passes: list[StreamedPass]) -> PassCost:
    cost = PassCost()
    fit_streamed(passes, cost)
    return cost


def bound(rows: int, seconds: float, busy: float) -> StreamedPass:
    """A pass that waited for the disk while it was not computing."""
    return StreamedPass(rows, seconds, seconds - busy)


@given(st.lists(st.floats(2.0, 5.0), min_size=4, max_size=4))
def test_a_curve_is_flat_where_every_pass_waited_for_the_disk(paces: list[float]) -> None:
    busy = {1: 0.2, 33: 0.5, 65: 1.0, 129: 1.8}
    passes = [bound(n, s, b) for (n, b), s in zip(busy.items(), paces, strict=True)]
    cost = fitted(passes)
    assert cost.seconds(129) == cost.seconds(1)
    assert cost.hidden == 129


def test_rows_are_hidden_up_to_where_computing_outlasts_reading() -> None:
    passes = [
        bound(1, 2.0, 0.1), bound(65, 2.0, 1.0), StreamedPass(129, 3.0, 0.0),
        StreamedPass(257, 5.0, 0.01),
    ]  # fmt: skip
    cost = fitted(passes)
    assert 65 < cost.hidden < 129
    assert cost.hidden == 97  # half-way from 1.0 to 3.0 seconds of computing
    assert cost.seconds(65) == pytest.approx(2.0)
    assert cost.seconds(129) == pytest.approx(3.0)
    assert cost.seconds(257) == pytest.approx(4.99)


def test_where_nothing_is_waited_for_the_curve_is_what_passes_took() -> None:
    passes = [StreamedPass(1, 1.0, 0.0), StreamedPass(33, 1.5, 0.0), StreamedPass(1, 0.8, 0.0)]
    cost = fitted(passes)
    assert cost.knots == {1: 0.8, 33: 1.5}
    assert cost.hidden == 0


def test_a_disk_slower_than_one_row_of_computing_hides_nothing() -> None:
    cost = fitted([bound(1, 1.0, 0.9), StreamedPass(33, 9.0, 0.0)])
    assert cost.hidden <= 2


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=6))
def test_a_machine_that_slows_down_between_rounds_bends_no_curve(moods: list[float]) -> None:
    curve = {1: 1.0, 8: 1.5, 4: 1.1}
    cost = PassCost()
    fit_rounds([{n: mood * s for n, s in curve.items()} for mood in moods], cost)
    assert cost.seconds(8) / cost.seconds(1) == pytest.approx(1.5)
    assert cost.seconds(4) / cost.seconds(1) == pytest.approx(1.1)


class Clocked:
    """A target whose passes take a given time, on a clock of its own."""

    context = 256
    vocab = 8
    source: None = None
    row_blocks: Sequence[int] = ()

    def __init__(self, seconds: Callable[[int, int], float]) -> None:
        self.now, self.passes, self._seconds = 0.0, Counter[int](), seconds
        self.slots: set[int] = set()

    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        rows = len(trees[0])
        self.slots.update(slots)
        self.now += self._seconds(rows, self.passes[rows])
        self.passes[rows] += 1
        return [Scores(torch.zeros(rows, 1))]

    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        """A prompt takes no time here."""

    def commit(self, slot: int, path: Sequence[int]) -> None:
        """Nothing is kept."""

    def crop(self, slot: int, length: int) -> None:
        """Nothing is kept."""

    def running_state(self, slot: int) -> bytes:
        return b""


class Reading(Clocked):
    """One whose passes take longer after more tokens."""

    context = 4096

    def __init__(self, seconds: Callable[[int, int], float]) -> None:
        super().__init__(lambda rows, _: seconds(rows, self.held))
        self.held = 0

    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        self.held += len(tokens)

    def crop(self, slot: int, length: int) -> None:
        self.held = length


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch) -> Callable[[Clocked], PassCost]:
    """The cost curve that is measured of a target."""

    def measure(target: Clocked) -> PassCost:
        cost = PassCost()
        monkeypatch.setattr("engine.runtime.profiling.time.perf_counter", lambda: target.now)
        profile(cast("Target", target), cost)
        return cost

    return measure


def test_a_first_look_runs_each_width_once() -> None:
    target = Clocked(lambda rows, _: 0.001 * rows)
    seen = look(cast("Target", target))
    assert seen.exact_rows == UNLIMITED
    assert set(seen.widths) == {*PROFILE_ROWS, *WIDER_ROWS}
    assert seen.widths[0] == 1
    del target.passes[1]  # of one row there are more: the others are compared with them
    assert set(target.passes.values()) == {1}


@pytest.mark.parametrize("passes", [0, 1, 3, 24])
def test_a_measurement_that_is_interrupted_changes_nothing(passes: int) -> None:
    target, cost = Clocked(lambda rows, _: 0.001 * rows), PassCost({1: 1.0})

    def interrupted() -> bool:
        return target.passes.total() >= passes

    assert not measure(cast("Target", target), cost, (1, 2, 8), 3, interrupted)
    assert cost.knots == {1: 1.0}
    assert target.passes.total() == passes
    assert measure(cast("Target", target), cost, (1, 2, 8), 3)
    assert cost.knots.keys() == {1, 2, 8}
    assert target.slots == {3}


def test_a_step_of_the_kernels_after_six_rows_is_found_where_it_is(profiled) -> None:
    """An eighth row that costs nothing is not charged for half of what the seventh took."""
    cost = profiled(Clocked(lambda rows, _: 0.02 if rows < 7 else 0.025 + 0.0001 * rows))
    six, seven, eight = cost.each([6, 7, 8])
    assert seven - six == pytest.approx(0.0057)
    assert eight - seven == pytest.approx(0.0001)


@pytest.mark.parametrize("busy", [1, 2, 3])
def test_one_stalled_pass_of_a_row_makes_no_wide_pass_cheap(profiled, busy: int) -> None:
    """Of a model whose wide passes take seconds there is one round, and everything hangs on its rows."""

    def seconds(rows: int, passed: int) -> float:
        stalled = (
            rows == 1 and passed == 1 + ALONE + busy
        )  # others were measured and compared before
        return 0.02 * rows * (3.0 if stalled else 1.0)

    target = Clocked(seconds)
    cost = profiled(target)
    assert target.passes[64] == 2  # the first call builds kernels
    assert cost.nominal(64) / cost.nominal(16) == pytest.approx(4, rel=0.1)
    assert cost.nominal(64) / cost.nominal(1) == pytest.approx(64, rel=0.1)


def test_one_busy_moment_does_not_decide_what_a_second_row_costs(profiled) -> None:
    """Where wide passes take all the time, narrow ones are still measured several times."""

    def seconds(rows: int, passed: int) -> float:
        busy = 1.5 if rows == 2 and passed == 1 else 1.0  # of the round; the first call is none
        return busy * (0.015 + 0.004 * rows if rows < 4 else 0.008 * rows)

    target = Clocked(seconds)
    cost = profiled(target)
    assert cost.knots[2] / cost.knots[1] == pytest.approx(0.023 / 0.019)
    assert target.passes[64] == 2
    assert set(cost.knots) <= {*PROFILE_ROWS, *WIDER_ROWS}
    assert target.now < 4.0


def test_where_a_block_of_rows_begins_is_measured(profiled) -> None:
    """Between knots at four and six rows the fifth looked half as dear as it is, and chains took it."""

    def seconds(rows: int, _: int) -> float:
        return 0.001 * (1 + (rows - 1) // 4)

    target = Clocked(seconds)
    target.row_blocks = (5, 9)
    cost = profiled(target)
    for rows in (1, 4, 5, 8, 9, 12):
        assert cost.nominal(rows) == pytest.approx(seconds(rows, 0))


@pytest.mark.parametrize("each", [0.0, 1e-5])
def test_what_rows_take_of_a_long_text_is_measured(profiled, each) -> None:
    """Sixteen rows after 2000 tokens took a processor 100 ms; priced like one row it was 31."""

    def seconds(rows: int, context: int) -> float:
        return 0.005 + 0.001 * rows + (2e-6 + each * rows) * context

    cost = profiled(Reading(seconds))
    for rows in (1, 16):
        assert cost.nominal(rows, 2000) == pytest.approx(seconds(rows, 2000))


class Read:
    """A draft model that takes so many seconds for a token of a text, half more the first time."""

    def __init__(self, each: float, context: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.each, self.context, self.now = each, context, 0.0
        self.cached = 0
        self.fed: list[int] = []
        monkeypatch.setattr("engine.runtime.profiling.time.perf_counter", lambda: self.now)

    def feed(self, slot: int, tokens: Sequence[int]) -> None:
        self.now += self.each * len(tokens) * (1.0 if self.fed else 1.5)
        self.cached += len(tokens)
        self.fed.append(len(tokens))

    def crop(self, slot: int, length: int) -> None:
        self.cached = length


class Exits:
    """A target one row of which takes so long through each of its layers, more the first time."""

    source = None

    def __init__(self, each: float, monkeypatch: pytest.MonkeyPatch) -> None:
        self.each, self.now, self.pending, self.calls = each, 0.0, 0, 0
        monkeypatch.setattr("engine.runtime.profiling.time.perf_counter", lambda: self.now)

    def shallow(self, slots: Sequence[int], tokens: Sequence[int], layers: int) -> None:
        self.now += self.each * layers * (1.0 if self.calls else 3.0)
        self.pending, self.calls = self.pending + 1, self.calls + 1

    def crop(self, slot: int, length: int) -> None:
        self.pending = length


@pytest.mark.parametrize(("each", "calls", "found"), [(0.001, 5, 0.004), (1.0, 1, 12.0)])
def test_what_an_early_exit_step_takes_is_measured_and_leaves_nothing(
    each: float, calls: int, found: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Exits(each, monkeypatch)
    resources = DrafterResources(cast("Target", target), options={"exit_layer": 4.0})
    assert EarlyExit.measure(resources) == {EXIT_STEP: pytest.approx(found)}
    assert (target.calls, target.pending) == (calls, 0)


@pytest.mark.parametrize("context", [16, 4096])
def test_what_a_token_of_a_text_takes_the_draft_model_is_measured(
    context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Read(1e-5, context, monkeypatch)
    assert read_seconds(cast("Target", draft)) == pytest.approx(1e-5)
    assert (len(draft.fed), draft.cached) == (READ_REPEATS, 0)
    assert max(draft.fed) <= context


def test_a_large_draft_model_reads_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draft = Read(READ_SECONDS, 4096, monkeypatch)
    assert read_seconds(cast("Target", draft)) == pytest.approx(1.5 * READ_SECONDS)
    assert len(draft.fed) == 1


class OfExperts(Clocked):
    """Each token goes through one of 128 experts, and a pass takes as long as those that it reads."""

    vocab = 32000

    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        self.now += 0.001 * (len({token * 37 % 128 for token in trees[0].tokens}) - len(trees[0]))
        return super().score(slots, trees)


def test_the_rows_of_a_model_of_experts_are_priced_as_text_that_calls_many(
    profiled: Callable[[Clocked], PassCost],
) -> None:
    """Equal tokens would all call the same ones, and drafts would look as if they cost nothing."""
    cost = profiled(OfExperts(lambda rows, _: 0.001 * rows))
    assert cost.seconds(8) == pytest.approx(8 * cost.seconds(1), rel=0.2)
