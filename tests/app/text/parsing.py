"""The stages after the tokenizer in one step: parts, deltas."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from app.request import Delta
from app.text.detokenizer import StopFilter
from app.text.output_parser import OutputParser
from app.text.reasoning.tags import AnswerStream, Part, TagSplitter, joined
from app.text.tools.call_parser import ToolCallParser


def fed(stream: AnswerStream, ids: Iterable[int]) -> str:
    """The tagged text that these tokens complete."""
    return joined(stream.feed(ids))


def rest(stream: AnswerStream, ids: Iterable[int] = ()) -> str:
    """The tagged text of these tokens, and what is left at the end."""
    return joined([*stream.feed(ids), *stream.end()])


def parsed(parts: Sequence[Part], calls: ToolCallParser | None = None) -> Delta:
    """Everything that these parts of one answer are."""
    parser = OutputParser(StopFilter(()), calls)
    parser.end(parts)
    return parser.delta()


def parsed_text(
    text: str, places: Iterable[int] = (), calls: ToolCallParser | None = None
) -> Delta:
    """The same of a tagged text that comes in pieces which end at ``places``."""
    parser, tags = OutputParser(StopFilter(()), calls), TagSplitter()
    edges = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    for begin, end in pairwise(edges):
        parser.feed(tags.feed(text[begin:end]))
    parser.end(tags.end())
    return parser.delta()
