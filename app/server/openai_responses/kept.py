"""Responses that were given: kept in memory for a while, so that later requests can name them."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from app.request import Message
from app.server.errors import ApiError, Failure
from app.server.usage import Body

MOST_CHARACTERS = 2**25  # of all conversations together; the oldest are forgotten first
_HOW_LONG = "the latest ones are kept in memory, until this server stops"


@dataclass(frozen=True, slots=True)
class Response:
    """A response, and the conversation up to its end, without instructions."""

    body: Body
    conversation: tuple[Message, ...]
    size: int  # about how many characters it holds


class Kept:
    """The latest responses by their ids."""

    def __init__(self, most: int = MOST_CHARACTERS) -> None:
        """``most`` characters are kept."""
        self._most, self._size = most, 0
        self._responses: OrderedDict[str, Response] = OrderedDict()

    def add(self, body: Body, conversation: Sequence[Message]) -> None:
        """Keep one, and forget the oldest that have no place beside it."""
        size = len(str(body)) + sum(len(str(message)) for message in conversation)
        self._responses[body["id"]] = Response(body, tuple(conversation), size)
        self._size += size
        while self._size > self._most:
            self._drop(next(iter(self._responses)))

    def response(self, name: str, param: str, status: int = 400) -> Response:
        """The one of that id; ``param`` is the field that names it. Raises ApiError."""
        found = self._responses.get(name)
        if found is None:
            message = f"there is no response {name!r}: {_HOW_LONG}; send the whole conversation"
            raise ApiError(Failure(status, message, param, "previous_response_not_found"))
        return found

    def item(self, name: str) -> Body:
        """The part of an answer that has this id. Raises ApiError."""
        for response in reversed(self._responses.values()):
            for item in response.body["output"]:
                if item["id"] == name:
                    return dict(item)
        message = f"there is no item {name!r}: {_HOW_LONG}; send the item itself"
        raise ApiError(Failure(400, message, "input", "item_not_found"))

    def forget(self, name: str, param: str) -> None:
        """Drop one. Raises ApiError."""
        self.response(name, param, 404)
        self._drop(name)

    def _drop(self, name: str) -> None:
        self._size -= self._responses.pop(name).size
