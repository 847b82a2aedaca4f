"""A new drafter or draft length is one file and one registry line: nothing else knows its name."""

import pytest

from app.bench.lanes import parse_lane
from app.request import check_drafter
from engine.build import load
from engine.draft_length import LENGTHS
from engine.drafters import DRAFTERS, describe
from engine.errors import InvalidRequest
from engine.hardware.plan import PlanConstraints
from engine.hardware.planner import plan
from engine.hardware.profile import GIB, imagined
from engine.hardware.published import candidates
from engine.request import GenerationRequest, ModelSpec, SamplingParams
from engine.runtime.registry import options_of
from tests.engine.tiny import drafter_of, engine_over, run_all, tiny_target
from ui.chat.caption import mode_name

DENSE = "llama-3.2-3b"
DRAFTER = """
from engine.interfaces.drafter import Budget, Drafter
from engine.request import Option
from engine.speculation.tree import chain

TIMES = Option("times", "how often the last token is proposed", 2, 1, 8)


class Echo(Drafter):
    title = "Parrot"
    summary = "Proposes the last token again."
    plan_when = ("dense",)
    plan_reason = "{no_draft_model}, and saying it twice takes no memory"
    options = (TIMES,)
    default_length = "exactly"
    step_cost = "echo step"
    max_draft = Budget(depth=8, nodes=8)

    @classmethod
    def measure(cls, resources):
        return {cls.step_cost: 0.5}

    def __init__(self, resources):
        self.times = int(TIMES.of(resources.options))
        self.step_seconds = resources.measured.get(self.step_cost, 0.0)
        self.seen = 0

    def draft(self, batch, budgets):
        pairs = zip(batch, budgets)
        return [chain([c.ids[-1]] * (1 + min(self.times, b.nodes))) for c, b in pairs]

    def observe(self, outcomes):
        self.seen += len(outcomes)
"""
LENGTH = """
from engine.interfaces.drafter import Budget, DraftLength
from engine.request import Option

TOKENS = Option("tokens", "of every draft", 3, 1, 9)


class Exactly(DraftLength):
    options = (TOKENS,)

    def __init__(self, resources, drafter):
        self.tokens = int(TOKENS.of(resources.options))

    def budgets(self, batch, longest):
        return [Budget(n, n, exact=True) for n in (min(self.tokens, b.nodes) for b in longest)]
"""


@pytest.fixture(autouse=True)
def new_ones(tmp_path, monkeypatch):
    """Two files, and one line in each registry."""
    (tmp_path / "drafter_of_a_test.py").write_text(DRAFTER)
    (tmp_path / "length_of_a_test.py").write_text(LENGTH)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(DRAFTERS, "echo", "drafter_of_a_test:Echo")
    monkeypatch.setitem(LENGTHS, "exactly", "length_of_a_test:Exactly")


def engine(**fields):
    return engine_over(tiny_target(), tiny_target(4), **fields)


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.9, top_k=8, seed=5)])
@pytest.mark.parametrize("length", ["default", "fixed", "exactly"])
@pytest.mark.parametrize("options", [(), (("times", 5.0),)])
def test_they_run_and_change_no_token(sampling, length, options):
    asked = GenerationRequest(
        (1, 2, 2, 2), 30, sampling, drafter="echo", length=length, options=options
    )
    plain = GenerationRequest((1, 2, 2, 2), 30, sampling, drafter="none")
    [(ids, done)] = run_all(engine(), [asked])
    assert ids == run_all(engine(), [plain])[0][0]
    assert done.stats.drafter == "echo"
    assert done.stats.drafted > 0


def test_they_learn_and_draft_as_long_as_asked():
    held = engine()
    options = (("times", 7.0), ("tokens", 4.0))
    asked = GenerationRequest((1, 2), 9, drafter="echo", length="exactly", options=options)
    events = []
    held.submit(asked)
    drafter = next(iter(held.requests.values())).drafter
    while held.busy:
        events += [event for _, event in held.step()]
    assert events[0].drafted == 4
    assert drafter.seen == events[-1].stats.passes


def test_auto_and_the_facts_know_it():
    held = engine()
    assert held.facts.drafters[-1] == "echo"
    assert "echo" in drafter_of(held, "auto").arms


def test_its_own_costs_are_measured_at_load():
    resources, no_draft = load(ModelSpec("pocket", "engine/bundled/pocket"))
    assert resources.measured == {"echo step": 0.5}
    assert "no draft model" in no_draft


def test_its_name_options_and_plan_are_found():
    check_drafter("echo")
    assert mode_name("echo") == "Parrot"
    assert describe("echo").summary == "Proposes the last token again."
    assert {option.name for option in options_of("echo")} == {"times", "tokens"}
    assert {option.name for option in options_of("echo", "fixed")} == {"times", "exit_layer"}
    lane = parse_lane("quick=echo:times=3,length=exactly,tokens=2")
    assert (lane.drafter, lane.length) == ("echo", "exactly")
    assert lane.options == (("times", 3.0), ("tokens", 2.0))
    found = plan(imagined(0, 64 * GIB), candidates(DENSE), PlanConstraints(draft=False))
    [why] = [reason.sentence for reason in found.why if reason.field == "drafter"]
    assert found.drafter == "echo"
    assert why == "The draft model is left out, and saying it twice takes no memory."


@pytest.mark.parametrize(("name", "value", "message"), [
    ("tims", 3.0, "has no option 'tims'; did you mean 'times'"),
    ("tokns", 3.0, "did you mean 'tokens'"),
    ("times", 9.0, "times is 9; choose 1 to 8"),
])  # fmt: skip
def test_a_wrong_option_is_refused_with_the_nearest_one(name, value, message):
    asked = GenerationRequest((1,), 9, drafter="echo", options=((name, value),))
    with pytest.raises(InvalidRequest, match=message):
        engine().submit(asked)
