"""Answers of models with marks around a thought: prompts continue them, tokens become tagged text."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.request import Message
from app.text.chat_text import ChatText
from app.text.template import ChatTemplate
from tests.app.text.harmony import channelled
from tests.app.text.parsing import Vocabulary, cut, fed, rest, thought_and
from tests.app.text.reasoning import marked

ASKED = Message("user", "17 + 25?")


@dataclass(frozen=True)
class Kind:
    """A small model."""

    text: ChatText
    tokens: Vocabulary
    control: tuple[str, ...]
    opening: str
    closing: str
    begins: str = ""  # an answer without a thought
    opens: bool = False  # the template opens a thought

    def decoded(self, ids: Sequence[int], places: Sequence[int] = ()) -> str:
        """The tagged text of these tokens, fed in groups that end at ``places``."""
        stream = self.text.detokenizer()
        return "".join(fed(stream, piece) for piece in cut(ids, places)) + rest(stream)

    def fresh(self) -> tuple[int, ...]:
        """A prompt without the mark that it opens itself."""
        ids = self.text.prompt([ASKED]).ids
        return ids[:-1] if self.opens else ids

    def continued(self, begun: str, **wanted: object) -> str:
        """What the prompt of an answer that has begun has after the head of the answer."""
        prompt, fresh = self.text.prompt([ASKED], begun, **wanted), self.fresh()
        opened = not begun and self.opens and wanted.get("thinks", True)
        assert prompt.opened == ("<think>\n" if opened else "")
        assert prompt.ids[: len(fresh)] == fresh
        return self.tokens.shown(prompt.ids[len(fresh) :])

    def controls(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token < len(self.control)]


def between_marks(template: str, **more: object) -> Kind:
    marks, text = marked.MARKS[template], marked.text_of(template)
    return Kind(text, marked.TOKENS, marked.CONTROL, marks.opening, marks.closing, **more)


COHERE = between_marks(marked.COHERE, begins="<|START_THINKING|><|END_THINKING|>", opens=True)
HARMONY = Kind(
    ChatText(channelled.FOLDER_VOCABULARY, ChatTemplate(channelled.TEMPLATE, {}), ()),
    channelled.VOCABULARY,
    channelled.CONTROL,
    channelled.ANALYSIS,
    channelled.NEXT + channelled.FINAL,
    begins=channelled.FINAL,
)
GEMMA, SEED = between_marks(marked.GEMMA), between_marks(marked.SEED)
KINDS = {"gemma": GEMMA, "seed": SEED, "cohere": COHERE, "harmony": HARMONY}
kinds = st.sampled_from([*KINDS.values()])
with_control_tokens = st.sampled_from([GEMMA, COHERE, HARMONY])
MARKS = [*marked.CONTROL, *channelled.CONTROL]
SHARDS = [
    "thought", "\n", " ", "<seed:", "think>", "</seed:think>", "<seed:think>", "é☃",
    " to=functions.add", "assistant", "analysis", "final", "<|", "|>", "end",
]  # fmt: skip
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<>[]"), max_size=12)
anything = st.lists(words | st.sampled_from(MARKS + SHARDS), max_size=12)
attacks = anything.map(lambda parts: "".join(parts[:5]))
trimmed = attacks.map(str.strip)


@given(kinds, anything, st.booleans(), st.lists(st.integers(0, 99), max_size=20))
def test_law_any_grouping_gives_the_same(
    kind: Kind, parts: list[str], thinks: bool, places: list[int]
) -> None:
    ids = [token for part in [kind.opening * thinks, *parts] for token in kind.tokens.ids_of(part)]
    assert kind.decoded(ids, places) == kind.decoded(ids) == kind.decoded(ids, range(len(ids) + 1))


@given(with_control_tokens, words.filter(str.strip), words)
def test_law_typed_marks_stay_text(kind: Kind, thought: str, said: str) -> None:
    text = f"{kind.opening}{thought}{kind.closing}{said}".rstrip()
    typed, ids_of = kind.tokens.typed(text), kind.tokens.ids_of
    assert kind.decoded(typed) == text
    inside = ids_of(kind.opening) + typed + ids_of(kind.closing)
    assert kind.decoded(inside) == thought_and(text, "")


@given(kinds, attacks)
def test_law_a_prompt_has_no_control_token_that_was_typed(kind: Kind, written: str) -> None:
    plain = kind.text.prompt([ASKED], thought_and("a", "b")).ids
    asked = [Message("user", written)]
    ids = kind.text.prompt(asked, thought_and(written, written)).ids
    assert kind.controls(ids) == kind.controls(plain)


@given(kinds, trimmed.filter(bool), trimmed, attacks.map(str.lstrip))
def test_law_an_answer_is_whole_with_what_comes(
    kind: Kind, one: str, other: str, said: str
) -> None:
    typed, closing = kind.tokens.typed, kind.tokens.ids_of(kind.closing)
    for begun, ids, whole in (
        (
            f"<think>\n{one}",
            [*typed(other), *closing, *typed(said)],
            thought_and(one + other, said),
        ),
        (thought_and(one, one), typed(said), thought_and(one, one + said)),
        (one, typed(said), one + said),
    ):
        assert begun + rest(kind.text.detokenizer(begun), ids) == whole


@given(kinds, trimmed, trimmed)
def test_law_a_prompt_says_what_has_begun(kind: Kind, thought: str, said: str) -> None:
    head = len(kind.fresh())
    for begun in (thought_and(thought, said), f"<think>\n{thought}"):
        decoded = kind.text.decode(kind.text.prompt([ASKED], begun).ids[head:])
        assert decoded == (begun if thought else said if "</think>" in begun else "")


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("thinks", [True, False])
def test_prompts_go_on_in_the_marks_of_the_model(name: str, thinks: bool) -> None:
    kind = KINDS[name]
    opening, closing, begins = kind.opening, kind.closing, kind.begins
    after = "" if thinks else closing
    fresh = opening if kind.opens else ""
    cases = {
        "": fresh if thinks else begins,
        "Forty": f"{begins}Forty",
        "<think>\n": f"{opening}{after}",
        "<think>\nLet me ": f"{opening}Let me {after}",
        thought_and("Oh.", ""): f"{opening}Oh.{closing}",
        thought_and("Oh.", "Forty"): f"{opening}Oh.{closing}Forty",
        "<think>Oh.</think>Forty": f"{opening}Oh.{closing}Forty",
    }
    for begun, written in cases.items():
        assert kind.continued(begun, thinks=thinks) == written


def test_prompts_have_no_empty_thought_before_one() -> None:
    off = {"enable_thinking": False}
    assert GEMMA.continued("Forty", variables=off) == "<|channel>thought\n<channel|>Forty"
    assert GEMMA.continued("<think>\nOh", variables=off) == "<|channel>thought\nOh"


@pytest.mark.parametrize("name", KINDS)
def test_half_a_character_stays_one(name: str) -> None:
    kind = KINDS[name]
    begun = kind.tokens.ids_of(f"{kind.opening}a") + kind.tokens.ids_of("☃")[:1]
    assert kind.decoded(begun) == "<think>\na\N{REPLACEMENT CHARACTER}"
    ended = begun + kind.tokens.ids_of(f"{kind.closing}b")
    assert kind.decoded(ended) == thought_and("a\N{REPLACEMENT CHARACTER}", "b")
