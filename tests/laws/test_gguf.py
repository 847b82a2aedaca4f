"""The laws of lossless decoding on a GGUF file: every drafter that can run gives plain's tokens."""

import re
from dataclasses import replace
from functools import cache, partial

import pytest

from app.text.token_bytes import FileSpeller
from engine.build import build
from engine.drafters import DRAFTERS
from engine.grammar.grammar import Grammar
from engine.request import FinishReason, GenerationRequest, SamplingParams
from tests.bundled import POCKET_DRAFT
from tests.engine.models.gguf.files import exact
from tests.engine.tiny import run_all

SPECULATIVE = [name for name in DRAFTERS if name not in ("none", "early_exit")]
PROMPTS = ((7, 300, 41, 7, 300, 41, 7), tuple(range(100, 130)) * 2, (900,))
SEEDED = SamplingParams(0.8, top_p=0.95, seed=5)


@pytest.fixture(scope="module")
def engine(pocket_gguf):
    spec = exact(pocket_gguf, draft_folder=str(POCKET_DRAFT), context=256)
    return build(spec, FileSpeller(pocket_gguf))


def answers(engine, drafter, sampling, tokens=24, **shape):
    requests = [GenerationRequest(p, tokens, sampling, drafter=drafter, **shape) for p in PROMPTS]
    return [ids for ids, _ in run_all(engine, requests)]


@pytest.fixture(scope="module")
def plain(engine):
    """The answers of plain decoding by sampling and format, each computed once."""
    return cache(partial(answers, engine, "none"))


@pytest.mark.parametrize(
    ("sampling", "shape"),
    [
        *((SamplingParams(), {"length": "fixed", "draft_depth": depth, "draft_nodes": nodes, "tokens": tokens})
          for depth, nodes, tokens in ((1, 1, 24), (3, 7, 24), (8, 64, 24), (16, 200, 6))),
        (SEEDED, {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", SPECULATIVE)
def test_every_drafter_equals_plain(engine, plain, name, sampling, shape):
    """A tree of 200 nodes is a hundred passes here, so few tokens are drafted with it."""
    wanted = [ids[: shape.get("tokens")] for ids in plain(sampling)]
    assert answers(engine, name, sampling, **shape) == wanted


FORMAT = Grammar('start: "{" /[a-z]{3,9}/ "}"')


@pytest.mark.parametrize("sampling", [SamplingParams(), SEEDED])
@pytest.mark.parametrize("name", SPECULATIVE)
def test_in_a_format_every_drafter_equals_plain(engine, plain, pocket_gguf, name, sampling):
    held = {"grammar": FORMAT, "stop_tokens": frozenset({2})}
    wanted = plain(sampling, **held)
    assert answers(engine, name, sampling, **held) == wanted
    words = FileSpeller(pocket_gguf).tokens(engine.facts.vocab)
    for ids in wanted:
        assert re.fullmatch(rb"\{[a-z]{3,9}\}", b"".join(words[token] for token in ids))


def test_early_exit_says_why_it_cannot_run(engine):
    assert "stop after some layers" in dict(engine.facts.refused)["early_exit"]


@pytest.mark.parametrize("name", SPECULATIVE)
def test_the_context_is_never_exceeded(engine, name):
    request = GenerationRequest((7, 8, 9) * 80, 100, drafter=name, length="fixed")
    [(ids, done)] = run_all(engine, [request])
    assert len(ids) + 240 == 256
    assert done.reason is FinishReason.LENGTH


def test_a_warm_prefix_is_reused_and_changes_nothing(engine):
    request = GenerationRequest(PROMPTS[1], 16, session="a", drafter="none")
    [(first, _)] = run_all(engine, [request])
    longer = replace(request, prompt=(*PROMPTS[1], *first, 77))
    [(warm, done)] = run_all(engine, [longer])
    assert done.stats.cached_tokens >= len(PROMPTS[1]) + len(first) - 1
    [(cold, done)] = run_all(engine, [replace(longer, cold=True)])
    assert done.stats.cached_tokens < len(PROMPTS[1])
    assert warm == cold
