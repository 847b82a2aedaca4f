"""What tests of texts share: a small vocabulary, texts in pieces, and the stages after the tokenizer in one step."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

from app.request import CallDelta, Delta
from app.text.detokenizer import StopFilter
from app.text.output_parser import OutputParser
from app.text.reasoning.tags import AnswerStream, Part, TagSplitter, joined
from app.text.tools.call_parser import ToolCallParser


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer whose control tokens have the first ids."""

    tokenizer: Tokenizer

    def ids_of(self, text: str) -> list[int]:
        """With control tokens."""
        return list(self.tokenizer.encode(text).ids)

    def typed(self, text: str) -> list[int]:
        """Without any control token."""
        return [token for letter in text for token in self.ids_of(letter)]

    def shown(self, ids: Iterable[int]) -> str:
        """All tokens, control tokens too."""
        return str(self.tokenizer.decode([*ids], skip_special_tokens=False))

    def save(self, folder: Path, template: str, end: str) -> Path:
        """The folder of a model with this template, without weights."""
        self.tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": end}))
        return folder


def cut(whole: Sequence, places: Iterable[int]) -> list:
    """A text, or tokens, in pieces that end at ``places``, modulo the length."""
    edges = sorted({0, len(whole), *(place % (len(whole) + 1) for place in places)})
    return [whole[begin:end] for begin, end in pairwise(edges)]


def thought_and(thought: str, said: str) -> str:
    """The tagged text of both."""
    return f"<think>\n{thought}\n</think>\n\n{said}"


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
    for piece in cut(text, places):
        parser.feed(tags.feed(piece))
    parser.end(tags.end())
    return parser.delta()


def calls_of(parts: Iterable[CallDelta]) -> list[tuple[str, str]]:
    """The name and the arguments of each call."""
    found: dict[int, list[str]] = {}
    for part in parts:
        found.setdefault(part.index, [part.name, ""])[1] += part.arguments
    return [(name, arguments) for name, arguments in found.values()]
