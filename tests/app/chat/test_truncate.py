"""What the model still sees of a conversation that has outgrown its context."""

from hypothesis import given
from hypothesis import strategies as st

from app.chat.loaded_model import ANSWER, AROUND, first_seen
from app.request import Message

CONTEXT = 400

sizes = st.lists(st.integers(1, 150), min_size=1, max_size=60)


def conversation(count: int, *, told: bool = False) -> list[Message]:
    """Questions and answers by turns, a question last; perhaps behind a system prompt."""
    roles = ["user" if (count - n) % 2 else "assistant" for n in range(count)]
    return [*[Message("system", "x")] * told, *(Message(role, "x") for role in roles)]


def taken(found: list[int]) -> int:
    return sum(size + AROUND for size in found)


@given(sizes, st.booleans())
def test_what_is_seen_leaves_room_for_an_answer_or_is_one_question(
    found: list[int], told: bool
) -> None:
    messages, own = conversation(len(found), told=told), [10] * told + found
    first = first_seen(messages, own, CONTEXT)
    seen = own[:told] * (first > 0) + own[first:]
    assert taken(seen) <= (1 - ANSWER) * CONTEXT or first == len(messages) - 1
    if first:
        assert messages[first].role == "user"


@given(sizes)
def test_nothing_is_left_out_that_has_room(found: list[int]) -> None:
    messages = conversation(len(found))
    if taken(found) <= (1 - ANSWER) * CONTEXT:
        assert first_seen(messages, found, CONTEXT) == 0
    elif len([one for one in messages if one.role == "user"]) > 1:
        assert first_seen(messages, found, CONTEXT) > 0


@given(st.lists(st.integers(1, 40), min_size=80, max_size=200))
def test_it_goes_in_steps(found: list[int]) -> None:
    """Of one message for each new one, every prompt would begin differently."""
    firsts = []
    for count in range(1, len(found) + 1, 2):
        messages = conversation(count)
        firsts.append(first_seen(messages, found[:count], CONTEXT))
    assert firsts == sorted(firsts)
    room = (1 - ANSWER) * CONTEXT
    assert len(set(firsts)) <= 2 + taken(found) / (room / 2)


def test_a_system_prompt_that_is_too_long_is_for_the_engine_to_refuse() -> None:
    assert first_seen(conversation(3, told=True), [900, 5, 5, 5], CONTEXT) == 0
