"""Predicted outputs: what copies draft from a prediction, and that no answer depends on it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.drafters.suffix import Suffix
from engine.drafting.tuning import TUNING
from engine.errors import InvalidRequest
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.rng import SeededRandom
from tests.engine.tiny import SlowMachine, drafter_of, engine_over, run_all, tiny_target

COPYING = ("lookup", "suffix", "auto")
PROMPT, END, TOKENS = (1, 2, 3), 0, 40


def ask(drafter="none", prediction=(), **more):
    """Tokens and passes of an answer of a random decoder, which repeats nothing of its prompt."""
    request = GenerationRequest(
        PROMPT, TOKENS, drafter=drafter, prediction=tuple(prediction), **more
    )
    engine = engine_over(tiny_target(vocab=97), cost=SlowMachine())
    [(ids, done)] = run_all(engine, [request])
    return ids, done.stats.passes


@pytest.fixture(scope="module")
def plain():
    return ask()[0]


# What it saves.


@pytest.mark.parametrize("drafter", COPYING)
def test_a_prediction_that_comes_true_is_checked_in_a_few_passes(drafter, plain):
    without = ask(drafter)
    found = ask(drafter, plain)
    assert found[0] == without[0] == plain
    assert found[1] <= 3
    assert found[1] < without[1] / 4


@pytest.mark.parametrize("drafter", COPYING)
def test_where_an_answer_departs_from_it_the_rest_is_found_again(drafter, plain):
    changed = [*plain[:8], 96, 95, *plain[8:16], *plain[19:28], 94, *plain[29:]]
    ids, passes = ask(drafter, changed)
    assert ids == plain
    assert passes <= TOKENS / 3


def test_nothing_is_drafted_beyond_its_end():
    """After the prediction come a stop token and the prompt's end again: neither is proposed."""
    target = tiny_target(vocab=97)
    request = GenerationRequest(PROMPT, 9, stop_tokens=frozenset({END}), prediction=(7, 8, 9))
    engine = engine_over(target)
    engine.submit(replace(request, drafter="suffix"))
    [session] = engine.requests.values()
    tree = Suffix(DrafterResources(target)).draft([session.context], [Budget(9, 9, exact=True)])[0]
    assert tree.tokens == (3, 7, 8, 9)


# What it must not do.


@pytest.mark.parametrize("sampling", [SamplingParams(), SamplingParams(0.9, top_k=20, seed=4)])
@pytest.mark.parametrize("drafter", COPYING)
@pytest.mark.parametrize(
    "prediction", [(5,), (9,) * 200, tuple(range(97)), (*PROMPT, *PROMPT), (END, 4, END, 4)]
)
def test_a_wrong_one_changes_no_token(drafter, prediction, sampling):
    stops = frozenset({END})
    wanted, _ = ask(sampling=sampling, stop_tokens=stops)
    found, _ = ask(drafter, prediction, sampling=sampling, stop_tokens=stops)
    assert found == wanted


def test_it_is_no_part_of_the_prompt_and_no_later_answer_draws_on_it(plain):
    engine = engine_over(tiny_target(vocab=97), cost=SlowMachine())
    request = GenerationRequest(PROMPT, TOKENS, drafter="suffix", prediction=(50,) * 30)
    [(_, done)] = run_all(engine, [request])
    assert done.stats.prompt_tokens == len(PROMPT)
    suffix = drafter_of(engine, "suffix")
    assert [*PROMPT, *plain] in suffix.finished_texts
    assert sum(map(len, suffix.finished_texts)) == len(PROMPT) + TOKENS


def test_tokens_that_the_model_does_not_have_are_refused():
    with pytest.raises(InvalidRequest, match=r"0\.\.96"):
        ask("suffix", (97,))


@given(st.integers(1, 60), st.integers(0, 30), st.integers(0, 30), st.integers(0, 9))
def test_read_in_pieces_it_is_the_same_text(prompt, length, answer, first):
    """A drafter may be asked for the first time when there is some of the answer already."""
    before, predicted = [*range(prompt)], [*range(100, 100 + length)]
    ids, text = [*before], []
    for token in [*range(200, 200 + answer), None]:
        if len(ids) >= prompt + min(first, answer):
            here = Context(
                1,
                0,
                ids,
                SamplingParams(),
                SeededRandom(0),
                prompt_length=prompt,
                predicted=predicted,
            )
            text += here.copyable(len(text))
        ids += [] if token is None else [token]
    assert text == [*before, *predicted, *range(200, 200 + answer)]


def test_the_end_of_a_long_prompt_leads_into_it():
    prompt = tuple(range(1, 90))
    engine = engine_over(tiny_target(vocab=97, context=200))
    engine.submit(GenerationRequest(prompt, 5, drafter="lookup", prediction=(90, 91)))
    [session] = engine.requests.values()
    assert session.context.predicted == (90, 91, *prompt[-TUNING.longest_match :])
    assert session.context.copyable(0) == [*prompt, 90, 91, *prompt[-TUNING.longest_match :]]
