"""Answers in a format, over HTTP, with the bundled model: always what the schema accepts."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any

import httpx
import openai
import pydantic
import pytest

from app.server.openai_chat.schemas import ChatBody
from tests.app.server.serving import served

ASKED = "Extract the name and the age as JSON: Anna Berg is 34 years old and likes cats."
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 18, "maximum": 30},
        "kind": {"enum": ["cat", "dog", "owner"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "person", "schema": PERSON, "strict": True},
}


Name = Annotated[str, pydantic.Field(max_length=12)]


class Person(pydantic.BaseModel):
    """The same for OpenAI's client, which reads the answer into it; whatever is said, it ends."""

    name: Name
    age: int = pydantic.Field(ge=18, le=30)
    friends: list[Name] = pydantic.Field(max_length=2)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("home")) as url:
        yield url


def ask(url: str, **fields: Any) -> httpx.Response:
    body = {"model": "pocket", "messages": [{"role": "user", "content": ASKED}], **fields}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)


def content(url: str, **fields: Any) -> str:
    answer = ask(url, **fields).json()["choices"][0]
    assert answer["finish_reason"] == "stop"
    return str(answer["message"]["content"])


def test_an_answer_is_what_the_schema_accepts_and_the_same_with_every_drafter(url: str) -> None:
    free = content(url)
    plain = content(url, response_format=SCHEMA, drafter="none")
    found = json.loads(plain)
    assert list(found) == ["name", "age", "kind"]
    assert 18 <= found["age"] <= 30
    assert len(found["name"]) <= 12
    assert found["kind"] in ("cat", "dog", "owner")
    assert plain != free
    for drafter in ("auto", "lookup", "suffix", "chain", "sequoia", "specexec", "early_exit"):
        assert content(url, response_format=SCHEMA, drafter=drafter) == plain
    assert content(url, json_schema=PERSON) == plain
    assert content(url, response_format={"type": "json_object", "schema": PERSON}) == plain


@pytest.mark.parametrize("seed", range(4))
def test_a_drawn_answer_is_what_the_schema_accepts_too(url: str, seed: int) -> None:
    for drafter in ("none", "auto"):
        asked = {"temperature": 1.3, "seed": seed, "drafter": drafter}
        found = json.loads(content(url, response_format=SCHEMA, **asked))
        assert 18 <= found["age"] <= 30


def test_an_answer_is_what_a_grammar_says_with_every_drafter(url: str) -> None:
    grammar = 'root ::= name ", " [1-9] [0-9]? " years" ("!" | ".")\nname ::= [A-Z] [a-z]{2,7}'
    plain = content(url, grammar=grammar, drafter="none")
    assert re.fullmatch(r"[A-Z][a-z]{2,7}, [1-9][0-9]? years[!.]", plain)
    for drafter in ("auto", "suffix", "chain", "specexec", "early_exit"):
        assert content(url, grammar=grammar, drafter=drafter) == plain
    drawn = {"temperature": 1.3, "seed": 3}
    assert content(url, grammar=grammar, **drawn) == content(
        url, grammar=grammar, drafter="none", **drawn
    )
    assert content(url, grammar='root ::= "yes" | "no"') in ("yes", "no")


def test_a_text_matches_its_pattern(url: str) -> None:
    schema = {
        "type": "object",
        "properties": {"code": {"type": "string", "pattern": r"^[A-Z]{2}-\d{3}$"}},
        "required": ["code"],
    }
    assert re.fullmatch(r"[A-Z]{2}-\d{3}", json.loads(content(url, json_schema=schema))["code"])


def test_any_object_will_do_where_no_schema_is_sent(url: str) -> None:
    found = content(url, response_format={"type": "json_object"})
    assert isinstance(json.loads(found), dict)


def test_openais_client_reads_an_answer_into_a_class(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        told = client.chat.completions.parse(
            model="pocket", messages=[{"role": "user", "content": ASKED}], response_format=Person
        )
    found = told.choices[0].message.parsed
    assert found is not None
    assert 18 <= found.age <= 30
    assert len(found.friends) <= 2


def test_a_streamed_answer_and_a_completed_text_are_held_to_it_too(url: str) -> None:
    plain = content(url, response_format=SCHEMA)
    streamed = ask(url, response_format=SCHEMA, stream=True).text.split("\n\n")
    events = [json.loads(e.removeprefix("data: ")) for e in streamed if e.startswith("data: {")]
    parts = [c["delta"].get("content") or "" for event in events for c in event["choices"]]
    assert "".join(parts) == plain
    body = {"model": "pocket", "prompt": "A person: ", "max_tokens": 80, "json_schema": PERSON}
    text = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]
    assert list(json.loads(text)) == ["name", "age", "kind"]


def test_an_answer_that_is_cut_short_says_so(url: str) -> None:
    answer = ask(url, response_format=SCHEMA, max_tokens=3).json()["choices"][0]
    assert answer["finish_reason"] == "length"
    assert answer["message"]["content"].startswith("{")


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        (
            {"json_schema": {"pattern": "\\b"}},
            "json_schema",
            "'pattern' at #: '\\\\b' in the pattern",
        ),
        ({"grammar": 'root ::= "a'}, "grammar", "line 1: it ends too early"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "grammar", "an answer has one format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}},
            "response_format",
            "'type' at # is 'x'",
        ),
        ({"response_format": {"type": "xml"}}, "response_format.type", "'json_schema'"),
    ],
)
def test_a_format_that_cannot_be_held_is_refused(
    url: str, fields: dict[str, Any], param: str, said: str
) -> None:
    response = ask(url, **fields)
    error = response.json()["error"]
    assert response.status_code == 400
    assert error["param"] == param
    assert said in error["message"]
    assert content(url)  # and the next one is answered


def test_plain_text_is_no_format() -> None:
    body = {"model": "pocket", "messages": [{"role": "user", "content": "hi"}]}
    asked = ChatBody.model_validate({**body, "response_format": {"type": "text"}})
    assert asked.turn == ChatBody.model_validate(body).turn
    held = ChatBody.model_validate({**body, "response_format": {"type": "json_object"}})
    assert held.turn.grammar is not None
