"""The engine: schedule -> prefill -> draft -> score -> verify -> commit -> emit, one pass a step."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, product

from engine.errors import Ambiguous, EngineError, NumericalError, OutOfMemory, Stuck
from engine.interfaces.drafter import Budget, Outcome
from engine.interfaces.target import Scores
from engine.request import Done, Event, FinishReason, GenerationRequest
from engine.runtime.components import EngineComponents
from engine.runtime.memory_backoff import MemoryBackoff
from engine.runtime.near_ties import OneRow, is_plain, up_to_near_ties
from engine.runtime.prompt_reader import PromptReader
from engine.runtime.scheduler import RunningRequest, Scheduler
from engine.runtime.step import (
    Emitted,
    StepItem,
    account,
    account_first_token,
    logits_to_verify,
    matcher_of,
    request_stats,
    tokens_event,
    until_end,
)
from engine.speculation.grammar_mask import GrammarCache
from engine.speculation.tree import single


class Engine:
    """Owns the target; synchronous and single-threaded, so it needs no lock."""

    def __init__(self, components: EngineComponents) -> None:
        """Take over what ``build`` made."""
        self.facts = components.facts
        self.requests: dict[int, RunningRequest] = {}  # by id: waiting and running ones
        self._target = components.target
        self.components = components
        self.later = components.later
        models = components.models
        self._swapping = [model for model in models if model.swap_bytes]
        self.backoff = MemoryBackoff(components.target)
        self._one_row = OneRow(components.target, self.backoff, components.verify)
        self._verify_wide = up_to_near_ties(components.verify, components.margin)
        self._scheduler = Scheduler(components.slots, components.warm, components.room)
        self._grammars = GrammarCache(components.target.vocab, components.speller)
        self._ids = count(1)
        self._cancelled: list[RunningRequest] = []  # whose Done comes with the next step
        self._failed: list[tuple[int, Event]] = []  # ends of requests that failed in this step
        self._prompts = PromptReader(components, self.backoff, self._scheduler)

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.requests)

    @property
    def listen(self) -> Callable[[], object]:
        """Called in long passes: time to receive cancels."""
        return self._prompts.listen

    @listen.setter
    def listen(self, listen: Callable[[], object]) -> None:
        self._prompts.listen = listen

    def warm_up(self, seconds: float, *requests: GenerationRequest) -> None:
        """Answer these with every drafter while time is left, and learn nothing from it.

        First calls build kernels and caches; no answer of a person should pay for them.
        """
        started, cost = self.components.clock(), self.components.cost
        knots = dict(cost.knots)
        for request, drafter in product(requests, self.facts.drafters):
            if self.components.clock() - started > seconds:
                break
            self.submit(replace(request, drafter=drafter))
            while self.busy:
                self.step()
        self.components.drafters.clear()
        cost.reset(knots)

    def submit(self, request: GenerationRequest) -> int:
        """Queue a request; raises InvalidRequest or ContextOverflow."""
        request.check(self._target.vocab, self._target.context)
        drafter, length = self.components.drafters.of(request)
        running = RunningRequest(
            id=next(self._ids),
            request=request,
            drafter=drafter,
            length=length,
            rng=self.components.rng(request.sampling.seed),
            ids=list(request.prompt),
            grammar=matcher_of(self._grammars, request),
            priors={prior.drafter: prior for prior in request.priors},
            plain_rows=len(request.prompt) - 1,
        )
        self.requests[running.id] = running
        self._scheduler.waiting.append(running)
        self._end_prefetches(running)
        return running.id

    def cancel(self, request_id: int) -> None:
        """End a request; its Done comes with the next step. Unknown ids are over already."""
        running = self.requests.get(request_id)
        if running is not None and not running.cancelled:
            running.cancelled = True
            self._cancelled.append(running)

    def _end_prefetches(self, newest: RunningRequest) -> None:
        """Cancel requests that only read ahead as soon as another one comes; of several the newest stays."""
        live = [one for one in self.requests.values() if not one.cancelled]
        alone = all(one.request.ahead for one in live) and self._prompts.abortable
        for one in live:
            if one.request.ahead and not (alone and one is newest):
                self.cancel(one.id)

    def step(self) -> list[tuple[int, Event]]:
        """One pass: at most one prompt chunk, and one draft of every request that decodes."""
        events = self._drop_cancelled() if self._cancelled else []
        running = self._schedule()
        ready = [one for one in running if not self._prompts.unread(one)]
        if len(ready) < len(running):
            unread = next(one for one in running if self._prompts.unread(one))
            events += self._guarded([unread], self._prefill)
            ready = [one for one in ready if not self._prompts.unread(one)]
        if any(one.request.ahead for one in ready):  # it is alone
            return events + self._guarded(ready, self._prefill_draft_model)
        events += self._guarded(ready, self._decode)
        failed, self._failed = self._failed, []
        return failed + events

    def _decode(self, batch: Sequence[RunningRequest]) -> list[tuple[int, Event]]:
        if not batch:
            return []
        started = self.components.clock()
        items = self._draft(batch)
        drafted = self.components.clock()
        items, scores = self._score(items)
        score_seconds = self.components.clock() - drafted
        items, outcomes = self._verify(items, scores, score_seconds)
        if not items:
            return []
        self._learn(items, outcomes)
        items[0].running.plain_rows += is_plain(items)
        emitted = [self._commit(i.running, o) for i, o in zip(items, outcomes, strict=True)]
        ended = self.components.clock()
        again = sum(outcome.again_seconds for outcome in outcomes)
        times = (started, drafted, ended, again)
        account(self.components.cost, items, emitted, score_seconds, times)
        triples = zip(items, outcomes, emitted, strict=True)
        return [event for item, o, new in triples for event in self._emit(item.running, o, new)]

    # schedule

    def _schedule(self) -> list[RunningRequest]:
        """Give slots to waiting requests and memory to running ones; returns those that have both."""
        admitted = self._scheduler.admit()
        changes = self._scheduler.make_room()
        for slot in changes.emptied:
            self._crop(slot, 0)
        self._swap_out(changes.idle)
        for one in admitted:
            self._crop(one.slot, one.cached)
        for one in admitted + changes.resumed:
            self._swap_in(one)
        return [one for one in self._scheduler.running if not one.paused]

    def _drop_cancelled(self) -> list[tuple[int, Event]]:
        gone, self._cancelled = self._cancelled, []
        return [
            self._finish(one, FinishReason.CANCELLED) for one in gone if one.id in self.requests
        ]

    def _crop(self, slot: int, length: int) -> None:
        self._target.crop(slot, length)
        if self.components.draft_model is not None:
            self.components.draft_model.crop(slot, length)

    def _swap_out(self, slots: Sequence[int]) -> None:
        for model in self._swapping:
            for slot in slots:
                model.swap_out(slot)

    def _swap_in(self, running: RunningRequest) -> None:
        for model in self._swapping:
            model.swap_in(running.slot)
        running.cached = min(running.cached, self._target.length(running.slot))

    # prefill

    def _prefill(self, batch: Sequence[RunningRequest]) -> list[tuple[int, Event]]:
        """A chunk of one prompt; where its last token was read with it, the answer's first token."""
        [running] = batch
        scores = self._prompts.read(running)
        if scores is None:
            return self._prompts.echo(running)
        started = self.components.clock()
        item = StepItem(running, running.context, single(running.ids[-1]), 0.0, 1, learns=False)
        _, outcomes = self._verify([item], [scores], 0.0)
        if not outcomes:
            return []
        new = self._commit(running, outcomes[0])
        seconds = self.components.clock() - started
        account_first_token(self.components.cost, running, new, seconds)
        return self._emit(running, outcomes[0], new)

    def _prefill_draft_model(self, batch: Sequence[RunningRequest]) -> list[tuple[int, Event]]:
        """A request that only reads ahead also fills the draft model's cache, one chunk a step."""
        [running] = batch
        more = self._prompts.read_ahead(running)
        return [] if more else [self._finish(running, FinishReason.LENGTH)]

    # draft

    def _draft(self, batch: Sequence[RunningRequest]) -> list[StepItem]:
        """Every drafter drafts once for all the requests that it has."""
        return [item for group in self._grouped(batch) for item in self._draft_together(group)]

    def _grouped(self, batch: Sequence[RunningRequest]) -> list[list[RunningRequest]]:
        """Requests that share a drafter and a draft length."""
        if len(batch) < 2:
            return [list(batch)] if batch else []
        groups: dict[tuple[int, int], list[RunningRequest]] = {}
        for one in batch:
            groups.setdefault((id(one.drafter), id(one.length)), []).append(one)
        return list(groups.values())

    def _draft_together(self, group: Sequence[RunningRequest]) -> list[StepItem]:
        drafter, length = group[0].drafter, group[0].length
        contexts = [one.context for one in group]
        trees, seconds, learns = [single(context.ids[-1]) for context in contexts], 0.0, False
        if drafter.max_draft.nodes > 0:
            started, longest = self.components.clock(), [self._longest(one) for one in group]
            try:
                trees = drafter.draft(contexts, length.budgets(contexts, longest))
                learns = True
            except (OutOfMemory, NumericalError, Ambiguous) as error:  # the answer needs no draft
                if isinstance(error, OutOfMemory):
                    self.backoff.drafted_too_much(max(budget.nodes for budget in longest))
            seconds = self.components.clock() - started
        return [
            StepItem(one, context, tree, seconds, len(group), learns)
            for one, context, tree in zip(group, contexts, trees, strict=True)
        ]

    def _longest(self, running: RunningRequest) -> Budget:
        """The longest useful draft: what can still be emitted, without the bonus token."""
        request, default = running.request, running.drafter.max_draft
        chains = default.nodes == default.depth
        depth = default.depth if request.draft_depth is None else request.draft_depth
        usual = depth if chains else default.nodes
        nodes = usual if request.draft_nodes is None else request.draft_nodes
        nodes = min(nodes, self._target.max_rows // len(self._scheduler.running) - 1)
        left = self._tokens_left(running) - 1
        if self.backoff.nodes is not None:
            nodes, left = min(nodes, self.backoff.nodes - 1), min(left, self.backoff.nodes - 1)
        depth = max(0, min(depth, left, nodes))
        return Budget(depth, depth if chains else max(0, nodes))

    # score and verify

    def _score(self, items: Sequence[StepItem]) -> tuple[list[StepItem], list[Scores]]:
        """What could be scored; requests for which the device is too small end."""
        if len(items) == 1 and len(items[0].tree) == 1 and self._target.lends_rows:
            one = items[0].running
            return [*items], [Scores(self._target.decode(one.slot, one.ids[-1:]))]
        found = self.backoff.score([i.running.slot for i in items], [i.tree for i in items])
        kept, scores = [], []
        for item, passed in zip(items, found, strict=True):
            if passed.scores is None:
                self._fail(item.running, passed.refused)
                continue
            kept.append(item if passed.tree is item.tree else item._replace(tree=passed.tree))
            scores.append(passed.scores)
        return kept, scores

    def _verify(
        self, items: Sequence[StepItem], scores: Sequence[Scores], score_seconds: float
    ) -> tuple[list[StepItem], list[Outcome]]:
        """What could be verified; a request whose logits cannot be used ends alone."""
        cases, kept, outcomes = [], [], []
        for item, scored in zip(items, scores, strict=True):
            try:
                cases.append((item, scored, logits_to_verify(item, scored)))
            except (Ambiguous, Stuck) as error:
                self._fail(item.running, error)
        plain = len(cases) == 1 and is_plain(items)
        verdicts = (self.components.verify if plain else self._verify_wide)(
            [item.tree for item, *_ in cases],
            [logits for *_, logits in cases],
            [item.running.request.sampling for item, *_ in cases],
            [item.running.rng for item, *_ in cases],
        )
        for (item, scored, _), verdict in zip(cases, verdicts, strict=True):
            if isinstance(verdict, NumericalError):
                self._fail(item.running, self._damage())
                continue
            kept.append(item)
            seconds = (item.draft_seconds, score_seconds)
            outcome = Outcome(item.context, item.tree, verdict, *seconds, scored, item.batch)
            outcomes.append(self._decided(item, outcome) if verdict.near_tie else outcome)
        return kept, outcomes

    def _decided(self, item: StepItem, outcome: Outcome) -> Outcome:
        """With its near tie decoded again as one row, unless the answer ends before it."""
        if self._until_end(item.running, outcome.emitted[:-1])[1] is None:
            with self._prompts.reading(item.running):
                return self._one_row.decided(item, outcome, self._prompts.unwanted)
        return replace(outcome, verdict=outcome.verdict._replace(near_tie=False))

    def _damage(self) -> NumericalError:
        """The error for logits that are not finite; raised where they would spread to other slots."""
        damage = NumericalError(self.components.damage)
        if self._target.shared_rows is not None:  # rows of other slots may be damaged, too
            self._target.clear()
            self._scheduler.cool()
            raise damage
        return damage

    def _fail(self, running: RunningRequest, error: EngineError | None) -> None:
        self._failed.append(self._finish(running, FinishReason.ERROR, error))

    # commit

    def _learn(self, items: Sequence[StepItem], outcomes: Sequence[Outcome]) -> None:
        """Every drafter and draft length gets the outcomes of all its requests at once."""
        by_id = {i.running.id: o for i, o in zip(items, outcomes, strict=True) if i.learns}
        for group in self._grouped([item.running for item in items if item.learns]):
            own = [by_id[one.id] for one in group]
            group[0].drafter.observe(own)
            group[0].length.observe(own)

    def _commit(self, running: RunningRequest, outcome: Outcome) -> Emitted:
        """Keep the accepted path in the cache and in the request's ids."""
        if self._target.length(running.slot) < len(running.ids):  # else ``decode`` did it
            path = (0,) if outcome.verdict.near_tie else outcome.verdict.path
            self._target.commit(running.slot, path)
        new = outcome.emitted
        kept, reason = self._until_end(running, new)
        usage = running.usage_of(running.active_drafter)
        usage.count(outcome)
        usage.emitted += len(kept)
        running.ids += kept
        running.emitted += len(kept)
        if len(kept) < len(new):
            self._target.crop(running.slot, len(running.ids))
        return Emitted(tuple(kept), reason, usage)

    # emit

    def _emit(
        self, running: RunningRequest, outcome: Outcome, new: Emitted
    ) -> list[tuple[int, Event]]:
        events: list[tuple[int, Event]] = []
        if new.ids:
            events.append((running.id, tokens_event(running.request, outcome, new.ids)))
        if new.end is not None:
            events.append(self._finish(running, new.end))
        return events

    def _until_end(
        self, running: RunningRequest, new: list[int]
    ) -> tuple[list[int], FinishReason | None]:
        return until_end(new, running.request.stop_tokens, self._tokens_left(running))

    def _tokens_left(self, running: RunningRequest) -> int:
        """Tokens that can still be emitted."""
        free = self._target.context - len(running.ids)
        return min(running.request.max_tokens - running.emitted, free)

    def _finish(
        self, running: RunningRequest, reason: FinishReason, error: EngineError | None = None
    ) -> tuple[int, Event]:
        if running in self._scheduler.running:
            kept = 0 if reason is FinishReason.ERROR else len(running.ids)  # it may be damaged
            cached = min(self._target.length(running.slot), kept)
            self._target.crop(running.slot, cached)
            self._scheduler.release(running, cached)
        else:
            self._scheduler.waiting.remove(running)
        stats = request_stats(running)
        running.drafter.forget(running.id, running.slot)
        running.length.forget(running.id)
        del self.requests[running.id]
        self.components.drafters.forget([one.request for one in self.requests.values()])
        message, code = (None, None) if error is None else (str(error), error.code)
        return running.id, Done(reason, stats, message, code)

    def _guarded(
        self,
        batch: Sequence[RunningRequest],
        work: Callable[[Sequence[RunningRequest]], list[tuple[int, Event]]],
    ) -> list[tuple[int, Event]]:
        """An expected failure ends the requests that took part, each with its sentence."""
        try:
            return work(batch)
        except EngineError as error:
            live = [one for one in batch if one.id in self.requests]
            return [self._finish(one, FinishReason.ERROR, error) for one in live]
