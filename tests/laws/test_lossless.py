"""Never a token that the plain model would not have produced: every registered drafter and law."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch

from engine.drafters import DRAFTERS
from engine.grammar.vocabulary import Vocabulary
from engine.interfaces.drafter import Budget, Context, DrafterResources, Outcome
from engine.request import AUTO, FinishReason, GenerationRequest, Penalties, SamplingParams
from engine.runtime.drafter_pool import new_drafter
from engine.speculation.grammar_mask import Compiled, GrammarMatcher
from engine.speculation.penalties import penalised
from engine.speculation.sampling import probabilities
from engine.speculation.verify import verify
from tests.engine.enumeration import law_of, random_law
from tests.engine.models.conversations import same_rows
from tests.engine.tiny import Markov, SlowMachine, Words, engine_over, run_all, tiny_target
from tests.laws.by_hand import (
    PAIRS,
    SPELLED,
    THIRDS,
    WORDS,
    by_hand,
    fits,
    fits_pairs,
    greedy_by_hand,
    held_by_hand,
    in_format,
    spelled,
)

ALL = tuple(DRAFTERS)
SPECULATIVE = tuple(name for name in DRAFTERS if name != "none")
SAMPLED = SamplingParams(temperature=1.0)


def drafter_over(name, parts):
    """A drafter, ``auto`` with all its arms."""
    return new_drafter(parts, tuple(DRAFTERS), name)


def markov(seed, size=3, zeros=0):
    return torch.stack([random_law(size, seed * 31 + row, zeros) for row in range(size)])


# B. Joint enumeration: draft, score, verify, commit, observe over as many rounds as it takes.


PREDICTED = (2, 1, 0)  # a prediction, and the prompt's end again
RUNS = [*((name, ()) for name in ALL), ("lookup", PREDICTED), ("suffix", PREDICTED)]


HELD_BACK = Penalties(presence=0.4, frequency=0.3, repeat=1.5, bias=((2, 0.7),))


def held(tree, logits, ids, context, guide):
    """Logits with penalties and grammar, as the engine applies them."""
    sampling = context.sampling
    if sampling.penalties is not None:
        logits = penalised(tree, logits, sampling.penalties, ids, context.prompt_length)
    if guide is not None:
        logits = guide.mask(tree, logits, ids, greedy=sampling.greedy)
    return logits


LOGITS = (
    (SAMPLED, None),
    (SamplingParams(0.7, top_k=2), None),
    (SamplingParams(1.0, penalties=HELD_BACK), None),
    (SAMPLED, THIRDS),
    (SamplingParams(0.7, penalties=HELD_BACK), THIRDS),
)
BUDGETS = (Budget(2, 2), Budget(2, 3))


@pytest.mark.parametrize(
    ("name", "predicted", "budget", "sampling", "grammar"),
    [  # pairwise: every drafter and every kind of logits meets both budgets
        (*run, BUDGETS[(at + row) % 2], *kind)
        for at, run in enumerate(RUNS)
        for row, kind in enumerate(LOGITS)
    ],
)
def test_joint_law_of_emitted_tokens_is_the_targets(name, predicted, budget, sampling, grammar):
    length, laws = 3, markov(3)
    prompt = [1, 2, 0, 1, 2, 0, 1]  # repeats, so that lookup proposes
    compiled = grammar and Compiled(grammar, Vocabulary(SPELLED, Words(SPELLED).encode))

    def run(chance):
        target, draft = Markov(laws, markov(5)), Markov(markov(7, zeros=1))
        drafter = drafter_over(name, DrafterResources(target, draft, options={"exit_layer": 1.0}))
        guide = compiled and GrammarMatcher(compiled, frozenset(), len(prompt))
        ids = list(prompt)
        target.feed(0, ids[:-1])
        while len(ids) < len(prompt) + length:
            context = Context(
                1, 0, list(ids), sampling, chance, prompt_length=len(prompt), predicted=predicted,
                grammar=guide,
            )  # fmt: skip
            tree = drafter.draft([context], [budget])[0]
            logits = held(tree, target.score([0], [tree])[0].logits, ids, context, guide)
            verdict = verify(tree, logits, sampling, chance)
            drafter.observe([Outcome(context, tree, verdict, 0.0, 0.0)])
            target.commit(0, verdict.path)
            ids += [*(tree.tokens[n] for n in verdict.path[1:]), verdict.bonus]
            assert target.tokens(0) == ids[:-1]
        return tuple(ids[len(prompt) : len(prompt) + length])

    def law(text):
        row = laws.double().log()[text[-1]]
        row = held_by_hand(row, text, len(prompt), sampling.penalties, grammar)
        return probabilities(row, sampling)

    found = law_of(run)
    for sequence in product(range(3), repeat=length):
        wanted, text = 1.0, list(prompt)
        for token in sequence:
            wanted *= float(law(text)[token]) if wanted else 0.0
            text.append(token)
        assert found.get(sequence, 0.0) == pytest.approx(wanted, abs=1e-12)


# C. Greedy equality in float32 over random decoders.


def greedy_requests(drafter, count=6, **shape):
    generator = torch.Generator().manual_seed(11)
    lengths = [1, 2, 5, 9, 17, 30][:count]
    prompts = [tuple(torch.randint(0, 13, (n,), generator=generator).tolist()) for n in lengths]
    return [
        GenerationRequest(p, 24, stop_tokens=frozenset({0}), drafter=drafter, **shape)
        for p in prompts
    ]


def said(answers):
    return [ids for ids, _ in answers]


@cache
def plain(sampling=None, grammar=None):
    """The answers of plain decoding, computed once."""
    asked = [replace(r, grammar=grammar) for r in greedy_requests("none")]
    asked = [replace(r, sampling=sampling or r.sampling) for r in asked]
    return run_all(engine_over(tiny_target(), speller=Words(WORDS)), asked)


DRAFTS = {
    "identical": lambda: tiny_target(0),
    "random": lambda: tiny_target(99),
    "one layer": lambda: tiny_target(0, layers=1),
}


SIZES = ((1, 1), (3, 7), (8, 64), (64, 64), (0, 0))


@pytest.mark.parametrize(
    ("depth", "nodes", "draft", "length"),
    [  # pairwise: every size and every draft model meets both policies
        (*size, draft, ("fixed", "goodput")[(at + row) % 2])
        for at, size in enumerate(SIZES)
        for row, draft in enumerate(DRAFTS)
    ],
)
@pytest.mark.parametrize("name", SPECULATIVE)
def test_greedy_equals_plain(name, depth, nodes, draft, length):
    asked = greedy_requests(name, length=length, draft_depth=depth, draft_nodes=nodes)
    drafted = run_all(engine_over(tiny_target(), DRAFTS[draft]()), asked)
    assert said(drafted) == said(plain())
    assert [done.reason for _, done in drafted] == [done.reason for _, done in plain()]


def answers_by_hand(row_of):
    return [greedy_by_hand(tiny_target(), request, row_of) for request in greedy_requests("")]


@cache
def with_penalties(penalties):
    return answers_by_hand(lambda logits, ids, answer: by_hand(logits, penalties, ids, answer))


@cache
def with_grammar(goes_on, size):
    return answers_by_hand(lambda logits, _, answer: in_format(logits, answer, goes_on, size))


@pytest.mark.parametrize("name", ALL)
def test_with_penalties_every_drafter_equals_plain_decoding_by_hand(name):
    penalties = Penalties(presence=0.5, frequency=0.4, repeat=1.3, bias=((5, 1.0), (7, -100.0)))
    sampling = SamplingParams(penalties=penalties)
    asked = [replace(r, sampling=sampling) for r in greedy_requests(name, draft_nodes=12)]
    wanted = with_penalties(penalties)
    for draft in DRAFTS.values():
        found = said(run_all(engine_over(tiny_target(), draft()), asked))
        assert found == wanted
        assert found != said(plain())
        assert not any(7 in ids for ids in found)


@pytest.mark.parametrize(
    ("grammar", "goes_on", "size"), [(THIRDS, fits, 3), (PAIRS, fits_pairs, 5)]
)
@pytest.mark.parametrize("name", ALL)
def test_with_a_grammar_every_drafter_equals_plain_decoding_by_hand(name, grammar, goes_on, size):
    asked = [replace(r, grammar=grammar) for r in greedy_requests(name, draft_nodes=12)]
    wanted = with_grammar(goes_on, size)
    for draft in DRAFTS.values():
        engine = engine_over(tiny_target(), draft(), cost=SlowMachine(), speller=Words(WORDS))
        found = run_all(engine, asked)
        assert said(found) == wanted
        assert said(found) != said(plain())
        for ids, done in found:
            text = spelled(ids, WORDS)
            assert goes_on(text)
            assert done.reason is FinishReason.LENGTH or len(text) % size == 0
        ran = {run.drafter for _, done in found for run in done.stats.runs}
        assert "format" not in ran or name in ("format", AUTO)


@pytest.mark.parametrize("exit_layer", [1, 2, 3, 4])
def test_every_exit_layer_equals_plain(exit_layer):
    plainly = run_all(engine_over(tiny_target(layers=5)), greedy_requests("none"))
    engine = engine_over(tiny_target(layers=5), exit_layer=exit_layer)
    drafted = run_all(engine, greedy_requests("early_exit", draft_depth=5, length="fixed"))
    assert said(drafted) == said(plainly)


@pytest.mark.parametrize("depth", [1, 3, 8])
def test_an_identical_draft_is_always_accepted(depth):
    engine = engine_over(tiny_target(), tiny_target())
    request = GenerationRequest((1, 2, 3), 2 * (depth + 1), drafter="chain", length="fixed",
                                draft_depth=depth)  # fmt: skip
    [(ids, done)] = run_all(engine, [request])
    assert done.stats.accepted == done.stats.drafted
    assert done.stats.passes == 2
    assert len(ids) == 2 * (depth + 1)


class Contrary:
    """A draft model that is wrong on purpose: the target's logits upside down."""

    def __init__(self, target):
        self._target = target

    def __getattr__(self, name):
        return getattr(self._target, name)

    def grow(self, batch):
        return [replace(grown, logits=-grown.logits) for grown in self._target.grow(batch)]


@pytest.mark.parametrize("name", ["chain", "specexec"])
def test_an_always_wrong_draft_changes_nothing_and_leaks_no_cache(name):
    target = tiny_target()
    engine = engine_over(target, Contrary(tiny_target()))
    drafted = run_all(engine, greedy_requests(name, length="fixed", draft_nodes=4) * 3)
    assert said(drafted) == said(plain()) * 3
    assert all(target.pending(slot) == 0 for slot in range(3))


@pytest.mark.parametrize("name", ALL)
def test_limits_of_tokens_and_of_the_context_inside_a_draft_end_exactly_there(name):
    prompt = (1, 2, 3, 1, 2, 3)
    for asked, context in [*((asked, 96) for asked in range(1, 9)), (1000, 24)]:
        engine = engine_over(tiny_target(context=context), tiny_target(context=context))
        request = GenerationRequest(prompt, asked, drafter=name, length="fixed")
        [(ids, done)] = run_all(engine, [request])
        assert len(ids) == done.stats.emitted == min(asked, context - len(prompt))
        assert done.reason is FinishReason.LENGTH


SEEDED = (
    SamplingParams(0.8, seed=5),
    SamplingParams(1.5, top_p=0.9, seed=6),
    SamplingParams(0.8, seed=7, penalties=HELD_BACK),
)


@pytest.mark.parametrize("name", SPECULATIVE)
@pytest.mark.parametrize(
    ("sampling", "grammar", "draft"),
    [  # pairwise: every sampling and every grammar meets every draft model
        (sampling, grammar, tuple(DRAFTS)[(at + row) % 3])
        for at, sampling in enumerate(SEEDED)
        for row, grammar in enumerate((None, THIRDS, PAIRS))
    ],
)
def test_a_seeded_request_equals_plain_token_by_token(name, sampling, grammar, draft):
    """Its candidates are chosen, not sampled: random numbers are used as in plain decoding."""
    asked = greedy_requests(name, draft_nodes=12)
    requests = [replace(r, sampling=sampling, grammar=grammar) for r in asked]
    engine = engine_over(tiny_target(), DRAFTS[draft](), cost=SlowMachine(), speller=Words(WORDS))
    assert said(run_all(engine, requests)) == said(plain(sampling, grammar))


# D. Cache audit: after every round the cache equals one that was computed afresh.


@pytest.mark.parametrize("grammar", [None, PAIRS])
@pytest.mark.parametrize("name", ALL)
def test_cached_keys_and_values_equal_fresh_ones(name, grammar):
    target, draft = tiny_target(), tiny_target(5)
    engine = engine_over(target, draft, slots=1, cost=SlowMachine(), speller=Words(WORDS))
    request = GenerationRequest(
        (1, 2, 3, 1, 2, 3, 1), 30, SamplingParams(1.0, seed=3), frozenset({0}), drafter=name,
        length="fixed", grammar=grammar,
    )  # fmt: skip
    number = engine.submit(request)
    ids = [1, 2, 3, 1, 2, 3, 1]
    while engine.busy:
        for request, event in engine.step():
            assert request == number
            ids += getattr(event, "ids", ())
        for held, fresh in ((target, tiny_target()), (draft, tiny_target(5))):
            if held.length(0) > 0:
                fresh.feed(0, ids[: held.length(0)])
                assert same_rows(held, fresh, tolerance=1e-4)
