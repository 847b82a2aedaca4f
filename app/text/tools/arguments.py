"""Arguments of a call to parts of one JSON object, while they arrive."""

import json
from collections.abc import Mapping

from app.text.detokenizer import open_length
from app.text.tools.call_format import CallForm, PairForm
from app.text.tools.values import Parameter, unknown


class ObjectArguments:
    """JSON as the model wrote it, up to the end of its object, character by character."""

    def __init__(self) -> None:
        self._depth, self._quoted, self._escaped = 0, False, False
        self.over = False  # whether all of them are read

    def take(self, text: str) -> tuple[str, str]:
        """The JSON that the text makes known, and what of the text has yet to be read."""
        for place, character in enumerate(text):
            self._read(character)
            if self.over:
                return text[: place + 1], text[place + 1 :]
        return text, ""

    def _read(self, character: str) -> None:
        if self._quoted:
            ends = character == '"' and not self._escaped
            self._escaped = character == "\\" and not self._escaped
            self._quoted = not ends
        elif character == '"':
            self._quoted = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.over = self._depth <= 0


class PairArguments:
    """Pairs of a key and a value. Texts are passed on at once, other values when they are complete."""

    def __init__(self, pair: PairForm, parameters: Mapping[str, Parameter]) -> None:
        self._pair, self._parameters = pair, parameters
        self._read = self._edge
        self._known: Parameter = unknown("")
        self._lead = "{"  # JSON before the next key
        self.over = False

    def take(self, text: str) -> tuple[str, str]:
        """As in ``ObjectArguments``."""
        found = ""
        while not self.over:
            step = self._read
            part, text = step(text)
            found += part
            if self._read == step:  # more text has to come
                break
        return found, text

    def _edge(self, text: str) -> tuple[str, str]:
        """Between pairs: another one begins, or all have been read."""
        before = self._pair.before
        if text.startswith(before):
            self._read = self._key
            return "", text[len(before) :]
        if not before.startswith(text):
            self.over = True
            return "{}" if self._lead == "{" else "}", text
        return "", text

    def _key(self, text: str) -> tuple[str, str]:
        key, between, rest = text.partition(self._pair.between)
        if not between:
            return "", text
        self._known = self._parameters.get(key, unknown(key))
        lead, self._lead = self._lead, ", "
        self._read = self._text if self._known.is_plain else self._value
        quote = '"' if self._known.is_plain else ""
        return f"{lead}{json.dumps(key, ensure_ascii=False)}: {quote}", rest

    def _text(self, text: str) -> tuple[str, str]:
        """The next part of a text."""
        part, after, rest = text.partition(self._pair.after)
        if after:
            self._read = self._edge
            return f'{_quoted(part)}"', rest
        free = len(text) - open_length(text, [self._pair.after])
        return _quoted(text[:free]), text[free:]

    def _value(self, text: str) -> tuple[str, str]:
        """Any other value, which shows what it is when it is whole."""
        value, after, rest = text.partition(self._pair.after)
        if not after:
            return "", text
        self._read = self._edge
        return self._known.as_json(value), rest


Arguments = ObjectArguments | PairArguments


def arguments_of(form: CallForm, parameters: Mapping[str, Parameter]) -> Arguments:
    """What reads the arguments of a call of this form."""
    return PairArguments(form.pair, parameters) if form.pair else ObjectArguments()


def _quoted(text: str) -> str:
    """Part of a JSON text."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
