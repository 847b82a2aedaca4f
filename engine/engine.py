"""The engine: draft -> score -> verify -> commit, for every running request, one pass a step."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from torch import Tensor

from engine.decode.chance import SeededChance
from engine.decode.tree import DraftTree
from engine.decode.verify import Verdict, verify
from engine.errors import ContextOverflow, EngineError, InvalidRequest
from engine.protocols import Budget, Drafter, LengthPolicy, Outcome, Target
from engine.request import (
    Done,
    Event,
    FinishReason,
    GenerationRequest,
    ModelFacts,
    Tokens,
)
from engine.schedule import Scheduler, Session

PROMPT_CHUNK = 256  # tokens of one prompt per step: the longest that a cancel waits


@dataclass(frozen=True, slots=True)
class Machinery:
    """What ``build`` puts together: one target, its drafters, policies made on demand."""

    target: Target
    drafters: Mapping[str, Drafter]
    choose: Callable[[str], tuple[str, str]]  # asked for -> (drafter, why); raises InvalidRequest
    length: Callable[[str], LengthPolicy]  # raises InvalidRequest
    facts: ModelFacts
    slots: int


@dataclass(frozen=True, slots=True)
class _Round:
    """One session's part of a step."""

    session: Session
    tree: DraftTree
    draft_seconds: float


class Engine:
    """Owns the target; synchronous and single-threaded, so it needs no lock."""

    def __init__(self, machinery: Machinery) -> None:
        """Take over what ``build`` made."""
        self.facts = machinery.facts
        self._target = machinery.target
        self._machinery = machinery
        self._scheduler = Scheduler(machinery.slots)
        self._lengths: dict[tuple[str, str], LengthPolicy] = {}
        self._sessions: dict[int, Session] = {}
        self._numbers = count(1)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._sessions)

    def submit(self, request: GenerationRequest) -> int:
        """Queue a request; raises InvalidRequest or ContextOverflow."""
        self._check(request)
        drafter, why = self._machinery.choose(request.drafter)
        self._length(request.length, drafter)
        session = Session(
            id=next(self._numbers),
            request=request,
            drafter=drafter,
            why=why,
            chance=SeededChance(request.sampling.seed),
            ids=list(request.prompt),
        )
        self._sessions[session.id] = session
        self._scheduler.waiting.append(session)
        return session.id

    def cancel(self, request_id: int) -> None:
        """End a request; its Done comes with the next step. Unknown ids are over already."""
        if request_id in self._sessions:
            self._sessions[request_id].cancelled = True

    def step(self) -> list[tuple[int, Event]]:
        """One pass: at most one prompt chunk, and one round of every request that decodes."""
        events = self._drop_cancelled()
        for session in self._scheduler.admit():
            self._target.crop(session.slot, session.cached)
        ready = [s for s in self._scheduler.running if self._missing(s) == 0]
        for session in self._scheduler.running:
            if self._missing(session):
                events += self._guarded([session], self._feed)
                break
        return events + self._guarded(ready, self._decode)

    def _check(self, request: GenerationRequest) -> None:
        request.sampling.check()
        if not request.prompt:
            raise InvalidRequest("the prompt is empty; send at least one token")
        if request.max_tokens < 1:
            raise InvalidRequest(f"max_tokens is {request.max_tokens}; ask for at least 1")
        if min(request.draft_depth or 0, request.draft_nodes or 0) < 0:
            raise InvalidRequest("draft_depth and draft_nodes must not be negative")
        if any(not 0 <= token < self._target.vocab for token in request.prompt):
            raise InvalidRequest(f"token ids must lie in 0..{self._target.vocab - 1}")
        if len(request.prompt) >= self._target.context:
            raise ContextOverflow(len(request.prompt) + 1, self._target.context)

    def _drop_cancelled(self) -> list[tuple[int, Event]]:
        gone = [s for s in self._sessions.values() if s.cancelled]
        return [self._finish(s, FinishReason.CANCELLED) for s in gone]

    def _missing(self, session: Session) -> int:
        """Prompt tokens still to be fed; the last one is the root of the first tree."""
        return len(session.ids) - 1 - self._target.length(session.slot)

    def _feed(self, sessions: Sequence[Session]) -> list[tuple[int, Event]]:
        session = sessions[0]
        started = time.perf_counter()
        at = self._target.length(session.slot)
        chunk = session.ids[at : min(at + PROMPT_CHUNK, len(session.ids) - 1)]
        self._target.feed(session.slot, chunk)
        session.prompt_seconds += time.perf_counter() - started
        return []

    def _decode(self, sessions: Sequence[Session]) -> list[tuple[int, Event]]:
        if not sessions:
            return []
        started = time.perf_counter()
        rounds = self._draft(sessions)
        drafted = time.perf_counter()
        slots = [r.session.slot for r in rounds]
        scores = self._target.score(slots, [r.tree for r in rounds])
        scored = time.perf_counter() - drafted
        outcomes = [
            Outcome(
                r.session.context(), r.tree,
                verify(r.tree, s.logits, r.session.request.sampling, r.session.chance),
                r.draft_seconds, scored,
            )
            for r, s in zip(rounds, scores, strict=True)
        ]  # fmt: skip
        self._learn(rounds, outcomes)
        events: list[tuple[int, Event]] = []
        for r, s, outcome in zip(rounds, scores, outcomes, strict=True):
            r.session.decode_seconds += time.perf_counter() - started
            margins = _margins(s.logits, outcome.verdict) if r.session.request.margins else ()
            events += self._commit(r.session, outcome, margins)
        return events

    def _draft(self, sessions: Sequence[Session]) -> list[_Round]:
        rounds = []
        for session in sessions:
            started = time.perf_counter()
            drafter = self._machinery.drafters[session.drafter]
            policy = self._length(session.request.length, session.drafter)
            longest = self._longest(session, drafter)
            budget = policy.budgets([session.context()], longest)[0]
            tree = drafter.draft([session.context()], [budget])[0]
            rounds.append(_Round(session, tree, time.perf_counter() - started))
        return rounds

    def _longest(self, session: Session, drafter: Drafter) -> Budget:
        """The longest useful draft: what can still be emitted, the bonus token set aside."""
        request, default = session.request, drafter.length
        depth = default.depth if request.draft_depth is None else request.draft_depth
        nodes = default.nodes if request.draft_nodes is None else request.draft_nodes
        wanted = request.max_tokens - session.emitted - 1
        room = min(wanted, self._target.context - len(session.ids) - 1)
        return Budget(max(0, min(depth, room)), max(0, nodes))

    def _length(self, name: str, drafter: str) -> LengthPolicy:
        key = (name, drafter)
        if key not in self._lengths:
            self._lengths[key] = self._machinery.length(name)
        return self._lengths[key]

    def _learn(self, rounds: Sequence[_Round], outcomes: Sequence[Outcome]) -> None:
        for r, outcome in zip(rounds, outcomes, strict=True):
            self._machinery.drafters[r.session.drafter].observe([outcome])
            self._length(r.session.request.length, r.session.drafter).observe([outcome])

    def _commit(
        self, session: Session, outcome: Outcome, margins: tuple[float, ...]
    ) -> list[tuple[int, Event]]:
        """Keep the accepted path, emit its tokens, end the request where it must end."""
        tree, verdict = outcome.tree, outcome.verdict
        self._target.commit(session.slot, verdict.path)
        fresh = [*(tree.tokens[node] for node in verdict.path[1:]), verdict.bonus]
        kept, reason = self._cut(session, fresh)
        accepted = len(verdict.path) - 1
        refused = bool(tree.children[verdict.path[-1]])
        session.count(tree.drafted, accepted, refused=refused)
        session.ids += kept
        session.emitted += len(kept)
        self._target.crop(session.slot, len(session.ids))
        events: list[tuple[int, Event]] = []
        if kept:
            shown = Tokens(tuple(kept), tree.drafted, accepted, margins[: len(kept)])
            events.append((session.id, shown))
        return events if reason is None else [*events, self._finish(session, reason)]

    def _cut(self, session: Session, fresh: list[int]) -> tuple[list[int], FinishReason | None]:
        """Tokens up to a stop token or a limit, and why the request ends there if it does."""
        room = min(
            session.request.max_tokens - session.emitted, self._target.context - len(session.ids)
        )
        for i, token in enumerate(fresh[:room]):
            if token in session.request.stop_tokens:
                return fresh[:i], FinishReason.STOP
        return fresh[:room], FinishReason.LENGTH if len(fresh) >= room else None

    def _finish(
        self, session: Session, reason: FinishReason, error: str | None = None
    ) -> tuple[int, Event]:
        if session in self._scheduler.running:
            cached = min(self._target.length(session.slot), len(session.ids))
            self._target.crop(session.slot, cached)
            self._scheduler.release(session, cached)
        else:
            self._scheduler.waiting.remove(session)
        self._machinery.drafters[session.drafter].forget(session.id, session.slot)
        self._length(session.request.length, session.drafter).forget(session.id)
        del self._sessions[session.id]
        return session.id, Done(reason, session.stats(), error)

    def _guarded(
        self,
        sessions: Sequence[Session],
        work: Callable[[Sequence[Session]], list[tuple[int, Event]]],
    ) -> list[tuple[int, Event]]:
        """An expected failure ends the requests that took part, each with the sentence."""
        try:
            return work(sessions)
        except EngineError as error:
            live = [s for s in sessions if s.id in self._sessions]
            return [self._finish(s, FinishReason.ERROR, str(error)) for s in live]


def _margins(logits: Tensor, verdict: Verdict) -> tuple[float, ...]:
    """Largest logit less the second at every node of the accepted path."""
    best = logits[list(verdict.path)].float().topk(2).values
    return tuple((best[:, 0] - best[:, 1]).tolist())
