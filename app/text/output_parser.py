"""Parts of an answer to deltas: stop texts end it, tool calls are parsed, space around reasoning goes."""

from collections import deque
from collections.abc import Sequence

from app.request import CallDelta, Delta
from app.text.detokenizer import StopFilter
from app.text.reasoning.tags import Kind, Part, joined
from app.text.tools.call_parser import Parsed, ToolCallParser
from engine.request import Logprob


class OutputParser:
    """Of one answer; text that may become a stop text or a call is held back until that is known."""

    def __init__(
        self,
        stops: StopFilter,
        calls: ToolCallParser | None = None,
        *,
        opened: str = "",
        typed: bool = True,
    ) -> None:
        """``calls`` where tools may be called; ``opened`` is the reasoning tag that the prompt opened.

        Without ``typed`` all is text, tags included: for the rest of a text that a client started.
        """
        self._stops, self._calls, self._typed = stops, calls, typed
        self._pending: deque[Part] = deque()
        self._reasoning, self._text, self._tagged = "", "", ""
        self._new_calls: list[CallDelta] = [] if calls is None else calls.begun
        self._space = ""  # at the end of the reasoning so far
        self._reasoned = self._after_reasoning = False
        self._waiting, self._open, self._counted = 0, bool(opened), False
        self.length = len(opened)  # characters of the tagged text, with those held back
        self.reasoning_tokens = 0
        if opened:
            self._show(Part(Kind.START, opened))

    @property
    def calls(self) -> int:
        """Whole calls so far."""
        return 0 if self._calls is None else self._calls.called

    @property
    def stopped(self) -> bool:
        """Whether a stop text, or a call that was there before, has ended the answer."""
        return self._stops.hit or (self._calls is not None and self._calls.repeated)

    @property
    def stopped_by(self) -> str:
        """That stop text."""
        return self._stops.found

    def feed(self, parts: Sequence[Part]) -> None:
        """Read the parts that one token completes."""
        self._count_token(parts)
        self._read(parts)

    def end(self, parts: Sequence[Part], *, cut: bool = False) -> None:
        """Read the last parts, and release what was held back; ``cut`` as in ``ToolCallParser``."""
        self._read(parts)
        self._release(len(self._stops.end()))
        if self._calls is not None:
            self._add(self._calls.end(cut=cut or self.stopped))

    def delta(
        self,
        token_ids: tuple[int, ...] = (),
        drafted: int = 0,
        accepted: int = 0,
        logprobs: tuple[Logprob, ...] = (),
    ) -> Delta:
        """All that became known since the last delta, and the tokens that it came from."""
        found = Delta(
            self._reasoning, self._text, tuple(self._new_calls), self._tagged,
            token_ids, drafted, accepted, logprobs,
        )  # fmt: skip
        self._reasoning = self._text = self._tagged = ""
        self._new_calls = []
        return found

    def _read(self, parts: Sequence[Part]) -> None:
        text = joined(parts)
        self.length += len(text)
        self._pending += parts
        self._release(len(self._stops.feed(text)))

    def _release(self, length: int) -> None:
        """Release this many pending characters."""
        while length:
            part = self._pending.popleft()
            if len(part.text) > length:
                self._pending.appendleft(part._replace(text=part.text[length:]))
                part = part._replace(text=part.text[:length])
            length -= len(part.text)
            self._show(part)

    def _show(self, part: Part) -> None:
        self._tagged += part.text
        if not self._typed:
            self._text += part.text
        elif part.kind is Kind.REASONING:
            self._reason(part.text)
        elif part.kind is Kind.END:
            self._space, self._after_reasoning = "", True
        elif part.kind is Kind.TEXT:
            text = part.text.lstrip() if self._after_reasoning else part.text
            self._after_reasoning = self._after_reasoning and not text
            self._say(text)

    def _reason(self, text: str) -> None:
        """Without the space before and after all of it."""
        text = self._space + text
        free = text.rstrip()
        self._space = text[len(free) :]
        self._reasoning += free if self._reasoned else free.lstrip()
        self._reasoned = self._reasoned or bool(free)

    def _say(self, text: str) -> None:
        if self._calls is None:
            self._text += text
            return
        self._add(self._calls.feed(text))

    def _add(self, found: Parsed) -> None:
        self._text += found.text
        self._new_calls += found.calls

    def _count_token(self, parts: Sequence[Part]) -> None:
        """Reasoning tokens are those up to the end tag, both tags included."""
        if self._counted:
            return
        self._waiting += 1
        for part in parts:
            self._open = self._open or part.kind is Kind.START
            self._counted = self._counted or part.kind in (Kind.END, Kind.TEXT)
        if self._open:
            self.reasoning_tokens, self._waiting = self.reasoning_tokens + self._waiting, 0
