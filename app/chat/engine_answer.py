"""An answer of the engine's process: its tokens in, deltas and one completion out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.chat.reply import Progress
from app.errors import RequestFailed, WorkerCrashed
from app.request import Completion, Delta, PartialAnswer, PredictionUsage
from app.text.output_parser import OutputParser
from app.text.reasoning.tags import AnswerStream
from app.worker.worker import Generation
from engine.request import Done, Echo, FinishReason, GenerationRequest, Stats, Tokens


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """What turns the tokens of one answer into deltas."""

    stream: AnswerStream
    parser: OutputParser
    continued: PartialAnswer  # the stored answer that this one continues

    def token(self, token: int) -> None:
        """Read one token."""
        self.parser.feed(self.stream.feed((token,)))

    def end(self, *, cut: bool) -> Delta:
        """What was held back; ``cut``: the model did not end the answer."""
        self.parser.end(self.stream.end(), cut=cut)
        return self.parser.delta()


class EngineAnswer:
    """The AnswerSource of a model in the engine's process."""

    def __init__(
        self, generation: Generation, request: GenerationRequest, reader: AnswerReader
    ) -> None:
        self._generation, self._request, self._reader = generation, request, reader
        self._offset = len(reader.continued.text)
        self._progress = Progress(reader.continued)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the context that the prompt takes."""
        return len(self._request.prompt)

    def cancel(self) -> None:
        """End the answer soon; its completion still comes."""
        self._generation.cancel()

    async def write(self, progress: Progress) -> Completion:
        """Turn every event into a delta; return the completion that describes them."""
        self._progress = progress
        try:
            async for event in self._generation:
                match event:
                    case Tokens():
                        self._take(event)
                    case Echo():
                        self._progress.add(Delta(echo=event.logprobs))
                    case Done():
                        found = self._completion(event.reason, event.stats, event.error)
                        return replace(found, code=event.code if found.error else None)
        except (WorkerCrashed, RequestFailed) as error:
            stats = self._progress.counted(_unfinished(self._request))
            return self._completion(FinishReason.ERROR, stats, str(error))
        raise AssertionError("a generation ends with Done")

    def _take(self, event: Tokens) -> None:
        parser = self._reader.parser
        if parser.stopped:  # the cancel is on its way to the engine
            return
        self._progress.arrive()
        start = drafted = self._offset + parser.length
        for taken, token in enumerate(event.ids, 1):
            self._reader.token(token)
            drafted = self._offset + parser.length if taken <= event.accepted else drafted
            if parser.stopped:  # what was drafted after it is no part of the answer
                break
        self._progress.mark(start, drafted)
        accepted = min(event.accepted, taken)
        logprobs = event.logprobs[:taken]
        self._progress.add(parser.delta(event.ids[:taken], event.drafted, accepted, logprobs))
        if parser.stopped:
            self._generation.cancel()

    def _completion(self, reason: FinishReason, stats: Stats, error: str | None) -> Completion:
        rest = self._reader.end(cut=reason is not FinishReason.STOP)
        if rest != Delta():
            self._progress.add(rest)
        parser, progress = self._reader.parser, self._progress
        if parser.stopped:
            reason, error = FinishReason.STOP, None
            stats = progress.counted(stats)
        written, ids, predicted = progress.written, progress.ids, self._request.prediction
        return Completion(
            text=written.text,
            token_ids=ids,
            finish_reason=reason,
            stats=stats,
            error=error,
            first_token_seconds=progress.first_token_seconds,
            spans=written.spans,
            prediction=compared(predicted, ids) if predicted else None,
            logprobs=tuple(one for delta in progress.deltas for one in delta.logprobs),
            stopped_by=parser.stopped_by,
            reasoning_tokens=parser.reasoning_tokens,
            calls=parser.calls,
        )


def _unfinished(request: GenerationRequest) -> Stats:
    """What is known of an answer that the engine could not describe; counts come later."""
    return Stats(
        drafter=request.drafter,
        why="the engine stopped before it could say",
        prompt_tokens=len(request.prompt),
        cached_tokens=0,
        emitted=0,
        passes=0,
        drafted=0,
        accepted=0,
        depths=(),
        prompt_seconds=0.0,
        decode_seconds=0.0,
    )


def compared(prediction: Sequence[int], answer: Sequence[int]) -> PredictionUsage:
    """How many tokens of ``prediction`` are in ``answer`` in the same order, and how many are not.

    The longest common subsequence, with one bit for each position of the prediction (Hyyro 2004): a
    thousand tokens against a thousand take a millisecond, 32 thousand a quarter second.
    """
    places: dict[int, int] = {}
    for at, token in enumerate(prediction):
        places[token] = places.get(token, 0) | 1 << at
    every = (1 << len(prediction)) - 1
    open_ = every  # a bit is cleared where one more token is matched
    for token in answer:
        here = open_ & places.get(token, 0)
        open_ = (open_ + here | open_ - here) & every
    accepted = len(prediction) - open_.bit_count()
    return PredictionUsage(accepted, len(prediction) - accepted)
