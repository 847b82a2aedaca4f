"""Near ties are decided by plain decoding: found in a step's verdicts, and decoded again as one row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from engine.errors import NumericalError
from engine.interfaces.drafter import Outcome
from engine.interfaces.target import Scores, Target
from engine.request import SamplingParams
from engine.runtime.components import Verify
from engine.runtime.memory_backoff import MemoryBackoff
from engine.runtime.step import StepItem, logits_to_verify
from engine.speculation.near_ties import Judged, until_near_tie
from engine.speculation.rng import RandomSource
from engine.speculation.tree import DraftTree, single
from engine.speculation.verify import Logits, Verdict


def up_to_near_ties(verify: Verify, margin: float) -> Verify:
    """The same verification, whose verdicts end at their first near tie; of passes that are not plain.

    ``margin`` is the largest change of the difference of two logits by rounding; 0: none changes.
    """
    if margin == 0:
        return verify

    def verified(
        trees: Sequence[DraftTree], logits: Sequence[Logits], samplings: Sequence[SamplingParams],
        rngs: Sequence[RandomSource],
    ) -> list[Verdict | NumericalError]:  # fmt: skip
        began = [None if s.seed is None else r.mark() for s, r in zip(samplings, rngs, strict=True)]
        verdicts = verify(trees, logits, samplings, rngs)
        cases = zip(trees, logits, samplings, rngs, began, verdicts, strict=True)
        return [
            verdict
            if isinstance(verdict, NumericalError)
            else until_near_tie(Judged(tree, rows, sampling, rng, mark, verdict), margin)
            for tree, rows, sampling, rng, mark, verdict in cases
        ]

    return verified


def is_plain(items: Sequence[StepItem]) -> bool:
    """Whether a step's pass is one of plain decoding: one row, after such rows alone."""
    running = items[0].running
    behind = running.plain_rows == len(running.ids) - 1
    return behind and len(items) == 1 and len(items[0].tree) == 1


@dataclass(frozen=True, slots=True)
class OneRow:
    """Decodes again, one row at a time, what passes of many rows decoded: what that gives stands.

    All rows since the last plain one run again, since a row reads the keys and values of those before
    it. SmolLM2 in 4 bits, eight answers, where rounding moves logits by up to 1: with the near tie's row
    alone, 3 and 4 were plain's, as without; with all rows 7, at 0.7 of plain decoding's speed. So only a
    margin that is seldom met is worth it.
    """

    target: Target
    backoff: MemoryBackoff
    verify: Verify

    def decided(self, item: StepItem, outcome: Outcome, unwanted: Callable[[], bool]) -> Outcome:
        """The outcome with its near tie decided; all rows but the last of its path are committed.

        Stops when the answer is ``unwanted``. Raises OutOfMemory, NumericalError, Stuck or Ambiguous.
        """
        assert outcome.scores is not None
        started, running, tree = perf_counter(), item.running, item.tree
        accepted = [tree.tokens[node] for node in outcome.verdict.path[1:]]
        ids = [*running.ids, *accepted]
        self.target.crop(running.slot, running.plain_rows)
        for token in ids[self.target.length(running.slot) : -1]:  # a state may go back further
            self._scored(running.slot, token)
            self.target.commit(running.slot, (0,))
            if unwanted():
                break
        running.plain_rows = len(ids)
        last = ids[self.target.length(running.slot)]  # another one where the answer is unwanted
        alone = item._replace(tree=single(last))
        scores = self._scored(running.slot, last)
        rows = logits_to_verify(alone, scores, accepted)
        [verdict] = self.verify([alone.tree], [rows], [running.request.sampling], [running.rng])
        if isinstance(verdict, NumericalError):
            raise verdict
        seconds = perf_counter() - started
        return replace(
            outcome,
            verdict=outcome.verdict._replace(bonus=verdict.bonus),
            scores=outcome.scores.with_row(outcome.verdict.path[-1], scores),
            score_seconds=outcome.score_seconds + seconds,
            again_seconds=seconds,
        )

    def _scored(self, slot: int, token: int) -> Scores:
        [passed] = self.backoff.score([slot], [single(token)])
        if passed.scores is None:
            raise passed.refused or AssertionError("a refused pass says why")
        return passed.scores
