"""Requests that run together fail separately: what stops one does not change another."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from engine.engine import Engine
from engine.errors import OutOfMemory
from engine.grammar.grammar import Grammar
from engine.interfaces.target import Scores
from engine.models.own.target import TorchTarget
from engine.request import Done, FinishReason, GenerationRequest, SamplingParams, Tokens
from engine.speculation.tree import DraftTree
from tests.engine.tiny import Words, engine_over, run_all, tiny_target
from tests.laws.by_hand import WORDS

STUCK = Grammar('start: "aé"')  # the words have no byte of the second letter
STUCK_AT_ONCE = Grammar('start: "é"')
SEEDED = SamplingParams(1.0, seed=7)


class Faulty(TorchTarget):
    """Gives one slot no memory, and another one logits that are not finite."""

    refused: int | None = None
    damaged: int | None = None

    def score(self, slots: Sequence[int], trees: Sequence[DraftTree]) -> list[Scores]:
        if self.refused in slots:
            raise OutOfMemory(1 << 20, 1 << 10, 1 << 30)
        found = super().score(slots, trees)
        return [
            replace(one, rows=torch.full_like(one.logits, torch.nan)) if s == self.damaged else one
            for s, one in zip(slots, found, strict=True)
        ]


def faulty(slots: int, **faults: int) -> Engine:
    target = Faulty(tiny_target()._weights)
    for name, slot in faults.items():
        setattr(target, name, slot)
    return engine_over(target, tiny_target(4), slots=slots, speller=Words(WORDS))


def plain(sampling: SamplingParams, drafter: str = "none") -> GenerationRequest:
    return GenerationRequest((1, 2, 3), 20, sampling, frozenset({0}), drafter=drafter)


def ends(engine: Engine, *requests: GenerationRequest) -> list[tuple[list[int], Done]]:
    """Tokens and the only end of each."""
    numbers = [engine.submit(request) for request in requests]
    ids: dict[int, list[int]] = {number: [] for number in numbers}
    done: dict[int, Done] = {}
    while engine.busy:
        for number, event in engine.step():
            assert number not in done
            if isinstance(event, Tokens):
                ids[number] += event.ids
            else:
                done[number] = event
    return [(ids[number], done[number]) for number in numbers]


@pytest.mark.parametrize("drafter", ["none", "chain", "recycling"])
@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED])
@pytest.mark.parametrize("format_first", [False, True])
def test_one_stuck_format_ends_one_request(
    sampling: SamplingParams, drafter: str, format_first: bool
) -> None:
    good = plain(sampling, drafter)
    ((alone, _),) = ends(faulty(1), good)
    bad = GenerationRequest((1, 2), 20, sampling, frozenset({0}), grammar=STUCK, drafter=drafter)
    found = ends(faulty(3), *([bad, good] if format_first else [good, bad]))
    (ids, done), (_, stuck) = found[::-1] if format_first else found
    assert (ids, done.error) == (alone, None)
    assert stuck.reason is FinishReason.ERROR
    assert "satisfies the grammar" in stuck.error


@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("drafter", ["none", "chain"])
@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED])
def test_logits_that_are_not_finite_end_one_request(
    sampling: SamplingParams, drafter: str, damaged: int
) -> None:
    good = plain(sampling, drafter)
    ((alone, _),) = ends(faulty(1), good)
    found = ends(faulty(3, damaged=damaged), good, good, good)
    for slot, (ids, done) in enumerate(found):
        if slot == damaged:
            assert (done.reason, done.code) == (FinishReason.ERROR, "numerical_error")
        else:
            assert (ids, done.error) == (alone, None)


def test_two_failures_in_one_step_are_both_reported() -> None:
    """For one the device is too small, the other one's format has no token."""
    stuck = GenerationRequest(
        (4,), 20, stop_tokens=frozenset({0}), grammar=STUCK_AT_ONCE, drafter="none"
    )
    found = ends(faulty(2, refused=0), plain(SamplingParams()), stuck)
    assert [done.code for _, done in found] == ["out_of_memory", "format_stuck"]


def test_what_ended_leaves_its_slot_to_the_next() -> None:
    engine = faulty(2)
    stuck = GenerationRequest(
        (1, 2), 20, stop_tokens=frozenset({0}), grammar=STUCK, drafter="chain"
    )
    good = plain(SamplingParams(), "chain")
    ((alone, _),) = ends(faulty(1), good)
    for _ in range(5):
        ends(engine, stuck, stuck, good)
    assert [ids for ids, _ in run_all(engine, [good, good])] == [alone, alone]
