"""Conversations to token ids and back, with the tokenizer and template of the model's folder."""

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tokenizers import Tokenizer

from app.answer_text import Detokenizer, TokenBytes
from app.template import ChatTemplate, read_json, token_text
from app.turn import Message
from engine.errors import ModelUnusable


class ChatText:
    """Text of one model; what people write never becomes a control token."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, stops: Iterable[int]) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._bytes = TokenBytes(tokenizer)
        self._control = _control_pattern(tokenizer)
        self.stop_tokens = frozenset(stops)

    @classmethod
    def load(cls, folder: Path) -> "ChatText":
        """From the model's folder; raises ModelUnusable."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelUnusable(f"{folder} has no tokenizer.json")
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more precise
            raise ModelUnusable(f"{path} is not a tokenizer: {error}") from error
        return cls(tokenizer, ChatTemplate.load(folder), _stop_tokens(folder, tokenizer))

    def encode_chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt for the assistant's next message; raises InvalidRequest."""
        mask = _Mask(self._control)
        rendered = self._template.render([mask.masked(message) for message in messages])
        return tuple(token for part in mask.parts(rendered) for token in self._encode(part))

    def detokenizer(self) -> Detokenizer:
        """For one answer, piece by piece."""
        return Detokenizer(self._bytes)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of a whole answer."""
        stream = self.detokenizer()
        return stream.feed(ids) + stream.end()

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


class _Mask:
    """Replaces control texts in messages by marks that nobody can guess, and takes them back.

    Ordinary conversations have none, so their prompt is encoded in one go, exactly as the
    tokenizer would; only around a mark is the text encoded in parts.
    """

    def __init__(self, control: re.Pattern[str] | None) -> None:
        self._control = control
        self._secret = secrets.token_hex(16)
        self._hidden: list[str] = []

    def masked(self, message: Message) -> Message:
        if self._control is None:
            return message
        return replace(message, content=self._control.sub(self._hide, message.content))

    def parts(self, rendered: str) -> list[str]:
        """The rendered text in parts; a hidden control text comes one character at a time."""
        pieces = re.split(f"{self._secret}:([0-9]+);", rendered)
        parts: list[str] = []
        for place, piece in enumerate(pieces):
            parts += self._hidden[int(piece)] if place % 2 else [piece]
        return parts

    def _hide(self, match: re.Match[str]) -> str:
        self._hidden.append(match.group())
        return f"{self._secret}:{len(self._hidden) - 1};"


def _control_pattern(tokenizer: Tokenizer) -> re.Pattern[str] | None:
    """Matches every special token's text; the longest first, as one may begin another."""
    added = tokenizer.get_added_tokens_decoder().values()
    texts = sorted((token.content for token in added if token.special), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts))) if texts else None


def _stop_tokens(folder: Path, tokenizer: Tokenizer) -> set[int]:
    """Ends of a message, gathered from the three files that may name them."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        ids = read_json(folder / name).get("eos_token_id")
        found |= {token for token in (ids if isinstance(ids, list) else [ids]) if token is not None}
    text = token_text(read_json(folder / "tokenizer_config.json").get("eos_token"))
    token = tokenizer.token_to_id(text) if text is not None else None
    return found | ({token} if token is not None else set())
