"""Auto without a machine's noise: real models and drafters, seconds from a curve.

Every pass of the target and of the draft model moves one clock by what it costs on the curve, and
nothing else does. So figures are the same in every run, and what they say of `auto` is its choices
alone.
"""

from dataclasses import replace
from pathlib import Path

import pytest

import engine.drafters.sequoia
import engine.drafters.specexec
import engine.drafting.draft_cache
import engine.engine
import engine.selection.tree_merge
from app.bench.papers.prompts import load_prompts
from app.history.task_class import task_class
from app.models.catalog import resolve
from app.request import Message
from app.settings import load_settings
from app.text.chat_text import ChatText
from engine.build import assemble, load
from engine.request import Done, GenerationRequest
from engine.statistics.pass_cost import PassCost

FLAT = {1: 13.5, 2: 13.6, 6: 14.2, 7: 17, 8: 17.8, 12: 21, 16: 22.8, 32: 36, 64: 60, 256: 210}
STEEP = {1: 11, 2: 15.4, 3: 21, 4: 28, 6: 40, 8: 44, 12: 60, 16: 66, 32: 121, 64: 240, 256: 960}
HIDDEN = {1: 100, 64: 101, 128: 104, 256: 110}  # as where weights are streamed
STEP, ROW = 1.7e-3, 5e-5  # seconds: of a draft step, of one more row in it
FIRST, TOKENS = 4, 40  # questions that the session learns on; tokens of an answer
SINGLES = ("none", "suffix", "chain")


@pytest.fixture(scope="module")
def models():
    settings = load_settings()
    spec = replace(resolve(settings, "pocket"), slots=1, exit_layer=None)
    parts, no_draft = load(spec)
    return spec, parts, no_draft, ChatText.load(Path(spec.folder))


class Clock:
    """What all that measures seconds reads."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (engine.engine, engine.drafters.sequoia):
        monkeypatch.setattr(module, "time", clock)
    for module in (engine.drafters.specexec, engine.drafting.draft_cache):
        monkeypatch.setattr(module, "perf_counter", clock.perf_counter)
    return clock


def on_clock(models, clock, curve):
    """An engine whose passes take what the curve says."""
    spec, parts, no_draft, _ = models
    cost = PassCost({rows: ms / 1e3 for rows, ms in curve.items()}, 1e-6)
    price = PassCost(dict(cost.knots), cost.per_context)
    target, draft = parts.target.twin(), parts.draft_model.twin()
    score, grow, feed = target.score, draft.grow, draft.feed

    def scored(slots, trees):
        clock.now += price.seconds(sum(map(len, trees)), sum(map(target.length, slots)))
        return score(slots, trees)

    def grown(batch):
        clock.now += STEP + ROW * (sum(len(rows.tokens) for rows in batch) - 1)
        return grow(batch)

    def fed(slot, tokens, trace=0):
        clock.now += STEP + ROW * len(tokens)
        return feed(slot, tokens, trace)

    target.score, draft.grow, draft.feed = scored, grown, fed
    own = replace(
        parts, target=target, draft_model=draft, cost=cost, draft_step=STEP, draft_read=ROW
    )
    return assemble(spec, own, no_draft)


def questions():
    """Word problems first; then one question of every kind, and two chores."""
    prompts = load_prompts(None, 1)
    opened = [turns for _, group in prompts.open for turns in group]
    return [*prompts.problems[:FIRST], *prompts.edits[:2], *opened]


def answered(models, clock, curve, drafter, most=None):
    """(tokens, decode seconds) of every question of one session, or of the first ones."""
    running, text = on_clock(models, clock, curve), models[3]
    found = []
    for turns in questions()[:most]:
        asked = [Message("user", turns[0])]
        request = GenerationRequest(
            text.encode_chat(asked), TOKENS, drafter=drafter, stop_tokens=text.stop_tokens,
            task=task_class(asked),
        )  # fmt: skip
        running.submit(request)
        while running.busy:
            ends = [event.stats for _, event in running.step() if isinstance(event, Done)]
            found += [(end.emitted, end.decode_seconds) for end in ends]
    return found


def session(models, clock, curve, drafters):
    """Seconds of all questions after the first ones, by drafter; all gave as many tokens as plain."""
    runs = {name: answered(models, clock, curve, name) for name in drafters}
    lengths = {name: [tokens for tokens, _ in run] for name, run in runs.items()}
    assert all(found == lengths["none"] for found in lengths.values())
    return {name: [seconds for _, seconds in run[FIRST:]] for name, run in runs.items()}


def test_where_rows_are_cheap_it_is_as_fast_as_the_best_drafter_of_the_session(models, clock):
    found = session(models, clock, FLAT, (*SINGLES, "auto"))
    whole = {name: sum(seconds) for name, seconds in found.items()}
    best = min(whole[name] for name in SINGLES)
    assert whole["auto"] <= best / 0.97
    assert all(a <= p / 0.97 for a, p in zip(found["auto"], found["none"], strict=True))


def test_where_rows_are_free_copies_mixed_drafts_make_it_faster(models, clock, monkeypatch):
    mixed = sum(session(models, clock, FLAT, ("none", "auto"))["auto"])
    monkeypatch.setattr(engine.selection.tree_merge, "FREE", -1.0)
    without = sum(session(models, clock, FLAT, ("none", "auto"))["auto"])
    assert mixed <= without / 1.01, (mixed, without)


def test_where_rows_are_dear_it_is_not_slower_than_plain(models, clock):
    found = session(models, clock, STEEP, ("none", "auto"))
    assert sum(found["auto"]) < sum(found["none"])
    ratios = [p / a for a, p in zip(found["auto"], found["none"], strict=True)]
    assert min(ratios) >= 0.85, ratios  # a short answer that pays for trials; the worst was 0.89


def test_where_rows_cost_nothing_trees_make_it_faster_than_any_chain(models, clock):
    found = session(models, clock, HIDDEN, ("none", "chain", "auto"))
    assert sum(found["auto"]) <= sum(found["chain"]) / 1.1  # 1.23


def test_the_clock_has_no_noise(models, clock):
    twice = [answered(models, clock, FLAT, "auto", FIRST + 4) for _ in range(2)]
    assert [tokens for tokens, _ in twice[0]] == [tokens for tokens, _ in twice[1]]
    pairs = zip(*twice, strict=True)
    assert all(a[1] == pytest.approx(b[1]) for a, b in pairs)
