"""What goes into the engine and what comes out of it: plain frozen values, safe to pickle."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from itertools import zip_longest
from types import MappingProxyType

from typing_extensions import override

from engine.errors import ContextOverflow, InvalidRequest
from engine.grammar.grammar import Grammar

PLAIN, AUTO = "none", "auto"  # drafters that have a part of their own
SHARED_STATE = "shared"
MOST_LIKELIEST = 20  # tokens whose log probabilities are reported, for each token of an answer


@dataclass(frozen=True, slots=True)
class Option:
    """One number that a drafter or a draft length takes, with its range and its meaning."""

    name: str
    meaning: str
    default: float
    least: float = 0.0
    most: float = 1.0

    def of(self, options: Mapping[str, float]) -> float:
        """The given value, or the default. Raises InvalidRequest outside the range."""
        if self.name in options:
            self.check(options[self.name])
        return options.get(self.name, self.default)

    def check(self, value: float) -> None:
        """Raise InvalidRequest when the value is outside the range."""
        if not self.least <= value <= self.most:
            raise InvalidRequest(
                f"option {self.name} is {value:g}; choose {self.least:g} to {self.most:g}"
            )


def check_options(owner: str, known: Sequence[Option], given: Mapping[str, float]) -> None:
    """Raise InvalidRequest for the first option that ``owner`` does not take, or out of its range."""
    by_name = {option.name: option for option in known}
    for name, value in given.items():
        if name not in by_name:
            raise InvalidRequest(f"{owner} has no option {name!r}{nearest(name, tuple(by_name))}")
        by_name[name].check(value)


def nearest(name: str, known: Sequence[str]) -> str:
    """The end of an error about an unknown name: the most similar known one, and all of them."""
    if not known:
        return "; it takes none"
    close = get_close_matches(name, known, 1, 0.5)
    meant = f"; did you mean {close[0]!r}?" if close else ";"
    return f"{meant} known: {', '.join(known)}"


@dataclass(frozen=True, slots=True)
class Range:
    """The values that a sampling parameter may have; ``neutral`` says which one does what."""

    low: float
    high: float
    neutral: str = ""
    above_low: bool = False  # low itself is not allowed
    below_high: bool = False  # high itself is not allowed

    def check(self, name: str, value: float) -> None:
        """Raise InvalidRequest for a value outside of the range."""
        low = value > self.low if self.above_low else value >= self.low
        high = value < self.high if self.below_high else value <= self.high
        if not (math.isfinite(value) and low and high):
            raise InvalidRequest(f"{name} is {value}; choose {self}")

    @override
    def __str__(self) -> str:
        """As a person reads it."""
        low = f"more than {self.low:g}" if self.above_low else f"{self.low:g}"
        high = f"less than {self.high:g}" if self.below_high else f"{self.high:g}"
        return f"{low} to {high}" + (f" ({self.neutral})" if self.neutral else "")


RANGES: Mapping[str, Range] = MappingProxyType({
    "temperature": Range(0, 100, "0 is greedy"),
    "top_p": Range(0, 1, "1 is off", above_low=True),
    "min_p": Range(0, 1, "0 is off", below_high=True),
    "top_k": Range(0, 2**31 - 1, "0 is off"),
    "seed": Range(0, 2**63 - 1),
    "presence": Range(-100, 100, "0 is off"),
    "frequency": Range(-100, 100, "0 is off"),
    "repeat": Range(0.01, 100, "1 is off"),  # no logit leaves the range of float32
    "bias": Range(-100, 100, "0 is off"),
})  # fmt: skip
"""The only table of ranges: command line, HTTP and engine read it."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """What is done to logits because of the tokens that stand before; see ``engine.speculation.penalties``."""

    presence: float = 0.0  # taken off every token that the answer has
    frequency: float = 0.0  # taken off for each time that the answer has it
    repeat: float = (
        1.0  # divides positive logits of what was said lately, and multiplies the others
    )
    bias: tuple[tuple[int, float], ...] = ()  # (token, what is added to its logit)

    def check(self) -> None:
        """Raise InvalidRequest for a value outside of its range."""
        for name in ("presence", "frequency", "repeat"):
            RANGES[name].check(f"the {name} penalty", getattr(self, name))
        for token, value in self.bias:
            RANGES["bias"].check(f"the bias of token {token}", value)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the target's logits become the law that tokens follow.

    Temperature 0 is greedy. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 switch a filter off.
    A request with a seed gives the same tokens every time on one machine, and the same tokens
    as plain decoding, whatever drafts and however long the drafts happen to be.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    penalties: Penalties | None = None

    @property
    def greedy(self) -> bool:
        """Whether the law is one-hot at the largest logit."""
        return self.temperature == 0

    @property
    def filters(self) -> bool:
        """Whether some tokens may be left out."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0

    def check(self) -> None:
        """Raise InvalidRequest for a value outside of its range."""
        for name in ("temperature", "top_p", "min_p", "top_k"):
            RANGES[name].check(name, getattr(self, name))
        if self.seed is not None:
            RANGES["seed"].check("seed", self.seed)
        if self.penalties is not None:
            self.penalties.check()


@dataclass(frozen=True, slots=True)
class Prior:
    """What earlier sessions measured of one drafter on this machine; fresh evidence overrules it.

    Counts are weights, not necessarily whole: old evidence has faded before it comes here.
    """

    drafter: str
    depths: tuple[tuple[float, float], ...] = ()  # (evaluated, accepted), depth 1 first
    pace: float | None = None  # plain decoding's seconds over this drafter's, for the same tokens
    pace_weight: float = 0.0  # tokens that ``pace`` rests on
    shares: tuple[float, ...] = ()  # what it measured of itself, as its ``Drafter.shares``
    share_weight: float = 0.0  # events that ``shares`` rest on


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Token ids to continue; ``drafter`` is a name of ``engine.drafters`` or ``auto``."""

    prompt: tuple[int, ...]
    max_tokens: int
    sampling: SamplingParams = SamplingParams()
    stop_tokens: frozenset[int] = frozenset()
    session: str | None = None  # same session: the cached prefix is reused
    cold: bool = False  # for measurements: nothing is warm when it begins, for anybody
    task: str = ""  # its kind, in the caller's words: how far copies go is measured by kind
    drafter: str = AUTO
    length: str = (
        "default"  # a name of ``engine.draft_length``; default: what suits the drafter best
    )
    draft_depth: int | None = None  # levels below the root; None: the drafter's own default
    draft_nodes: int | None = None  # nodes of a tree; None: the drafter's own default
    options: tuple[tuple[str, float], ...] = ()  # for the drafter and the draft length, by name
    # Requests with the same text share what drafters and lengths learn. "shared" is the usual one;
    # any other text has drafters of its own, which have learned nothing yet.
    drafter_state: str = SHARED_STATE
    priors: tuple[Prior, ...] = ()  # at most one per drafter
    margins: bool = False  # also report how close each choice was
    prediction: tuple[int, ...] = ()  # what the answer may resemble: drafted from, never read
    logprobs: int | None = None  # also report log probabilities, of this many likeliest tokens, too
    grammar: Grammar | None = None  # what the answer may look like; it has stop tokens then
    begun: int = 0  # last tokens of the prompt that are the start of the answer, for its grammar
    echo: bool = False  # also report the log probabilities of the prompt; then all of it is read
    ahead: bool = False  # only the prompt is read, and only while no other request waits

    def check(self, vocab: int, context: int) -> None:
        """Raise InvalidRequest or ContextOverflow with one sentence when it cannot be answered."""
        self.sampling.check()
        if not self.prompt:
            raise InvalidRequest("the prompt is empty; send at least one token")
        if self.max_tokens < 1:
            raise InvalidRequest(f"max_tokens is {self.max_tokens}; ask for at least 1")
        if min(self.draft_depth or 0, self.draft_nodes or 0) < 0:
            raise InvalidRequest("draft_depth and draft_nodes must not be negative")
        if self.logprobs is not None and not 0 <= self.logprobs <= MOST_LIKELIEST:
            raise InvalidRequest(f"logprobs is {self.logprobs}; choose 0 to {MOST_LIKELIEST}")
        penalties = self.sampling.penalties
        biased = () if penalties is None else (token for token, _ in penalties.bias)
        if any(not 0 <= token < vocab for token in (*self.prompt, *self.prediction, *biased)):
            raise InvalidRequest(
                f"token ids must lie in 0..{vocab - 1}; if you sent none, get the model again: its files do not fit"
            )
        if len(self.prompt) >= context:
            raise ContextOverflow(len(self.prompt) + 1, context)


class FinishReason(StrEnum):
    """Why a generation ended."""

    STOP = "stop"  # a stop token; it is not among the emitted ids
    LENGTH = "length"  # max_tokens, or the context is full
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class DepthCount:
    """At one depth of the draft: tokens evaluated by the target, tokens accepted."""

    evaluated: int
    accepted: int


def summed(columns: Sequence[tuple[DepthCount, ...]]) -> tuple[DepthCount, ...]:
    """Counts of several runs added up depth by depth."""
    rows = zip_longest(*columns, fillvalue=DepthCount(0, 0))
    return tuple(
        DepthCount(sum(c.evaluated for c in row), sum(c.accepted for c in row)) for row in rows
    )


def tokens_per_pass(passes: int, accepted: int, emitted: int, answers: int = 1) -> float:
    """How far one pass of the target goes; 0 when none ran.

    Every pass gives the drafted tokens that it accepts and one of its own, and what ends an answer is one,
    too. After that nothing counts: a pass that accepts the end of a draft says one token more.
    """
    return min(passes + accepted, emitted + answers) / passes if passes else 0.0


@dataclass(frozen=True, slots=True)
class DrafterRun:
    """The part of one generation that one drafter had; several only under ``auto``."""

    drafter: str
    passes: int
    emitted: int
    drafted: int
    accepted: int
    seconds: float  # drafting, scoring and verifying of these passes
    plain_seconds: float  # what plain decoding would have taken for these tokens, by measured cost
    depths: tuple[DepthCount, ...]  # depth 1 first
    shares: tuple[float, ...] = ()  # as in ``Prior``; only from drafters that measure any
    share_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Stats:
    """What one generation did; seconds are wall time inside the engine."""

    drafter: str
    why: str  # one sentence: why this drafter ran
    prompt_tokens: int
    cached_tokens: int  # of the prompt, found in the cache
    emitted: int
    passes: int  # target passes after the prompt
    drafted: int
    accepted: int
    depths: tuple[DepthCount, ...]  # depth 1 first
    prompt_seconds: float
    decode_seconds: float
    runs: tuple[DrafterRun, ...] = ()  # by drafter, most tokens first
    near_ties: int = 0  # tokens that were decoded again as one row, since another was as likely


@dataclass(frozen=True, slots=True)
class Logprob:
    """Natural logarithms of a token's probability and of the likeliest tokens' in its place.

    Under the model itself: before temperature and filters, and never a draft's.
    """

    token: int
    value: float
    likeliest: tuple[tuple[int, float], ...] = ()  # (token, value), best first


@dataclass(frozen=True, slots=True)
class Tokens:
    """Newly emitted ids of one pass, in order; how many were drafted and accepted in it."""

    ids: tuple[int, ...]
    drafted: int
    accepted: int
    margins: tuple[float, ...] = ()  # per id: largest logit less the second; only when asked for
    logprobs: tuple[Logprob, ...] = ()  # per id; only when asked for


@dataclass(frozen=True, slots=True)
class Echo:
    """Log probabilities of the prompt's tokens but the first, once, when it has been read."""

    logprobs: tuple[Logprob, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """Always the last event of a request, exactly once; ``error`` and its ``code`` for ERROR only."""

    reason: FinishReason
    stats: Stats
    error: str | None = None
    code: str | None = None  # of the error: what kind it was, for programs


Event = Tokens | Echo | Done


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was measured of a model on this machine, for the next load of the same files."""

    seconds: tuple[tuple[int, float], ...]  # (rows, seconds of a pass of that many)
    per_context: float  # seconds more by each cached token
    per_row: float  # seconds more by each cached token and row
    exact_rows: int  # of a pass in which each row has the bits that it has alone
    margin: float = 0.0  # of two logits, below which a choice is a near tie
    whole: bool = True  # False: each pass ran once, and is to be measured in an idle moment


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What ``build`` needs to know: folders on this machine, numbers, names."""

    name: str
    folder: str  # Hugging Face layout: config.json, *.safetensors, tokenizer.json; or a GGUF file
    draft_folder: str | None = None
    device: str = "cpu"
    dtype: str = "float32"  # or bfloat16, float16
    slots: int = 4  # requests that run at once; there is a whole context for each
    warm: int = 12  # further conversations that stay warm: in that room, or put away in free memory
    exit_layer: int | None = None  # set for checkpoints trained with an early-exit loss
    acceptance_head: str | None = None  # folder of a head that ``train-head`` wrote for this pair
    inflate: int = 1  # the same function at a larger cost; for measurements only
    backend: str = "torch"  # a name of ``engine.models.TARGETS``
    draft_backend: str = "torch"
    context: int | None = None  # tokens of one conversation; None: what the model was made for
    weights: str = "full"  # or int8: smaller, and no longer quite the same function
    resident: int | None = None  # bytes for weights, buffers and a pass; the rest is streamed
    threads: int | None = None  # None: as many as there are cores
    gpu_layers: int = 0  # of a GGUF file; -1: all
    batch: int = 256  # most rows of one pass over a GGUF file
    kv_type: str | None = (
        None  # of a GGUF file's cache: f32, f16, bf16, q8_0, q4_0; None: see there
    )
    flash_attention: bool | None = None  # of a GGUF file; None: as the type of the cache needs it
    cpu_experts: int = 0  # first layers of a GGUF file whose experts stay in RAM
    windowed: bool = (
        False  # of a GGUF file: layers with sliding windows keep no more than these see
    )
    exact: bool | None = (
        None  # drafted rows get plain decoding's bits; None: where that costs little
    )
    calibration: Calibration | None = None  # of an earlier load on this machine; None: measured
    measure_later: bool = (
        False  # what passes cost is measured well only while there are no requests
    )


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a built engine says of itself."""

    name: str
    context: int
    vocab: int
    layers: int
    parameters: int
    drafters: tuple[str, ...]  # names that can run with this model, ``none`` first
    refused: tuple[tuple[str, str], ...] = field(default=())  # (drafter, why it cannot run)
    notes: tuple[str, ...] = ()  # sentences: how what was loaded differs from the files
    calibration: Calibration | None = (
        None  # as measured at this load; None: given, or not to be kept
    )
