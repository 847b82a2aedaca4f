"""The command ``verify``: agreement is counted right, and a difference is found where it is."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from app.bench.lanes import Lane
from app.bench.measure import Difference, Measurement
from app.bench.summary import counts_of
from app.commands.verify import (
    Verified,
    VerifyOptions,
    agreeing_tokens,
    table,
    verify,
)
from app.errors import RequestFailed
from app.settings import Settings
from app.text.chat_text import ChatText
from engine.drafters import DRAFTERS
from engine.request import AUTO, Done, FinishReason, ModelSpec
from engine.runtime.registry import drafter_class
from tests.app import fake_engine

POCKET = Path(__file__).parents[3] / "engine" / "bundled" / "pocket"
TEXT = ChatText.load(POCKET)
OPTIONS = VerifyOptions(Settings(home=Path("/nowhere")), "m", ("specexec",), (("a",),), 6)
MISTAKEN = partial(
    fake_engine.FakeEngine,
    script=fake_engine.mistake,
    drafters=("none", "lookup", "specexec"),
)
PARROT = partial(fake_engine.FakeEngine, script=fake_engine.repeat, width=1, context=256)
SPEC = ModelSpec("fake", str(POCKET))


def verified(build, prompts, drafters=("specexec",)) -> Verified:
    asked = replace(OPTIONS, prompts=tuple(prompts), drafters=drafters)
    return verify(build(SPEC), TEXT, asked)


def lane(measurement: Measurement, name: str) -> Lane:
    return next(one for one in measurement.lanes if one.name == name)


def test_a_drafter_that_agrees_and_one_that_does_not():
    outcome = verified(MISTAKEN, [("a",), ("b",)], ("lookup", "specexec"))
    found = outcome.measurement
    assert not outcome.agrees
    assert agreeing_tokens(found, lane(found, "lookup")) == 6
    assert agreeing_tokens(found, lane(found, "specexec")) == 12
    assert found.differences == {"lookup": Difference(1, 3, 103, 999, 103 / 8)}
    assert counts_of(found.of(lane(found, "none"))).emitted == 12
    assert counts_of(found.of(lane(found, "specexec"))).tokens_per_pass == 2.0
    assert list(table(outcome))[-1] == "tokens differ"


def test_later_turns_follow_the_plain_answers():
    outcome = verified(PARROT, [("abc", "de")], ("lookup",))
    assert outcome.agrees
    assert len(outcome.measurement.samples) == 4


def test_prompts_past_the_context_are_skipped_with_what_follows():
    outcome = verified(MISTAKEN, [("word " * 99, "b"), ("c",)])
    assert outcome.measurement.skipped == 2
    assert len(outcome.measurement.samples) == 2
    assert outcome.agrees


def test_without_a_run_nothing_is_verified():
    outcome = verified(MISTAKEN, [("word " * 99,)])
    assert not outcome.agrees
    assert list(table(outcome))[-1] == "nothing was verified: no prompt fits the context"


def test_an_engine_that_fails_is_not_an_agreement():
    class Failing(fake_engine.FakeEngine):
        def step(self):
            return [(number, replace(event, reason=FinishReason.ERROR, error="logits are not finite"))
                    if isinstance(event, Done) else (number, event) for number, event in super().step()]  # fmt: skip

    with pytest.raises(RequestFailed, match="in the lane none: logits are not finite"):
        verified(Failing, [("a",)], ("lookup",))


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    file = tmp_path / "prompts.jsonl"
    turns = [["Hello", "Repeat this: a b c a b c"], ["word " * 5000], ["What is 2 + 3?"]]
    file.write_text("".join(json.dumps({"turns": each}) + "\n" for each in turns))
    return str(file)


def test_the_bundled_model_agrees_with_every_drafter(slipstream, prompts):
    code, out, _ = slipstream("verify", "--prompts", prompts, "--max-tokens", "12")
    assert code == 0
    title, _, *rows, end = out.splitlines()
    assert "1 prompts skipped (past the context of 4096)" in title
    assert end == "every token agrees"
    listed = [name for name in DRAFTERS if name != AUTO and drafter_class(name).listed]
    assert [row.split()[0] for row in rows] == listed
    assert {row.split()[1] for row in rows} == {"3"}


def test_a_difference_fails_and_is_shown_and_a_drafter_that_cannot_run_is_refused(
    slipstream, refused, prompts, monkeypatch
):
    monkeypatch.setattr("app.commands.verify.build_engine", MISTAKEN)
    asked = ["verify", "--prompts", prompts, "--limit", "1", "--draft"]
    code, out, _ = slipstream(*asked, "specexec,lookup")
    assert code == 1
    *_, difference, end = out.splitlines()
    assert "lookup differs first in prompt 1 at token 3: plain 103" in difference
    assert difference.endswith("there is 12.875")
    assert end == "tokens differ"
    assert "chain cannot run with pocket: it has no draft" in refused(*asked, "chain")
