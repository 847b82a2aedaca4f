"""How a lane is written, and what is refused before a model is loaded."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bench.lanes import Lane, parse_lane, with_baseline
from app.errors import LaneError, UnknownDrafter
from engine.draft_length import LENGTHS
from engine.drafters import DRAFTERS
from engine.request import GenerationRequest, SamplingParams
from engine.runtime.registry import DEFAULT, options_of

words = st.from_regex(r"[a-z][a-z_ ]{0,8}[a-z]", fullmatch=True)


@st.composite
def lanes(draw: st.DrawFn) -> Lane:
    """Any drafter with any length policy, and some of the options that they take."""
    drafter = draw(st.sampled_from(list(DRAFTERS)))
    length = draw(st.sampled_from([DEFAULT, *LENGTHS]))
    options = [
        (one.name, draw(st.floats(one.least, one.most)))
        for one in options_of(drafter, length)
        if draw(st.booleans())
    ]
    counts = st.none() | st.integers(0, 999)
    return Lane(draw(words), drafter, length, draw(counts), draw(counts), tuple(options))


def written(lane: Lane) -> str:
    """The lane as a person would type it."""
    settings = [f"length={lane.length}"]
    settings += [f"depth={lane.depth}"] if lane.depth is not None else []
    settings += [f"nodes={lane.nodes}"] if lane.nodes is not None else []
    settings += [f"{key}={value!r}" for key, value in lane.options]
    return f"{lane.name}={lane.drafter}:{','.join(settings)}"


@given(lanes())
def test_what_is_written_is_what_is_read(lane):
    assert parse_lane(written(lane)) == lane


@pytest.mark.parametrize(
    ("text", "lane"),
    [
        ("chain", Lane("chain", "chain")),
        ("fast=chain", Lane("fast", "chain")),
        (" a b = auto ", Lane("a b", "auto")),
        ("chain:depth=4", Lane("chain:depth=4", "chain", depth=4)),
        (
            "x=specexec: length = fixed , nodes=64,wave=1e1",
            Lane("x", "specexec", "fixed", None, 64, (("wave", 10.0),)),
        ),
    ],
)
def test_examples(text, lane):
    assert parse_lane(text) == lane


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not complete"),
        ("=chain", "is not complete"),
        ("x=", "is not complete"),
        ("chain:", "is not complete"),
        ("chain:depth", "has 'depth' for KEY=VALUE"),
        ("chain:depth=", "has 'depth=' for KEY=VALUE"),
        ("chain:depth=4,", "has '' for KEY=VALUE"),
        ("chain:=4", "has '=4' for KEY=VALUE"),
        ("chain:depth=4,depth=5", "sets depth twice"),
        ("chain:depth=-1", "depth=-1 in a lane is not a whole number"),
        ("chain:nodes=2.5", "nodes=2.5 in a lane is not a whole number"),
        ("chain:length=fixd", "no length policy 'fixd'; did you mean 'fixed'?"),
        ("specexec:wave=wide", "wave=wide in a lane is not a number"),
        ("specexec:wave=nan", "wave=nan in a lane is not a number"),
        ("specexec:decay=2", "option decay is 2; choose 0.01 to 1"),
        ("chain:lenght=4", "no key 'lenght'; did you mean 'length'?"),
        ("chain:lenght=fixed", "no key 'lenght'; did you mean 'length'?"),
        ("chain:dept=4,nodes=2", "no key 'dept'; did you mean 'depth'?"),
        ("specexec:waev=4", "no key 'waev'; did you mean 'wave'?"),
        ("chain:wave=4", "with the drafter chain has no key 'wave'"),
        ("chain:tau=0.5,length=fixed", "with the drafter chain has no key 'tau'"),
    ],
)
def test_a_mistake_is_one_sentence(text, sentence):
    with pytest.raises(LaneError, match=sentence) as refused:
        parse_lane(text)
    assert "\n" not in str(refused.value)


@given(st.text().filter(lambda text: "\x00" not in text))
def test_any_text_is_a_lane_or_a_sentence(text):
    try:
        lane = parse_lane(text)
    except (LaneError, UnknownDrafter):
        return
    assert lane.drafter in DRAFTERS


def test_the_request_gets_all_of_the_lane_and_keeps_the_rest():
    request = GenerationRequest((1, 2), 9, SamplingParams(0.5, seed=3), frozenset({7}))
    lane = Lane("x", "specexec", "fixed", 3, 17, (("wave", 4.0),))
    assert lane.asks(request) == replace(
        request,
        drafter="specexec",
        length="fixed",
        draft_depth=3,
        draft_nodes=17,
        options=(("wave", 4.0),),
    )


CHAIN, MINE = Lane("chain", "chain"), Lane("mine", "none")
TWO_PLAIN = (Lane("plain", "none"), Lane("again", "none"))  # the second shows the noise


@pytest.mark.parametrize(
    ("given", "lanes"),
    [
        ((CHAIN,), (Lane("plain", "none"), CHAIN)),
        ((CHAIN, MINE), (MINE, CHAIN)),
        (TWO_PLAIN, TWO_PLAIN),
    ],
)
def test_the_first_plain_lane_is_the_baseline_and_comes_first(given, lanes):
    assert with_baseline(given) == lanes


@pytest.mark.parametrize(
    "given", [[Lane("x", "chain"), Lane("x", "lookup")], [Lane("plain", "chain")]]
)
def test_names_must_differ(given):
    with pytest.raises(LaneError, match="two lanes are named"):
        with_baseline(given)
