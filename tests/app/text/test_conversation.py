"""Conversations of every shape and templates of many habits: no text is lost."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.request import Message, Tool, ToolCall
from app.text.conversation import ConversationForm, with_ids
from app.text.template import ChatTemplate

SAID = "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
CALLS = (
    "{% for c in m.tool_calls or [] %}<call {{ c.id }}>{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}{% endfor %}"
)
REST = "{% endfor %}<assistant>"


def refusing(condition: str, body: str = SAID) -> str:
    """A template that refuses a message for which this holds."""
    check = f"{{% if {condition} %}}{{{{ raise_exception('no') }}}}{{% endif %}}"
    return body.replace("<{{ m.role }}>", f"{check}<{{{{ m.role }}}}>") + CALLS + REST


IN_TURNS = (
    "{% set all = messages[1:] if messages[0].role == 'system' else messages %}"
    "{{ messages[0].content if messages[0].role == 'system' }}{% for m in all %}"
    "{% if m.role not in ('user', 'assistant', 'tool') or (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('in turns') }}{% endif %}<{{ m.role }}>{{ m.content }}"
)
# Mistral's: calls and their results are no turns
BETWEEN_CALLS = (
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role != 'tool' and not m.tool_calls %}"
    "{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('in turns') }}{% endif %}"
    "{% set ns.n = ns.n + 1 %}{% endif %}<{{ m.role }}>{{ m.content }}"
)
NEEDS_A_QUESTION = (
    "{% if not messages | selectattr('role', 'equalto', 'user') | list %}"
    "{{ raise_exception('no question') }}{% endif %}"
)
TEMPLATES = {
    "all": SAID + CALLS + REST,
    "no system": refusing("m.role == 'system'"),
    "ignores system": SAID.replace("<{{ m.role }}>{{ m.content }}", "{% if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endif %}") + CALLS + REST,
    "system first": NEEDS_A_QUESTION + refusing("m.role == 'system' and not loop.first"),
    "in turns": IN_TURNS + CALLS + REST,
    "in turns but for calls": BETWEEN_CALLS + CALLS + REST,
    "in parts": "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{{ p.text if p.type == 'text' }}{% endfor %}" + CALLS + REST,
    "one call": refusing("m.tool_calls and m.tool_calls | length > 1"),
    "call without text": "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}" + CALLS + "{% else %}{{ m.content }}{% endif %}" + REST,
    "ids of nine": refusing("(m.tool_call_id and m.tool_call_id | length != 9) or (m.role == 'tool' and not m.tool_call_id)"),
}  # fmt: skip


def call(name: str, number: int = 0) -> ToolCall:
    return ToolCall(f"call_{'x' * 20}{number}", name, {"key": "value"})


SYSTEM, USER, ASSISTANT = (
    lambda text, role=role: Message(role, text) for role in ("system", "user", "assistant")
)
STORIES = {
    "a lone system message": [SYSTEM("alpha")],
    "several first": [SYSTEM("alpha"), SYSTEM("beta"), USER("gamma")],
    "in the middle": [SYSTEM("alpha"), USER("beta"), ASSISTANT("gamma"), SYSTEM("delta"), USER("epsilon")],
    "last": [USER("alpha"), SYSTEM("beta")],
    "two questions": [USER("alpha"), USER("beta")],
    "two answers": [USER("alpha"), ASSISTANT("beta"), ASSISTANT("gamma"), USER("delta")],
    "an answer first": [SYSTEM("alpha"), ASSISTANT("beta"), USER("gamma")],
    "an answer alone": [ASSISTANT("alpha"), USER("beta")],
    "a call": [USER("alpha"), Message("assistant", "beta", (call("gamma"),)), Message("tool", "delta", answers=call("").id), USER("epsilon")],
    "two calls": [USER("alpha"), Message("assistant", "", (call("beta"), call("gamma", 1))), Message("tool", "delta", answers=call("").id), Message("tool", "epsilon", answers=call("", 1).id)],
    "a call at the end": [USER("alpha"), Message("assistant", "", (call("beta"),))],
    "a result of nothing": [Message("tool", "alpha", answers="lost"), USER("beta")],
    "calls without ids": [USER("alpha"), Message("assistant", "", (ToolCall("", "beta", {}),)), Message("tool", "gamma"), USER("delta")],
}  # fmt: skip
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon")


def rendered(source: str, story: list[Message], tools: tuple[Tool, ...] = ()) -> str:
    template = ChatTemplate(source, {})
    story = with_ids(story)
    fitted = ConversationForm(template.render).fitted(story, offers=bool(tools))
    return template.render(fitted, tools)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_every_text_is_shown(source: str, story: list[Message]) -> None:
    found = rendered(source, story)
    wanted = {each.content for each in story} | {c.name for each in story for c in each.calls}
    assert [word for word in WORDS if word in wanted] == [word for word in WORDS if word in found]
    if story is not STORIES["two calls"]:  # where each result may follow its call
        places = [found.index(word) for word in WORDS if word in wanted]
        assert all(one < other for one, other in pairwise(places))


def test_what_a_template_takes_is_left_as_it_is() -> None:
    for story in STORIES.values():
        template = ChatTemplate(TEMPLATES["all"], {})
        assert ConversationForm(template.render).fitted(story, offers=False) is story


def test_a_system_message_moves_only_where_it_must() -> None:
    story = STORIES["in the middle"]
    assert rendered(TEMPLATES["system first"], story) == (
        "<system>alpha<user>beta<assistant>gamma<user>delta<user>epsilon<assistant>"
    )
    assert rendered(TEMPLATES["in turns"], story) == (
        "alpha<user>beta<assistant>gamma<user>delta\n\nepsilon<assistant>"
    )
    assert rendered(TEMPLATES["no system"], story[:2]) == "<user>alpha\n\nbeta<assistant>"


def test_ids_stay_pairs() -> None:
    found = rendered(TEMPLATES["ids of nine"], STORIES["two calls"])
    assert len({part[:9] for part in found.split("<call ")[1:]}) == 2


ROLES = st.sampled_from(["system", "user", "assistant"])


@given(st.lists(ROLES, min_size=1, max_size=8), st.sampled_from(sorted(TEMPLATES)))
@settings(max_examples=60)
def test_law_no_text_of_any_conversation_is_lost(roles: list[str], name: str) -> None:
    story = [Message(role, f"word{place}x") for place, role in enumerate(roles)]
    found = rendered(TEMPLATES[name], story)
    places = [found.index(each.content) for each in story]
    assert places == sorted(places)
