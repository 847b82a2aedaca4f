"""The engine: draft -> score -> verify -> commit, for every running request, one pass a step."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, product

from engine.errors import Ambiguous, EngineError, NumericalError, OutOfMemory, Stuck
from engine.interfaces.drafter import Budget, Drafter, Outcome, farthest
from engine.interfaces.target import SHARED, Scores
from engine.request import Done, Event, FinishReason, GenerationRequest
from engine.runtime.components import THROWN_AWAY, EngineComponents
from engine.runtime.drafter_pool import DrafterPool
from engine.runtime.memory_backoff import PROMPT_CHUNK, MemoryBackoff
from engine.runtime.scheduler import RunningRequest, Scheduler
from engine.runtime.step import (
    Emitted,
    StepItem,
    logits_to_verify,
    request_stats,
    tokens_event,
    until_end,
)
from engine.speculation.grammar_mask import GrammarCache
from engine.speculation.tree import single


class Engine:
    """Owns the target; synchronous and single-threaded, so it needs no lock."""

    def __init__(self, machinery: EngineComponents) -> None:
        """Take over what ``build`` made."""
        self.facts = machinery.facts
        self._target = machinery.target
        self._machinery = machinery
        models = machinery.models
        self._swapping = [model for model in models if model.swap_bytes]
        self._widest = machinery.target.max_rows
        self._retreat = MemoryBackoff(machinery.target)
        self._scheduler = Scheduler(machinery.slots, machinery.warm, machinery.room)
        self._seats = DrafterPool(machinery)
        self._guides = GrammarCache(machinery.target.vocab, machinery.speller)
        self._sessions: dict[int, RunningRequest] = {}
        self._numbers = count(1)
        self._cancelled: list[RunningRequest] = []  # whose Done comes with the next step
        self._failed: list[tuple[int, Event]] = []  # ends of those that a step could not go on with
        self._reading: RunningRequest | None = None  # whose prompt is being fed
        self.listen: Callable[[], object] = bool  # called in long passes: time to take in cancels
        self._abortable, *_ = [model.abort_when(self._unwanted) for model in models]

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._sessions)

    def warm_up(self, seconds: float, *asked: GenerationRequest) -> None:
        """Answer this with every drafter while time is left, and learn nothing from it.

        First calls build kernels and caches; no answer of a person should pay for them.
        """
        started, cost = time.perf_counter(), self._machinery.cost
        knots = dict(cost.knots)
        for request, drafter in product(asked, self.facts.drafters):
            if time.perf_counter() - started > seconds:
                break
            self.submit(replace(request, drafter=drafter, options=THROWN_AWAY))
            while self.busy:
                self.step()
        self._seats = DrafterPool(self._machinery)
        cost.reset(knots)

    def submit(self, request: GenerationRequest) -> int:
        """Queue a request; raises InvalidRequest or ContextOverflow."""
        request.check(self._target.vocab, self._target.context)
        drafter, why = self._machinery.choose(request.drafter)
        session = RunningRequest(
            id=next(self._numbers),
            request=request,
            drafter=drafter,
            seat=self._seats.seat(drafter, request.options),
            policy=self._seats.policy(request.length, drafter, request.options),
            why=why,
            chance=self._machinery.chance(request.sampling.seed),
            ids=list(request.prompt),
            guide=self._guides.matcher(request),
            priors={prior.drafter: prior for prior in request.priors},
        )
        self._sessions[session.id] = session
        self._scheduler.waiting.append(session)
        self._give_way(session)
        return session.id

    def cancel(self, request_id: int) -> None:
        """End a request; its Done comes with the next step. Unknown ids are over already."""
        session = self._sessions.get(request_id)
        if session is not None and not session.cancelled:
            session.cancelled = True
            self._cancelled.append(session)

    def _give_way(self, newest: RunningRequest) -> None:
        """Nobody waits for what is only read ahead: it ends, or is not begun; of several the newest stays."""
        live = [session for session in self._sessions.values() if not session.cancelled]
        alone = all(one.request.ahead for one in live) and self._abortable
        for session in live:
            if session.request.ahead and not (alone and session is newest):
                self.cancel(session.id)

    def step(self) -> list[tuple[int, Event]]:
        """One pass: at most one prompt chunk, and one round of every request that decodes."""
        events = self._drop_cancelled() if self._cancelled else []
        admitted = self._scheduler.admit()
        for slot in self._scheduler.make_room():
            self._crop(slot, 0)
        self._rest(self._scheduler.left_alone())
        for session in admitted:
            self._crop(session.slot, session.cached)
        for session in admitted + self._scheduler.resumed():
            self._wake(session)
        running = [session for session in self._scheduler.running if not session.paused]
        ready = [session for session in running if not self._missing(session)]
        unread = [session for session in running if self._missing(session)]
        if unread:
            events += self._guarded(unread[:1], self._feed)
            ready = [session for session in ready if not self._missing(session)]
        if any(session.request.ahead for session in ready):  # it is alone
            return events + self._guarded(ready, self._read_on)
        events += self._guarded(ready, self._decode)
        failed, self._failed = self._failed, []
        return failed + events

    def _drop_cancelled(self) -> list[tuple[int, Event]]:
        gone, self._cancelled = self._cancelled, []
        return [self._finish(s, FinishReason.CANCELLED) for s in gone if s.id in self._sessions]

    def _unwanted(self) -> bool:
        """Whether the prompt that is being fed belongs to a cancelled request by now."""
        self.listen()
        return self._reading is not None and self._reading.cancelled

    def _crop(self, slot: int, kept: int) -> None:
        self._target.crop(slot, kept)
        if self._machinery.draft_model is not None:
            self._machinery.draft_model.crop(slot, kept)

    def _rest(self, slots: Sequence[int]) -> None:
        for model in self._swapping:
            for slot in slots:
                model.swap_out(slot)

    def _wake(self, session: RunningRequest) -> None:
        for model in self._swapping:
            model.swap_in(session.slot)
        session.cached = min(session.cached, self._target.length(session.slot))

    def _missing(self, session: RunningRequest) -> int:
        """Prompt tokens still to be fed; the last one is the root of the first tree."""
        return len(session.ids) - 1 - self._target.length(session.slot)

    def _feed(self, sessions: Sequence[RunningRequest]) -> list[tuple[int, Event]]:
        session = sessions[0]
        started = time.perf_counter()
        if not session.begun:
            session.begun = True
            self._share(session)
        at = self._target.length(session.slot)
        chunk = session.ids[at : min(at + PROMPT_CHUNK, len(session.ids) - 1)]
        if not chunk:
            return []
        policy = session.policy
        last = at + len(chunk) == len(session.ids) - 1
        self._reading = session
        states = self._retreat.feed(session.slot, chunk, policy.prompt_rows if last else 0)
        self._reading = None
        if states is not None:
            policy.prompt(session.context, states)
        session.prompt_seconds += time.perf_counter() - started
        return []

    def _read_on(self, sessions: Sequence[RunningRequest]) -> list[tuple[int, Event]]:
        """What the target has read ahead the draft model reads, too, a chunk a step."""
        session = self._reading = sessions[0]
        more = any(reader.read(session.context) for reader in session.seat.readers)
        self._reading = None
        return [] if more else [self._finish(session, FinishReason.LENGTH)]

    def _share(self, session: RunningRequest) -> None:
        """Take over what another slot has read of this prompt, its running answer's among them.

        Several answers to one question are asked for at once, and agents ask with one long preface.
        """
        if session.request.cold or not self._target.can_share:
            return
        source, known = self._scheduler.reader(session, self._target.length)
        if known - session.cached < SHARED:
            return
        with suppress(OutOfMemory):  # then it is read
            self._target.share(source, session.slot, known)
            session.cached = self._target.length(session.slot)  # none where no cells were left

    def _decode(self, sessions: Sequence[RunningRequest]) -> list[tuple[int, Event]]:
        if not sessions:
            return []
        started = time.perf_counter()
        rounds = self._draft(sessions)
        drafted = time.perf_counter()
        rounds, scores = self._score(rounds)
        scored = time.perf_counter() - drafted
        rounds, outcomes = self._judge(rounds, scores, scored)
        if not rounds:
            return []
        self._learn(rounds, outcomes)
        kept = [self._commit(r.session, o) for r, o in zip(rounds, outcomes, strict=True)]
        ended = time.perf_counter()
        self._account(rounds, kept, scored, (started, drafted, ended))
        triples = zip(rounds, outcomes, kept, strict=True)
        return [e for r, o, fresh in triples for e in self._emit(r.session, o, fresh)]

    def _score(self, rounds: Sequence[StepItem]) -> tuple[list[StepItem], list[Scores]]:
        """What could be scored; requests for which the device is too small end."""
        found = self._retreat.score([r.session.slot for r in rounds], [r.tree for r in rounds])
        kept, scores = [], []
        for r, passed in zip(rounds, found, strict=True):
            if passed.scores is None:
                self._fail(r.session, passed.refused)
                continue
            kept.append(r if passed.tree is r.tree else r._replace(tree=passed.tree))
            scores.append(passed.scores)
        return kept, scores

    def _judge(
        self, rounds: Sequence[StepItem], scores: Sequence[Scores], scored: float
    ) -> tuple[list[StepItem], list[Outcome]]:
        """What could be judged; a request whose law cannot be ends, and no other one with it."""
        cases, kept, outcomes = [], [], []
        for r, s in zip(rounds, scores, strict=True):
            try:
                cases.append((r, s, logits_to_verify(r, s)))
            except (Ambiguous, Stuck) as error:
                self._fail(r.session, error)
        verdicts = self._machinery.verify(
            [r.tree for r, *_ in cases],
            [rows for *_, rows in cases],
            [r.session.request.sampling for r, *_ in cases],
            [r.session.chance for r, *_ in cases],
        )
        for (r, s, _), v in zip(cases, verdicts, strict=True):
            if isinstance(v, NumericalError):
                self._fail(r.session, self._damage())
                continue
            kept.append(r)
            outcomes.append(Outcome(r.context, r.tree, v, r.draft_seconds, scored, s, r.batch))
        return kept, outcomes

    def _damage(self) -> NumericalError:
        """What is said of logits that are not finite; raised where they would spread to the others."""
        damage = NumericalError(self._machinery.damage)
        if self._target.shared_rows is not None:  # the other slots' rows may be damaged, too
            self._target.clear()
            self._scheduler.cool()
            raise damage
        return damage

    def _fail(self, session: RunningRequest, error: EngineError | None) -> None:
        self._failed.append(self._finish(session, FinishReason.ERROR, error))

    def _learn(self, rounds: Sequence[StepItem], outcomes: Sequence[Outcome]) -> None:
        """Every drafter and policy hears of all its requests of this step at once."""
        for group in self._grouped([r.session for r in rounds if r.heard]):
            members = {session.id for session in group}
            pairs = zip(rounds, outcomes, strict=True)
            heard = [o for r, o in pairs if r.session.id in members]
            group[0].seat.drafter.observe(heard)
            group[0].policy.observe(heard)

    def _account(
        self,
        rounds: Sequence[StepItem],
        kept: Sequence[Emitted],
        scored: float,
        times: tuple[float, float, float],
    ) -> None:
        """Seconds of the step, and what plain decoding would have needed for the same tokens."""
        started, drafted, ended = times
        cost, context = self._machinery.cost, sum(len(r.session.ids) for r in rounds)
        rows = sum(len(r.tree) for r in rounds)
        nominal, alone = cost.nominal(rows, context), cost.nominal(len(rounds), context)
        cost.observe(rows, context, scored, overhead=ended - drafted - scored)
        for r, fresh in zip(rounds, kept, strict=True):
            fresh.run.seconds += ended - started
            fresh.run.alone += alone * fresh.decoded
            r.session.decode_seconds += ended - started
            r.session.judged += ended - drafted
            r.session.nominal += nominal

    def _draft(self, sessions: Sequence[RunningRequest]) -> list[StepItem]:
        """Every drafter drafts once for all the requests that it has."""
        return [r for group in self._grouped(sessions) for r in self._draft_together(group)]

    def _grouped(self, sessions: Sequence[RunningRequest]) -> list[list[RunningRequest]]:
        """Sessions that share a drafter and a length policy."""
        if len(sessions) < 2:
            return [list(sessions)] if sessions else []
        groups: dict[tuple[int, int], list[RunningRequest]] = {}
        for session in sessions:
            key = (id(session.seat), id(session.policy))
            groups.setdefault(key, []).append(session)
        return list(groups.values())

    def _draft_together(self, sessions: Sequence[RunningRequest]) -> list[StepItem]:
        seat, policy, batch = sessions[0].seat, sessions[0].policy, [s.context for s in sessions]
        drafter = seat.drafter
        if seat.plain:  # no length to ask for, nothing to learn
            pairs = zip(sessions, batch, strict=True)
            many = len(batch)
            return [StepItem(s, c, single(c.ids[-1]), 0.0, many, heard=False) for s, c in pairs]
        started = time.perf_counter()
        longest = [self._longest(session, drafter) for session in sessions]
        heard = True
        try:
            trees = drafter.draft(batch, policy.budgets(batch, longest))
        except (OutOfMemory, NumericalError, Ambiguous) as error:  # the answer needs no draft
            if isinstance(error, OutOfMemory):
                self._retreat.drafted_too_much(max(budget.nodes for budget in longest))
            trees, heard = [single(context.ids[-1]) for context in batch], False
        seconds = time.perf_counter() - started
        triples = zip(sessions, batch, trees, strict=True)
        return [
            StepItem(s, context, tree, seconds, len(batch), heard) for s, context, tree in triples
        ]

    def _longest(self, session: RunningRequest, drafter: Drafter) -> Budget:
        """The longest useful draft: what can still be emitted, the bonus token set aside."""
        request, default = session.request, farthest(drafter)
        chains = default.nodes == default.depth
        depth = default.depth if request.draft_depth is None else request.draft_depth
        usual = depth if chains else default.nodes
        nodes = usual if request.draft_nodes is None else request.draft_nodes
        nodes = min(nodes, self._widest // len(self._scheduler.running) - 1)
        room = self._room(session) - 1
        if self._retreat.nodes is not None:
            nodes, room = min(nodes, self._retreat.nodes - 1), min(room, self._retreat.nodes - 1)
        depth, nodes = max(0, min(depth, room)), max(0, nodes)
        return Budget(min(depth, nodes), min(depth, nodes)) if chains else Budget(depth, nodes)

    def _playing(self, session: RunningRequest) -> str:
        arbiter = session.seat.arbiter
        return session.drafter if arbiter is None else arbiter.playing(session.id)

    def _commit(self, session: RunningRequest, outcome: Outcome) -> Emitted:
        """Keep the accepted path in the cache and in the session's ids."""
        tree, verdict = outcome.tree, outcome.verdict
        self._target.commit(session.slot, verdict.path)
        fresh = [*[tree.tokens[node] for node in verdict.path[1:]], verdict.bonus]
        kept, reason = until_end(fresh, session.request.stop_tokens, self._room(session))
        run = session.run(self._playing(session))
        run.count(outcome)
        run.emitted += len(kept)
        session.ids += kept
        session.emitted += len(kept)
        if len(kept) < len(fresh):
            self._target.crop(session.slot, len(session.ids))
        return Emitted(tuple(kept), reason, run)

    def _emit(
        self, session: RunningRequest, outcome: Outcome, fresh: Emitted
    ) -> list[tuple[int, Event]]:
        said = (
            [(session.id, tokens_event(session.request, outcome, fresh.ids))] if fresh.ids else []
        )
        return [*said, *([] if fresh.end is None else [self._finish(session, fresh.end)])]

    def _room(self, session: RunningRequest) -> int:
        """Tokens that can still be emitted."""
        ahead = self._target.context - len(session.ids)
        return min(session.request.max_tokens - session.emitted, ahead)

    def _finish(
        self, session: RunningRequest, reason: FinishReason, error: EngineError | None = None
    ) -> tuple[int, Event]:
        if session in self._scheduler.running:
            kept = 0 if reason is FinishReason.ERROR else len(session.ids)  # it may be damaged
            cached = min(self._target.length(session.slot), kept)
            self._target.crop(session.slot, cached)
            self._scheduler.release(session, cached)
        else:
            self._scheduler.waiting.remove(session)
        stats = request_stats(session)
        session.seat.drafter.forget(session.id, session.slot)
        session.policy.forget(session.id)
        del self._sessions[session.id]
        self._seats.forget({session.request.options for session in self._sessions.values()})
        said = (None, None) if error is None else (str(error), error.code)
        return session.id, Done(reason, stats, *said)

    def _guarded(
        self,
        sessions: Sequence[RunningRequest],
        work: Callable[[Sequence[RunningRequest]], list[tuple[int, Event]]],
    ) -> list[tuple[int, Event]]:
        """An expected failure ends the requests that took part, each with the sentence."""
        try:
            return work(sessions)
        except EngineError as error:
            self._reading = None
            live = [s for s in sessions if s.id in self._sessions]
            return [self._finish(s, FinishReason.ERROR, error) for s in live]
