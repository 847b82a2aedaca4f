"""A text that is read from left to right, a sign at a time."""

from abc import ABC, abstractmethod
from typing import NoReturn

_IN_THE_MIDDLE = "it ends in the middle"


class LeftToRight(ABC):
    """Where in a text one has come to, and what stands there."""

    def __init__(self, text: str) -> None:
        """At its beginning."""
        self.text, self.at = text, 0

    @abstractmethod
    def fail(self, why: str) -> NoReturn:
        """Raise InvalidRequest, with one sentence."""

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.at == len(self.text)

    def ahead(self, many: int = 1) -> str:
        """The next characters, fewer at the end."""
        return self.text[self.at : self.at + many]

    def take(self, sign: str) -> bool:
        """Go on behind the sign, if it stands here."""
        found = self.text.startswith(sign, self.at)
        self.at += len(sign) if found else 0
        return found

    def next(self) -> str:
        """The next character."""
        if self.over:
            self.fail(_IN_THE_MIDDLE)
        self.at += 1
        return self.text[self.at - 1]

    def until(self, sign: str) -> str:
        """What stands before the sign; goes on behind it."""
        end = self.text.find(sign, self.at)
        if end < 0:
            self.fail(_IN_THE_MIDDLE)
        inside, self.at = self.text[self.at : end], end + len(sign)
        return inside
