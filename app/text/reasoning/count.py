"""Tokens of the thought that an answer begins with, counted as they come."""

from app.text.output_parser import CLOSE, OPEN


class ReasoningCount:
    """Tokens up to the end of the thought, its marks among them; 0 where an answer begins otherwise."""

    def __init__(self, begun: str = "") -> None:
        """``begun`` is text that comes before the first token: what is continued, or an open thought."""
        self._tail, self._waiting = "", 0
        self._open, self._over = False, False
        self.tokens = 0
        self._read(begun)

    def add(self, text: str) -> None:
        """The next token, whose text may be empty."""
        if self._over:
            return
        self._waiting += 1
        self._read(text)
        if self._open:
            self.tokens, self._waiting = self.tokens + self._waiting, 0

    def _read(self, text: str) -> None:
        self._tail += text
        if not self._open:
            self._tail = self._tail.lstrip()
            self._open = self._tail.startswith(OPEN)
            self._over = not (self._open or OPEN.startswith(self._tail))
        if self._open:
            self._over = CLOSE in self._tail
            self._tail = self._tail[-len(CLOSE) :]
