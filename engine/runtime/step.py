"""What one step of the engine is made of: each session's round, and what it adds to the answer."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from engine.interfaces.drafter import Context, Outcome, SelfMeasured
from engine.interfaces.target import Scores
from engine.request import FinishReason, GenerationRequest, Logprob, Stats, Tokens
from engine.runtime.scheduler import DrafterUsage, RunningRequest
from engine.speculation.penalties import penalised
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits


class StepItem(NamedTuple):
    """One session's part of a step."""

    session: RunningRequest
    context: Context  # as the drafter saw it
    tree: DraftTree
    draft_seconds: float
    batch: int  # requests that were drafted for together
    heard: bool = True  # its drafter and policy learn from it; not if the draft broke off


class Emitted(NamedTuple):
    """What one pass adds to an answer, and why the answer ends with it if it does."""

    ids: tuple[int, ...]
    end: FinishReason | None
    run: DrafterUsage  # of the drafter that had this pass

    @property
    def decoded(self) -> int:
        """Passes that plain decoding takes for this: the token that ends an answer has one, too."""
        return len(self.ids) + (self.end is FinishReason.STOP)


def logits_to_verify(one: StepItem, scores: Scores) -> Logits:
    """The rows that decide over this draft: the target's, with the request's penalties and grammar.

    Raises Stuck or Ambiguous.
    """
    rows, session, sampling = scores.rows, one.session, one.context.sampling
    if sampling.penalties is not None:
        prompt = one.context.prompt
        rows = penalised(one.tree, scores.logits, sampling.penalties, session.ids, prompt)
    if session.guide is not None:
        rows = session.guide.mask(one.tree, rows, session.ids, greedy=sampling.greedy)
    return rows


def until_end(
    fresh: list[int], stops: Container[int], room: int
) -> tuple[list[int], FinishReason | None]:
    """Tokens up to a stop token or as many as there is room for, and why the request ends there if it does."""
    for i, token in enumerate(fresh[:room]):
        if token in stops:
            return fresh[:i], FinishReason.STOP
    return fresh[:room], FinishReason.LENGTH if len(fresh) >= room else None


def tokens_event(request: GenerationRequest, outcome: Outcome, ids: tuple[int, ...]) -> Tokens:
    """What a pass added to the answer, with as much about it as was asked for."""
    close = margins(outcome)[: len(ids)] if request.margins else ()
    likely = () if request.logprobs is None else logprobs(outcome, ids, request.logprobs)
    return Tokens(ids, outcome.tree.drafted, len(outcome.verdict.path) - 1, close, likely)


def margins(outcome: Outcome) -> tuple[float, ...]:
    """Largest logit less the second at every node of the accepted path."""
    assert outcome.scores is not None
    best = top_k(outcome.scores.logits[list(outcome.verdict.path)].float(), 2).values
    return tuple((best[:, 0] - best[:, 1]).tolist())


def logprobs(outcome: Outcome, ids: Sequence[int], likeliest: int) -> tuple[Logprob, ...]:
    """What the target's rows say of the ids that they led to, and of so many likeliest tokens."""
    assert outcome.scores is not None
    rows = outcome.scores.logits[list(outcome.verdict.path[: len(ids)])].float().log_softmax(-1)
    own = rows[range(len(ids)), list(ids)].tolist()
    best = top_k(rows, min(likeliest, rows.shape[-1]))
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple(
        Logprob(token, value, tuple(zip(*top, strict=True)))
        for token, value, top in zip(ids, own, tops, strict=True)
    )


def request_stats(session: RunningRequest) -> Stats:
    """What a request did, its drafters' parts apart; an arbiter says why those drafted."""
    arbiter = session.seat.arbiter
    arms = {session.drafter: session.seat.drafter}
    if arbiter is not None:
        arms = {name: arm.drafter for name, arm in arbiter.arms.items()}
    runs = []
    for name, run in session.runs.items():
        arm = arms[name]
        own = arm.shares(session.id) if isinstance(arm, SelfMeasured) else ((), 0.0)
        runs.append(run.stats(name, *own, session.mood))
    if arbiter is not None:
        session.why = arbiter.reason(runs)
    return session.stats(tuple(runs))
