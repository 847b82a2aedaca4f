"""Answers in channels with tools: headers are held, calls fit, and all else is free."""

import json
import random
import re

import numpy as np
import pytest

from app.request import Delta, Tool, ToolUse
from app.text.harmony.calls import held_in_channels
from app.text.harmony.detokenizer import HarmonyDetokenizer
from app.text.harmony.format import CONSTRAIN, MARKS, HarmonyTokens, grammar_bytes
from app.text.tools.call_format import DEFAULT_FORM
from app.text.tools.call_parser import ToolCallParser
from app.text.vocabulary import FolderVocabulary
from engine.errors import InvalidRequest
from engine.grammar.grammar import CONTROL_BYTE, Grammar
from engine.grammar.vocabulary import BYTES, Vocabulary
from tests.app.text.formats.walks import Walk
from tests.app.text.harmony.channelled import ANALYSIS, CONTROL, FINAL, NEXT, TOKENIZER, ids_of
from tests.app.text.parsing import calls_of, parsed

INTEGER = {"type": "integer", "maximum": 9}
ADD = Tool("add", "", {"type": "object", "properties": {"a": INTEGER}, "required": ["a"]})
LOOK = Tool("add_up", "", {"type": "object", "properties": {"what": {"enum": ["x"]}}, "required": ["what"]})  # fmt: skip
VOCABULARY = FolderVocabulary(TOKENIZER)
SPELLING = Vocabulary(grammar_bytes(VOCABULARY, TOKENIZER.get_vocab_size()), VOCABULARY.encode)
FIRST = "<|channel|>commentary to=functions."
KIND = " <|constrain|>json<|message|>"


def steps_of(use: ToolUse) -> Grammar:
    found = held_in_channels(DEFAULT_FORM, use)
    assert found is not None
    return found


def states(**wanted: bool) -> Grammar:
    return steps_of(ToolUse((ADD, LOOK), **wanted))


def walked(steps: Grammar, chance: random.Random) -> list[int]:
    """Random tokens that the grammar allows, up to an end."""
    state, ids = SPELLING.matcher(steps), []
    while not (state.is_accepting() and (len(ids) > 60 or chance.random() < 0.1)):
        bits = np.unpackbits(np.frombuffer(state.compute_bitmask(), np.uint8), bitorder="little")
        ahead = np.flatnonzero(bits[: len(SPELLING.tokens)]).tolist()
        marks = [token for token in ahead if token < len(CONTROL)]
        if not ahead:
            break
        ids.append(chance.choice(marks if marks and chance.random() < 0.3 else ahead))
        assert state.consume_token(ids[-1])
    assert state.is_accepting()
    return ids


def parsed_calls(ids: list[int]) -> tuple[Delta, list[tuple[str, dict]]]:
    channels = HarmonyTokens.of(VOCABULARY)
    stream = HarmonyDetokenizer(channels, VOCABULARY.bytes)
    parts = [*stream.feed(ids), *stream.end()]
    found = parsed(parts, ToolCallParser(DEFAULT_FORM, [ADD, LOOK]))
    return found, [(name, json.loads(arguments)) for name, arguments in calls_of(found.calls)]


def fits(name: str, arguments: dict) -> bool:
    if name == "add":
        return [*arguments] == ["a"] and arguments["a"] <= 9
    return (name, arguments) == ("add_up", {"what": "x"})


@pytest.mark.parametrize("seed", range(20))
def test_law_every_call_fits(seed: int) -> None:
    found, calls = parsed_calls(walked(states(must_call=True), random.Random(seed)))
    assert (found.text, found.reasoning) == ("", "")
    assert [fits(*call) for call in calls] == [True]
    _, calls = parsed_calls(walked(states(), random.Random(seed)))
    assert all(fits(*call) for call in calls)


def ends(steps: Grammar, written: str) -> bool:
    """Whether the text, its control tokens among it, is a whole answer."""
    walk, named = Walk(steps, (*MARKS, CONSTRAIN)), (*MARKS, CONSTRAIN)
    path: list[int] = []
    for part in re.split(f"({'|'.join(map(re.escape, named))})", written):
        path += [BYTES + named.index(part)] if part in named else part.encode()
    return walk.take(path) and walk.ends()


class TestWhatMayCome:
    CALLS = (
        f'{FIRST}add{KIND}{{"a": 1}}',
        f'{FIRST}add<|constrain|>json<|message|>{{"a":1}}',
        f'{FIRST}add_up<|message|>{{"what": "x"}}',
        ' to=functions.add<|channel|>commentary json<|message|>{"a": 1}',
        f' to=functions.add<|channel|>commentary{KIND}{{"a": 1}}',
    )

    def test_calls_as_models_write_them(self) -> None:
        must, may = states(must_call=True), states()
        before = f"{ANALYSIS}I add.{NEXT}"
        spoken = f"{before}<|channel|>commentary<|message|>So.{NEXT}"
        for call in self.CALLS:
            assert ends(must, call), call
            assert all(ends(may, other + call) for other in ("", before, spoken)), call
            assert not ends(must, before + call), "what has to call does not think"
            assert not ends(may, call.replace('"x"', '"y"').replace("1", "10"))
            assert not ends(may, call.replace("add", "sub"))
            assert not ends(may, f"{call} and more")

    def test_answers(self) -> None:
        must, may = states(must_call=True), states()
        thought, said = f"{ANALYSIS}é", f"{FINAL} to=functions."
        for answer in (thought, said, thought + NEXT + said, said + NEXT + said):
            assert ends(may, answer)
            assert not ends(must, answer)
        assert not ends(may, "Forty")
        assert not ends(may, "<|channel|>other<|message|>")

    def test_only_the_named_one(self) -> None:
        found = steps_of(ToolUse((ADD, LOOK), must_call=True, only="add_up"))
        assert not ends(found, self.CALLS[0])
        assert ends(found, self.CALLS[2])

    def test_a_strict_schema_that_cannot_be_held_is_refused(self) -> None:
        odd = Tool("odd", "", {"type": "object", "uniqueItems": True}, strict=True)
        with pytest.raises(InvalidRequest):
            held_in_channels(DEFAULT_FORM, ToolUse((odd,)))
        loose = Tool("odd", "", {"type": "object", "uniqueItems": True})
        assert held_in_channels(DEFAULT_FORM, ToolUse((loose,))) is not None


class TestSpelling:
    def test_of_marks_is_no_text(self) -> None:
        for text, token in (("<|start|>", 0), ("<|constrain|>", 6)):
            assert SPELLING.tokens[token] == CONTROL_BYTE + text.encode()
        for end in ("<|return|>", "<|call|>"):
            assert SPELLING.tokens[CONTROL.index(end)] == b""
        assert all(CONTROL_BYTE not in word for word in SPELLING.tokens[len(CONTROL) :])

    def test_of_other_vocabularies_is_their_own(self) -> None:
        class Plain(FolderVocabulary):
            def control_texts(self) -> list[str]:
                return ["<|start|>", "<|end|>"]

        plain = grammar_bytes(Plain(TOKENIZER), 300)
        assert plain == [VOCABULARY.bytes.of(token) for token in range(300)]

    def test_what_has_to_follow_is_spelled_in_control_tokens(self) -> None:
        text = CONTROL_BYTE + b"<|constrain|>json" + CONTROL_BYTE + b"<|message|>{"
        assert SPELLING.spell(b"", text) == tuple(ids_of("<|constrain|>json<|message|>{"))
