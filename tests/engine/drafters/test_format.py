"""What a format leaves no choice in is drafted by the format, where that is worth a pass."""

import pytest

from app.text.formats.json_schema import schema_grammar
from engine.drafters.format import Foregone, Format, Spelled
from engine.grammar.grammar import CONTROL_BYTE, Grammar
from engine.grammar.vocabulary import Vocabulary
from engine.interfaces.drafter import Budget, Context, DrafterResources
from engine.request import GenerationRequest, SamplingParams
from engine.speculation.grammar_mask import Compiled, GrammarMatcher
from engine.speculation.rng import SeededRandom
from tests.engine.tiny import SlowMachine, Words, engine_over, run_all, tiny_target

STOPS = frozenset({0})
LETTERS = (b"", *(bytes([byte]) for byte in range(32, 127)), b"\n", b"name", b'":', b'", "')


def guided(grammar, words=LETTERS, stops=STOPS):
    speller = Words(words)
    return GrammarMatcher(Compiled(grammar, Vocabulary(words, speller.encode)), stops, 1), speller


def offered(grammar, said=b"", stops=STOPS):
    """The text that is offered behind a text, and the number of its tokens."""
    guide, speller = guided(grammar, stops=stops)
    ids = (5, *speller.encode(said.decode()))
    assert guide.advance(ids)
    tokens = Foregone(guide, Spelled()).tokens(ids)
    return b"".join(speller.words[token] for token in tokens), len(tokens)


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
PERSON = schema_grammar(SCHEMA)


def test_names_that_a_schema_demands_are_offered_as_the_tokenizer_spells_them():
    assert offered(PERSON) == (b'{"name": "', 6)  # {  "  name  ":  space  "
    assert offered(PERSON, b'{"name": "') == (b"", 0)
    assert offered(PERSON, b'{"name": "Bo"') == (b', "age":', 7)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (b'{"name":"Bo"', b', "age":'),  # no space behind a colon so far, and none behind a comma
        (b'{\n  "name": "Bo",\n  "', b'age":'),
        (b'{"name": "Bo", ', b'"age":'),
        (b'{"name": "x,y"', b',"age":'),  # a guess can be wrong
    ],
)
def test_space_is_put_where_this_answer_put_it(said, wanted):
    assert offered(PERSON, said)[0] == wanted


def test_an_indented_list_keeps_its_indentation():
    grammar = schema_grammar({"type": "array", "items": {"const": "x"}, "minItems": 9})
    assert offered(grammar, b'[\n  "x",\n  "x"')[0].startswith(b',\n  "x",\n  "x",\n')


def test_the_text_before_a_control_token_is_drafted():
    words = (*LETTERS, CONTROL_BYTE + b"<|end|>", CONTROL_BYTE + b"<|next|>")
    guide, speller = guided(Grammar('start: "a" "bc" (<|end|> | <|next|>) <|end|> "b"'), words)
    ids = (5, *speller.encode("a"))
    for said, wanted in (((), b"bc"), (speller.encode("bc"), b""), ([len(words) - 1], b"")):
        ids = (*ids, *said)
        assert guide.advance(ids)
        found = Foregone(guide, Spelled()).tokens(ids)
        assert b"".join(words[token] for token in found) == wanted


def test_a_certain_end_is_drafted():
    grammar = Grammar('start: ("a" | "b") "end"')
    assert offered(grammar, b"a") == (b"end", 4)  # and the stop token, which has no bytes
    assert offered(grammar, b"aend") == (b"", 1)
    two = frozenset({0, 1})  # which of them it will be, nobody knows
    assert offered(grammar, b"a", two) == (b"end", 3)


def test_the_rest_of_a_begun_word_is_offered():
    grammar = Grammar('start: "namename"')
    assert offered(grammar) == (b"namename", 3)  # two words and the end
    assert offered(grammar, b"na") == (b"mename", 4)


NAMES = Grammar('start: ("name" | "x")*')
WORDS = (b"", b"n", b"a", b"m", b"e", b"x", b"am")


def drafts(words, rounds=40, prices=(0.0, 0.3, 0.6, 0.9)):
    """How many tokens are offered behind each "n" of an answer that is spelled in letters."""
    guide, _ = guided(NAMES, words)
    format_, ids, found = Format(DrafterResources(tiny_target())), [5], []
    for _ in range(rounds):
        ids.append(1)
        context = Context(
            1, 0, list(ids), SamplingParams(), SeededRandom(0), prompt_length=1, grammar=guide
        )
        [tree] = format_.draft([context], [Budget(32, 32, prices=prices)])
        found.append(tree.drafted)
        assert tree.expected <= tree.drafted
        ids += [2, 3, 4]
    return found


def test_what_is_always_spelled_otherwise_is_soon_offered_no_more():
    as_offered, otherwise = drafts(WORDS[:-1]), drafts(WORDS)
    assert set(as_offered) == {3}
    assert otherwise[0] == 2
    assert otherwise[-1] == 0


def test_what_rows_cost_and_how_many_are_allowed_is_kept():
    assert set(drafts(WORDS[:-1], prices=(0.0, 0.3, 1.6, 2.9))) == {1}
    assert set(drafts(WORDS[:-1], prices=(0.0, 1.5, 3.0, 4.5))) == {0}
    assert set(drafts(WORDS[:-1], prices=(0.0,))) == {0}


def test_without_a_format_nothing_is_offered():
    context = Context(1, 0, [5, 1], SamplingParams(), SeededRandom(0), prompt_length=1)
    [tree] = Format(DrafterResources(tiny_target())).draft([context], [Budget(32, 32)])
    assert tree.tokens == (1,)


PAIR = Grammar('start: ("cabba" | "abcab")*')


def runs(drafter, **limits):
    """What every drafter did for six answers, one after the other."""
    words = Words((b"", b"a", b"b", b"c"))  # so there is one way to spell a text
    engine = engine_over(tiny_target(), tiny_target(5), cost=SlowMachine(), speller=words)
    found = []
    for first in range(6):
        request = GenerationRequest(
            (first, 2, 3), 60, stop_tokens=STOPS, drafter=drafter, grammar=PAIR, **limits
        )
        [(ids, done)] = run_all(engine, [request])
        assert sum(run.emitted for run in done.stats.runs) == len(ids)
        found += done.stats.runs
    return found


def test_auto_lets_the_format_draft_and_others_draft_themselves():
    of_format = [run for run in runs("auto") if run.drafter == "format"]
    drafted = sum(run.drafted for run in of_format)
    assert sum(run.accepted for run in of_format) == drafted > 0
    for drafter in ("none", "lookup", "chain"):
        assert {run.drafter for run in runs(drafter)} == {drafter}


@pytest.mark.parametrize("limit", [{"draft_depth": 0}, {"draft_nodes": 0}])
@pytest.mark.parametrize("drafter", ["auto", "recycling", "sequoia", "specexec"])
def test_a_limit_of_no_draft_is_kept(drafter, limit):
    assert sum(run.drafted for run in runs(drafter, **limit)) == 0


def test_without_a_format_this_drafter_is_not_called(monkeypatch):
    asked, draft = [], Format.draft

    def watched(self, batch, budgets):
        asked.extend(context.grammar for context in batch)
        return draft(self, batch, budgets)

    monkeypatch.setattr(Format, "draft", watched)
    runs("auto")
    assert asked
    asked.clear()
    engine = engine_over(tiny_target(), tiny_target(5), cost=SlowMachine())
    run_all(engine, [GenerationRequest((1, 2, 3, 1, 2, 3), 30, drafter="auto")])
    assert not asked
