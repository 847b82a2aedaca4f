"""What of an engine's answer is read, and what becomes of it here: deltas, counts, log probabilities."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from app.request import CallDelta
from engine.request import Logprob

_SAMPLE = re.compile(r"^([\w:]+)(?:\{.*\})? (-?[\d.]+(?:e[+-]?\d+)?)(?: \d+)?$", re.MULTILINE)


class _Lenient(BaseModel):
    """Takes what it knows of an object and leaves the rest."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


Count = Annotated[
    int, BeforeValidator(lambda told: told if type(told) is int and 0 <= told < 2**31 else 0)
]
"""A number of tokens; what is none counts as 0."""
Milliseconds = Annotated[
    float | None,
    BeforeValidator(
        lambda told: told if isinstance(told, int | float) and 0 <= told < 1e12 else None
    ),
]


class _Function(_Lenient):
    name: str | None = None
    arguments: str | None = None


class _Call(_Lenient):
    index: int | None = None  # Ollama sends none
    id: str | None = None
    function: _Function | None = None


class _Delta(_Lenient):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None  # as newer engines name it
    tool_calls: list[_Call] | None = None


class _Likely(_Lenient):
    token: str = ""
    logprob: float | None = None
    spelling: list[int] | None = Field(default=None, alias="bytes")

    @property
    def spelled(self) -> bytes:
        """Its bytes, which may be a part of a character."""
        known = self.spelling
        return self.token.encode() if known is None else bytes(each % 256 for each in known)


class _Token(_Likely):
    top_logprobs: list[_Likely] | None = None


class _Logprobs(_Lenient):
    content: list[_Token] | None = None
    tokens: list[str] | None = None  # this one and the next two: of text completions
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float | None] | None] | None = None

    def entries(self) -> Iterator[_Token]:
        """Both forms as one."""
        yield from self.content or ()
        for at, token in enumerate(self.tokens or ()):
            value = (self.token_logprobs or [])[at : at + 1]
            likeliest = (self.top_logprobs or [])[at : at + 1]
            found = (likeliest and likeliest[0]) or {}
            yield _Token(
                token=token,
                logprob=value[0] if value else None,
                top_logprobs=[_Likely(token=one, logprob=each) for one, each in found.items()],
            )


class Choice(_Lenient):
    """The next part of an answer."""

    index: int | None = None
    delta: _Delta | None = None
    text: str | None = None  # of a text completion
    finish_reason: str | None = None
    stop_reason: int | str | None = None  # vLLM: the stop text
    matched_stop: int | str | None = None  # SGLang: the same
    logprobs: _Logprobs | None = None

    @property
    def reasoning(self) -> str:
        """Reasoning, whatever its name."""
        found = self.delta and (self.delta.reasoning_content or self.delta.reasoning)
        return found or ""

    @property
    def said(self) -> str:
        """Text of the answer itself."""
        found = self.text if self.delta is None else self.delta.content or self.delta.refusal
        return found or ""

    @property
    def stopped_by(self) -> str:
        """The stop text that ended the answer, where the engine tells it."""
        found = (self.stop_reason, self.matched_stop)
        return next((one for one in found if isinstance(one, str)), "")


class _Details(_Lenient):
    cached_tokens: Count = 0
    reasoning_tokens: Count = 0


class Usage(_Lenient):
    """Token counts."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None

    @property
    def cached(self) -> int:
        """Tokens of the prompt that were in the engine's cache."""
        details = self.prompt_tokens_details
        return details.cached_tokens if details else 0

    @property
    def reasoned(self) -> int:
        """Tokens of the answer that were reasoning."""
        details = self.completion_tokens_details
        return details.reasoning_tokens if details else 0


class Timings(_Lenient):
    """What llama-server and Slipstream tell of an answer's speed and drafts."""

    prompt_ms: Milliseconds = None
    predicted_ms: Milliseconds = None
    draft_n: Count = 0
    draft_n_accepted: Count = 0


class Speculation(_Lenient):
    """What Slipstream tells besides."""

    passes: Count = 0


class _OfVllm(_Lenient):
    num_draft_tokens: Count = 0
    num_accepted_draft_tokens: Count = 0
    num_spec_steps: Count = 0


class _Metrics(_Lenient):
    speculative_decoding: _OfVllm | None = None


class _OfSglang(_Lenient):
    spec_num_proposed_drafts: Count = 0
    spec_num_correct_drafts: Count = 0
    spec_verify_ct: Count = 0


class _Extension(_Lenient):
    spec_tokens_details: _OfSglang | None = None


class Chunk(_Lenient):
    """One event of an answer."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    speculation: Speculation | None = None
    metrics: _Metrics | None = None  # vLLM's, where it was started to tell
    sglext: _Extension | None = None  # SGLang's, where it was asked
    error: Any = None

    @property
    def drafts(self) -> tuple[int, int, int] | None:
        """Drafted tokens, accepted ones and passes of this answer; None where nothing is told."""
        if self.timings is not None and self.timings.draft_n:
            passes = self.speculation.passes if self.speculation else 0
            return self.timings.draft_n, self.timings.draft_n_accepted, passes
        if self.metrics is not None and (vllm := self.metrics.speculative_decoding):
            return vllm.num_draft_tokens, vllm.num_accepted_draft_tokens, vllm.num_spec_steps
        if self.sglext is not None and (sglang := self.sglext.spec_tokens_details):
            told = sglang.spec_num_proposed_drafts, sglang.spec_num_correct_drafts
            return *told, sglang.spec_verify_ct
        return None


class Listed(_Lenient):
    """One model of an engine's list."""

    id: str = Field(min_length=1, max_length=200)
    owned_by: str | None = None
    max_model_len: int | None = None  # vLLM's and SGLang's name of the context
    context_length: int | None = None  # Slipstream's
    meta: dict[str, Any] | None = None  # llama-server's facts

    @property
    def context(self) -> int:
        """Tokens of the longest conversation; 0 where the engine does not tell."""
        meta = (self.meta or {}).get("n_ctx")
        found = (self.max_model_len, self.context_length, meta if isinstance(meta, int) else None)
        return max(0, next((each for each in found if each), 0))


class Words:
    """Numbers for the tokens of an engine whose vocabulary is not here, in the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._words: list[bytes] = []

    def number(self, word: bytes) -> int:
        """Of a token with these bytes."""
        if word not in self._numbers:
            self._numbers[word] = len(self._words)
            self._words.append(word)
        return self._numbers[word]

    def of(self, number: int) -> bytes:
        """The bytes of a token."""
        return self._words[number]


def logprobs_of(found: _Logprobs | None, words: Words) -> tuple[Logprob, ...]:
    """Log probabilities with numbers for tokens; those that are missing are left out."""
    return tuple(
        Logprob(
            words.number(one.spelled),
            one.logprob,
            tuple(
                (words.number(other.spelled), other.logprob)
                for other in one.top_logprobs or ()
                if other.logprob is not None
            ),
        )
        for one in (found.entries() if found is not None else ())
        if one.logprob is not None
    )


class Calls:
    """The tool calls of one answer, whose parts come in several events."""

    def __init__(self) -> None:
        self._started: dict[int, int] = {}  # the engine's index -> ours

    def __len__(self) -> int:
        """How many there are."""
        return len(self._started)

    def parts(self, found: Sequence[_Call]) -> tuple[CallDelta, ...]:
        """The next parts; the first of a call has its name and an id."""
        return tuple(part for call in found if (part := self._part(call)) is not None)

    def _part(self, call: _Call) -> CallDelta | None:
        function = call.function or _Function()
        index = len(self._started) if call.index is None else call.index
        if index in self._started:
            return CallDelta(self._started[index], function.arguments or "")
        if not function.name:
            return None  # a part of no call
        self._started[index] = at = len(self._started)
        return CallDelta(at, function.arguments or "", function.name, call.id or f"call_{at}")


def metrics_of(text: str) -> Mapping[str, float]:
    """Metrics in Prometheus' form, by name, with the sum over all labels."""
    found: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        found[name] = found.get(name, 0.0) + float(value)
    return found
