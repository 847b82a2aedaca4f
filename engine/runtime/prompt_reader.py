"""Reads prompts chunk by chunk, and stops in the middle of one whose request was cancelled."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from engine.errors import Aborted, OutOfMemory
from engine.interfaces.target import SHARED, Scores
from engine.request import Echo, Event
from engine.runtime.components import EngineComponents
from engine.runtime.memory_backoff import PROMPT_CHUNK, MemoryBackoff
from engine.runtime.scheduler import RunningRequest, Scheduler
from engine.runtime.step import log_probabilities
from engine.speculation.tree import DraftTree

ECHO_CHUNK = 32  # tokens whose logits are kept at once: 262k words take 32 MiB


class PromptReader:
    """Fills the target's cache with the tokens of a request up to the root of its first tree."""

    def __init__(
        self, components: EngineComponents, backoff: MemoryBackoff, scheduler: Scheduler
    ) -> None:
        """Watch the passes of all models."""
        self.listen: Callable[[], object] = bool  # called in long passes: time to receive cancels
        self._target, self._clock = components.target, components.clock
        self._backoff, self._scheduler = backoff, scheduler
        self._reading: RunningRequest | None = None  # whose prompt the target reads just now
        self.abortable, *_ = [model.abort_when(self.unwanted) for model in components.models]

    def unread(self, running: RunningRequest) -> int:
        """Prompt tokens still to be read; the last one is the root of the first tree."""
        return len(running.ids) - 1 - self._target.length(running.slot)

    def unwanted(self) -> bool:
        """Whether the prompt that the target reads belongs to a cancelled request by now."""
        self.listen()
        return self._reading is not None and self._reading.cancelled

    @contextmanager
    def reading(self, running: RunningRequest) -> Iterator[None]:
        """Passes inside are for this request: they end when it is cancelled."""
        self._reading = running
        try:
            yield
        finally:
            self._reading = None

    def read(self, running: RunningRequest) -> Scores | None:
        """Read the next chunk; the logits of the prompt's last token where they came with it."""
        started = self._clock()
        if not running.prefill_started:
            running.prefill_started = True
            self._share(running)
        at = self._target.length(running.slot)
        found = None
        if self.unread(running):
            read = self._last if self._ends_with(running, at) else self._feed
            read = self._score if running.request.echo else read
            with self.reading(running):
                found = read(running, at)
        running.prompt_seconds += self._clock() - started
        return found

    def echo(self, running: RunningRequest) -> list[tuple[int, Event]]:
        """The prompt's log probabilities, where they were asked for and all of it has been read."""
        if not running.request.echo or running.emitted or self.unread(running):
            return []
        return [(running.id, Echo(tuple(running.echo)))]

    def read_ahead(self, running: RunningRequest) -> bool:
        """The next chunk in the draft model's cache; whether there is more."""
        with self.reading(running):
            return running.drafter.prefill(running.context)

    def _feed(self, running: RunningRequest, at: int) -> None:
        """Up to the token before the last one, which is the root of the first tree."""
        chunk = running.ids[at : min(at + PROMPT_CHUNK, len(running.ids) - 1)]
        self._backoff.feed(running.slot, chunk)

    def _score(self, running: RunningRequest, at: int) -> Scores | None:
        """Rows with their logits, up to the last token: what each says of the token after it."""
        most = max(1, min(ECHO_CHUNK, self._target.max_rows))
        [found] = self._backoff.score([running.slot], [_chain(running.ids[at:-1][:most])])
        if found.scores is None:
            raise found.refused or AssertionError("what was not scored was refused")
        read = len(found.tree)
        self._target.commit(running.slot, [*range(read)])
        del running.echo[at:]  # of a prompt that is read again
        after, likeliest = running.ids[at + 1 : at + 1 + read], running.request.logprobs or 0
        running.echo += log_probabilities(found.scores.logits, after, likeliest)
        return None

    def _ends_with(self, running: RunningRequest, at: int) -> bool:
        """Whether the last token is read with those before it, and not in a pass of its own."""
        fits = len(running.ids) - at <= min(PROMPT_CHUNK, self._backoff.chunk)
        return fits and self._target.reads_alike and not running.request.ahead

    def _last(self, running: RunningRequest, at: int) -> Scores | None:
        """None where the request was cancelled meanwhile: its end comes with the next step."""
        try:
            return Scores(self._target.decode(running.slot, running.ids[at:]))
        except Aborted:
            return None

    def _share(self, running: RunningRequest) -> None:
        """Take over what another slot has read of this prompt, also while that one still answers.

        Several answers to one question run at once, and agents begin all prompts with one long text.
        """
        if running.request.cold or running.request.echo or not self._target.can_share:
            return
        source, known = self._scheduler.reader(running, self._target.length)
        if known - running.cached < SHARED:
            return
        with suppress(OutOfMemory):  # then it is read
            self._target.share(source, running.slot, known)
            running.cached = self._target.length(running.slot)  # none where no cells were left


def _chain(tokens: Sequence[int]) -> DraftTree:
    """A chunk of a prompt as a chain of rows."""
    return DraftTree(tuple(tokens), tuple(range(-1, len(tokens) - 1)))
