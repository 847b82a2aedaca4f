"""Auto on a simulated clock: real models and drafters, seconds from a curve.

Every pass of the target and of the draft model advances one clock by its cost on the curve, and
nothing else does. So figures are the same in every run and depend on the choices of `auto` alone.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from app.bench.prompt_files import load_prompts
from app.history.task_class import task_class
from app.models.catalog import resolve
from app.request import Message
from app.settings import load_settings
from app.text.chat_text import ChatText
from engine.build import assemble, load
from engine.drafting.draft_model import DRAFT_READ, DRAFT_STEP
from engine.request import GenerationRequest
from engine.selection.tuning import TUNING
from engine.statistics.pass_cost import PassCost
from tests.engine.tiny import run_all

CURVES = {  # milliseconds of a pass by rows
    "flat": {1: 13.5, 2: 13.6, 6: 14.2, 7: 17, 8: 17.8, 12: 21, 16: 22.8, 32: 36, 64: 60, 256: 210},
    "steep": {1: 11, 2: 15.4, 3: 21, 4: 28, 8: 44, 16: 66, 32: 121, 64: 240, 256: 960},
    "streamed": {1: 100, 64: 101, 128: 104, 256: 110},
}
STEP, ROW = 1.7e-3, 5e-5  # seconds: of a draft step, of one more row in it
TOKENS = 40  # of an answer


@pytest.fixture(scope="module")
def models():
    settings = load_settings()
    spec = replace(resolve(settings, "pocket"), slots=1, exit_layer=None)
    parts, no_draft = load(spec)
    return spec, parts, no_draft, ChatText.load(Path(spec.folder))


class Clock:
    """What everything that measures seconds reads."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def prices(curve):
    return PassCost({rows: ms / 1e3 for rows, ms in curve.items()}, 1e-6)


def on_clock(models, curve, passes):
    """An engine whose passes take what the curve says; of each, ``passes`` gets (rows, context)."""
    clock, (spec, parts, no_draft, _) = Clock(), models
    cost, price = prices(curve), prices(curve)
    target, draft = parts.target.twin(), parts.draft_model.twin()
    score, grow, feed = target.score, draft.grow, draft.feed

    def scored(slots, trees):
        passes.append((sum(map(len, trees)), sum(map(target.length, slots))))
        clock.now += price.seconds(*passes[-1])
        return score(slots, trees)

    def grown(batch):
        clock.now += STEP + ROW * (sum(len(rows.tokens) for rows in batch) - 1)
        return grow(batch)

    def fed(slot, tokens):
        clock.now += STEP + ROW * len(tokens)
        return feed(slot, tokens)

    target.score, draft.grow, draft.feed = scored, grown, fed
    measured = {DRAFT_STEP: STEP, DRAFT_READ: ROW}
    own = {"target": target, "draft_model": draft, "cost": cost, "measured": measured}
    return assemble(spec, replace(parts, clock=clock, **own), no_draft)


def questions():
    """Word problems, two edits, and one question of every kind."""
    prompts = load_prompts(None, 1)
    opened = [turns for _, group in prompts.open for turns in group]
    return [*prompts.problems[:4], *prompts.edits[:2], *opened]


def answered(models, curve, drafter):
    """(ids, decode seconds, passes) of every question of one session."""
    passes, found = [], []
    running, text = on_clock(models, curve, passes), models[3]
    for turns in questions():
        asked = [Message("user", turns[0])]
        request = GenerationRequest(
            text.encode_chat(asked), TOKENS, drafter=drafter, stop_tokens=text.stop_tokens,
            task=task_class(asked),
        )  # fmt: skip
        passes.clear()
        [(ids, done)] = run_all(running, [request])
        found.append((ids, done.stats.decode_seconds, tuple(passes)))
    return found


@pytest.fixture(scope="module")
def plain(models):
    """The answers of plain decoding, and their passes, which are the same on every curve."""
    curve = CURVES["flat"]
    found = answered(models, curve, "none")
    for _, seconds, passes in found:
        assert seconds == pytest.approx(decoding(passes, curve))
    return found


def decoding(passes, curve):
    """Seconds of an answer's passes; the first is that of its prompt's last token."""
    price = prices(curve)
    return sum(price.seconds(*one) for one in passes)


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_auto_answers_as_plain_decoding_and_is_never_slower(models, plain, curve):
    """A session is faster; an answer loses no more than auto may spend on a trial and a proposal."""
    auto = answered(models, curve, "auto")
    assert [ids for ids, *_ in auto] == [ids for ids, *_ in plain]
    plainly = [decoding(passes, curve) for *_, passes in plain]
    assert sum(seconds for _, seconds, _ in auto) < sum(plainly)
    for (ids, seconds, _), wanted in zip(auto, plainly, strict=True):
        arms = TUNING.risk + TUNING.risk_share * len(ids)  # plain passes
        last = 3.0  # at most, of the round that goes over: reading a prompt, or a long chain
        assert seconds <= wanted * (1 + (arms + TUNING.risk + last) / len(ids))
