"""What one step of the engine is made of: each request's draft, and what it adds to the answer."""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from engine.errors import InvalidRequest
from engine.interfaces.drafter import Context, Outcome
from engine.interfaces.target import Scores
from engine.request import FinishReason, GenerationRequest, Logprob, Stats, Tokens
from engine.runtime.scheduler import DrafterUsage, RunningRequest
from engine.speculation.grammar_mask import GrammarCache, GrammarMatcher
from engine.speculation.penalties import penalised
from engine.speculation.top_k import top_k
from engine.speculation.tree import DraftTree
from engine.speculation.verify import Logits
from engine.statistics.pass_cost import PassCost


class StepItem(NamedTuple):
    """One request's part of a step."""

    running: RunningRequest
    context: Context  # as the drafter saw it
    tree: DraftTree
    draft_seconds: float
    batch: int  # requests that were drafted for together
    learns: bool  # its drafter and draft length get the outcome; not if the draft failed


class Emitted(NamedTuple):
    """What one pass adds to an answer, and why the answer ends with it if it does."""

    ids: tuple[int, ...]
    end: FinishReason | None
    usage: DrafterUsage  # of the drafter that had this pass

    @property
    def plain_passes(self) -> int:
        """Passes that plain decoding takes for this: a stop token, which is not emitted, takes one, too."""
        return len(self.ids) + (self.end is FinishReason.STOP)


def logits_to_verify(item: StepItem, scores: Scores, accepted: Sequence[int] = ()) -> Logits:
    """The target's logits [N, V] with the request's penalties and grammar. Raises Stuck or Ambiguous.

    The tree hangs below the request's ids and the tokens ``accepted`` after them.
    """
    rows, running, sampling = scores.rows, item.running, item.context.sampling
    ids = [*running.ids, *accepted] if accepted else running.ids
    if sampling.penalties is not None:
        rows = penalised(
            item.tree, scores.logits, sampling.penalties, ids, item.context.prompt_length
        )
    if running.grammar is not None:
        rows = running.grammar.mask(item.tree, rows, ids, greedy=sampling.greedy)
    return rows


def until_end(
    new: list[int], stops: Container[int], left: int
) -> tuple[list[int], FinishReason | None]:
    """At most ``left`` tokens, up to a stop token; why the request ends there, if it does."""
    for i, token in enumerate(new[:left]):
        if token in stops:
            return new[:i], FinishReason.STOP
    return new[:left], FinishReason.LENGTH if len(new) >= left else None


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
    """What the target's rows say of the ids that they led to, and of the ``likeliest`` most likely tokens."""
    assert outcome.scores is not None
    rows = outcome.scores.logits[list(outcome.verdict.path[: len(ids)])]
    return log_probabilities(rows, ids, likeliest)


def log_probabilities(rows: Tensor, ids: Sequence[int], likeliest: int) -> tuple[Logprob, ...]:
    """What logits [N, V] say of these N tokens, and of the ``likeliest`` most likely ones."""
    rows = rows.float().log_softmax(-1)
    own = rows[range(len(ids)), list(ids)].tolist()
    best = top_k(rows, min(likeliest, rows.shape[-1]))
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple(
        Logprob(token, value, tuple(zip(*top, strict=True)))
        for token, value, top in zip(ids, own, tops, strict=True)
    )


def matcher_of(grammars: GrammarCache, request: GenerationRequest) -> GrammarMatcher | None:
    """The state of an answer's grammar, which has read the start of the answer in the prompt.

    Raises InvalidRequest.
    """
    own = request.prompt[: len(request.prompt) - request.begun]
    matcher = grammars.matcher(replace(request, prompt=own))
    if matcher and request.begun and not matcher.advance(request.prompt):
        raise InvalidRequest("the start of the answer does not fit its format; change one of them")
    return matcher


def account(
    cost: PassCost,
    items: Sequence[StepItem],
    emitted: Sequence[Emitted],
    score_seconds: float,
    times: tuple[float, float, float, float],
) -> None:
    """Seconds of the step, and what plain decoding would have needed for the same tokens.

    ``times``: when the step started, had drafted, and ended; and how long near ties took.
    """
    started, drafted, ended, again = times
    verified = ended - drafted - again
    context, rows = sum(len(i.running.ids) for i in items), sum(len(item.tree) for item in items)
    requests = len(items)
    idle = plain = cost.nominal(rows, context, requests)
    if rows > requests:
        plain = cost.nominal(requests, context, requests)
    cost.observe(rows, context, score_seconds, verified - score_seconds, requests)
    for item, new in zip(items, emitted, strict=True):
        new.usage.seconds += ended - started
        new.usage.idle_plain_seconds += plain * new.plain_passes
        item.running.decode_seconds += ended - started
        item.running.verify_seconds += verified
        item.running.idle_verify_seconds += idle


def account_first_token(
    cost: PassCost, running: RunningRequest, new: Emitted, seconds: float
) -> None:
    """Seconds of a token that came with the prompt's last pass.

    What a plain pass usually takes counts as decoding and not as reading, as for other tokens, but no more
    than its part of the rows that were read; ``seconds`` were spent after the pass.
    """
    context, read = len(running.ids), len(running.request.prompt) - running.cached
    plain = cost.nominal(1, context)
    part = min(plain / cost.nominal(max(read, 1), context), 1.0)
    own = min(running.prompt_seconds * part, plain)
    running.prompt_seconds -= own
    running.decode_seconds += own + seconds
    new.usage.seconds += own + seconds
    new.usage.idle_plain_seconds += own * new.plain_passes


def request_stats(running: RunningRequest) -> Stats:
    """What a request did, and what each drafter did; a drafter with arms explains its choice."""
    drafter, runs = running.drafter, []
    for name, usage in running.usage.items():
        arm = drafter.arms.get(name)
        shares = (drafter if arm is None else arm.drafter).shares(running.id)
        runs.append(usage.stats(name, *shares, running.slowdown))
    running.why = drafter.explain(runs) or running.why
    return running.stats(tuple(runs))
