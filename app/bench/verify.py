"""The proof: the same prompts plain and drafted, greedy in float32, token by token."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Protocol

from app.bench.prompt_files import Turns
from app.errors import RequestFailed
from app.request import ALL_DRAFTERS, Message
from app.text.chat_text import ChatText
from engine.errors import InvalidRequest
from engine.request import (
    AUTO,
    PLAIN,
    Event,
    FinishReason,
    GenerationRequest,
    ModelFacts,
    Stats,
    Tokens,
    tokens_per_pass,
)


class Generates(Protocol):
    """What verification needs of a worker."""

    def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Events of a request, Done last."""
        ...


@dataclass(frozen=True, slots=True)
class Bench:
    """A loaded model and what it is asked to do; ``progress`` is told each finished run."""

    worker: Generates
    facts: ModelFacts
    text: ChatText
    max_tokens: int
    progress: Callable[[str], None] = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a drafted answer leaves the plain one; None is the end of the answer."""

    prompt: int  # counted from 1, in the order of the file, every turn for itself
    token: int  # counted from 0
    plain: int | None
    drafted: int | None
    gap: float | None  # plain's largest logit less the second there: how close the tie was


@dataclass(frozen=True, slots=True)
class DrafterResult:
    """One drafter against plain decoding; the first line of a table is plain itself."""

    drafter: str
    prompts: int = 0
    tokens: int = 0  # plain's
    agreeing_prompts: int = 0
    agreeing_tokens: int = 0  # before the first difference of each prompt
    emitted: int = 0
    passes: int = 0
    accepted: int = 0
    first: Difference | None = None

    @property
    def tokens_per_pass(self) -> float:
        """How far one pass of the model went; 0 when nothing ran."""
        return tokens_per_pass(self.passes, self.accepted, self.emitted, self.prompts)

    @property
    def agrees(self) -> bool:
        """Whether every token was plain's."""
        return self.agreeing_prompts == self.prompts


@dataclass(frozen=True, slots=True)
class Verification:
    """All drafters; ``skipped`` prompts did not fit the context."""

    results: tuple[DrafterResult, ...]
    skipped: int

    @property
    def agrees(self) -> bool:
        """Whether something ran, and every token of every drafter was plain's."""
        ran = all(result.prompts for result in self.results)
        return ran and all(result.agrees for result in self.results)


@dataclass(frozen=True, slots=True)
class _Answer:
    ids: tuple[int, ...]
    margins: tuple[float, ...]
    stats: Stats


def choose_drafters(names: Sequence[str], facts: ModelFacts) -> tuple[str, ...]:
    """What to compare with plain decoding; raises InvalidRequest for what cannot run."""
    if ALL_DRAFTERS in names:
        return tuple(name for name in facts.drafters if name != PLAIN)
    refused = dict(facts.refused)
    for name in names:
        if name not in (AUTO, *facts.drafters):
            why = refused.get(name, "this engine does not have it")
            raise InvalidRequest(f"{name} cannot run with {facts.name}: {why}")
    return tuple(names)


async def verify(bench: Bench, prompts: Iterable[Turns], drafters: Sequence[str]) -> Verification:
    """Run every prompt plain and with each drafter; later turns follow plain's own answers."""
    tally = _Tally(bench, {name: DrafterResult(name) for name in (PLAIN, *drafters)})
    for turns in prompts:
        await tally.converse(turns)
    return Verification(tuple(tally.results.values()), tally.skipped)


@dataclass(slots=True)
class _Tally:
    """The results so far."""

    bench: Bench
    results: dict[str, DrafterResult]
    prompts: int = 0
    skipped: int = 0

    async def converse(self, turns: Turns) -> None:
        """Every turn of one conversation, until one does not fit the context."""
        messages: list[Message] = []
        for place, turn in enumerate(turns):
            messages.append(Message("user", turn))
            prompt = self.bench.text.encode_chat(messages)
            if len(prompt) >= self.bench.facts.context:
                self.skipped += len(turns) - place
                return
            plain = await self._compare(prompt)
            messages.append(Message("assistant", self.bench.text.decode(plain.ids)))

    async def _compare(self, prompt: tuple[int, ...]) -> "_Answer":
        self.prompts += 1
        plain = await _run(self.bench, prompt, PLAIN)
        for name, result in self.results.items():
            drafted = plain if name == PLAIN else await _run(self.bench, prompt, name)
            self.results[name] = _added(result, self.prompts, plain, drafted)
            self.bench.progress(f"prompt {self.prompts}: {name}")
        return plain


def find_difference(
    prompt: int, plain: Sequence[int], drafted: Sequence[int], margins: Sequence[float]
) -> Difference | None:
    """The first token that is not plain's; ``margins`` are plain's, as far as they are known."""
    pairs = enumerate(zip_longest(plain, drafted))
    for place, (ours, theirs) in pairs:
        if ours != theirs:
            gap = margins[place] if place < len(margins) else None
            return Difference(prompt, place, ours, theirs, gap)
    return None


async def _run(bench: Bench, prompt: tuple[int, ...], drafter: str) -> _Answer:
    request = GenerationRequest(
        prompt=prompt,
        max_tokens=bench.max_tokens,
        stop_tokens=bench.text.stop_tokens,
        drafter=drafter,
        length="fixed",  # full drafts: what an adaptive length would skip is proved too
        margins=True,
    )
    ids: list[int] = []
    margins: list[float] = []
    async for event in bench.worker.generate(request):
        if isinstance(event, Tokens):
            ids += event.ids
            margins += event.margins
        elif event.reason is FinishReason.ERROR:
            raise RequestFailed(f"with the drafter {drafter}: {event.error}")
        else:
            return _Answer(tuple(ids), tuple(margins), event.stats)
    raise RequestFailed(f"with the drafter {drafter}: the answer has no end")


def _added(result: DrafterResult, number: int, plain: _Answer, drafted: _Answer) -> DrafterResult:
    difference = find_difference(number, plain.ids, drafted.ids, plain.margins)
    same = len(plain.ids) if difference is None else difference.token
    return DrafterResult(
        drafter=result.drafter,
        prompts=result.prompts + 1,
        tokens=result.tokens + len(plain.ids),
        agreeing_prompts=result.agreeing_prompts + (difference is None),
        agreeing_tokens=result.agreeing_tokens + same,
        emitted=result.emitted + len(drafted.ids),
        passes=result.passes + drafted.stats.passes,
        accepted=result.accepted + drafted.stats.accepted,
        first=result.first or difference,
    )
