"""Answers in a format, over HTTP, with the bundled model: always what the schema accepts."""

import json
import re
from typing import Annotated, Any

import httpx
import openai
import pydantic
import pytest
from tokenizers import Tokenizer

from tests.app.server.serving import answer, choice, deltas, joined, post
from tests.bundled import POCKET

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


def asked(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": ASKED}], **fields}


def content(url: str, **fields: Any) -> str:
    found = choice(url, **asked(**fields))
    assert found["finish_reason"] == "stop"
    return str(found["message"]["content"])


def test_an_answer_fits_the_schema_and_is_the_same_with_every_drafter(url: str) -> None:
    free = content(url)
    plain = content(url, response_format=SCHEMA, drafter="none")
    found = json.loads(plain)
    assert list(found) == ["name", "age", "kind"]
    assert 18 <= found["age"] <= 30
    assert len(found["name"]) <= 12
    assert found["kind"] in ("cat", "dog", "owner")
    assert plain != free
    for drafter in ("auto", "lookup", "chain", "specexec", "early_exit"):
        assert content(url, response_format=SCHEMA, drafter=drafter) == plain
    assert content(url, json_schema=PERSON) == plain
    assert content(url, response_format={"type": "json_object", "schema": PERSON}) == plain


@pytest.mark.parametrize("seed", range(4))
def test_a_drawn_answer_fits_the_schema(url: str, seed: int) -> None:
    for drafter in ("none", "auto"):
        drawn = {"temperature": 1.3, "seed": seed, "drafter": drafter}
        found = json.loads(content(url, response_format=SCHEMA, **drawn))
        assert 18 <= found["age"] <= 30


def test_an_answer_fits_a_grammar_with_every_drafter(url: str) -> None:
    grammar = 'root ::= name ", " [1-9] [0-9]? " years" ("!" | ".")\nname ::= [A-Z] [a-z]{2,7}'
    plain = content(url, grammar=grammar, drafter="none")
    assert re.fullmatch(r"[A-Z][a-z]{2,7}, [1-9][0-9]? years[!.]", plain)
    for drafter in ("auto", "specexec"):
        assert content(url, grammar=grammar, drafter=drafter) == plain
    drawn = {"temperature": 1.3, "seed": 3}
    assert content(url, grammar=grammar, **drawn) == content(
        url, grammar=grammar, drafter="none", **drawn
    )
    assert content(url, grammar='root ::= "yes" | "no"') in ("yes", "no")


@pytest.mark.parametrize("drafter", ["none", "auto", "specexec", "format"])
def test_a_grammar_names_tokens_by_their_numbers(url: str, drafter: str) -> None:
    tokenizer = Tokenizer.from_file(str(POCKET / "tokenizer.json"))
    (word,) = tokenizer.encode(" the").ids
    one = content(url, grammar=f'root ::= "a" <[{word}]> "b"', drafter=drafter)
    assert one == "a theb"
    others = content(url, grammar=f'root ::= <[{word}]>{{3}} ("!" | "?")', drafter=drafter)
    assert others in (" the the the!", " the the the?")
    any_but = content(url, grammar=f'root ::= !<[{word}]> !<[{word}]> "."', drafter=drafter)
    assert " the" not in any_but
    assert any_but.endswith(".")


@pytest.mark.parametrize("number", [100_000, 1 << 20, 999_999_999])
def test_a_grammar_that_names_a_token_which_the_model_lacks_is_refused(
    url: str, number: int
) -> None:
    response = post(url, "chat/completions", **asked(grammar=f'root ::= "a" <[{number}]>'))
    assert response.status_code == 400
    assert str(number) in response.json()["error"]["message"]


def test_any_object_will_do_where_no_schema_is_sent(url: str) -> None:
    found = content(url, response_format={"type": "json_object"})
    assert isinstance(json.loads(found), dict)


def test_openais_client_reads_an_answer_into_a_class(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        completion = client.chat.completions.parse(
            model="pocket", messages=[{"role": "user", "content": ASKED}], response_format=Person
        )
    found = completion.choices[0].message.parsed
    assert found is not None
    assert 18 <= found.age <= 30
    assert len(found.friends) <= 2


def test_streams_and_completions_fit_too(url: str) -> None:
    plain = content(url, response_format=SCHEMA)
    assert joined(deltas(url, **asked(response_format=SCHEMA))) == plain
    fields = {"prompt": "A person: ", "max_tokens": 80, "json_schema": PERSON}
    text = answer(url, "completions", **fields)["choices"][0]["text"]
    assert list(json.loads(text)) == ["name", "age", "kind"]


def test_an_answer_that_is_cut_short_says_so(url: str) -> None:
    found = choice(url, **asked(response_format=SCHEMA, max_tokens=3))
    assert found["finish_reason"] == "length"
    assert found["message"]["content"].startswith("{")


@pytest.mark.parametrize(
    "bounds",
    [
        {"minimum": 0, "maximum": 1},
        {"exclusiveMinimum": 2.5, "maximum": 3},
        {"multipleOf": 0.25, "maximum": 2, "minimum": 0},
    ],
)
def test_a_number_stays_within_its_bounds(url: str, bounds: dict[str, float]) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number", **bounds}}, "required": ["n"],
              "additionalProperties": False}  # fmt: skip
    for drafter in ("none", "auto"):
        found = choice(url, **asked(json_schema=schema, drafter=drafter, max_tokens=60))
        if found["finish_reason"] == "stop":
            number = json.loads(found["message"]["content"])["n"]
            assert bounds.get("minimum", number) <= number <= bounds["maximum"]


def test_what_is_not_held_of_a_schema_is_named(url: str) -> None:
    one = {
        "oneOf": [
            {"type": "string", "maxLength": 3},
            {"type": "string", "minLength": 2, "maxLength": 4},
        ]
    }
    body = {"model": "pocket", "json_schema": one, **asked()}
    response = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)
    assert response.headers["x-slipstream-freed"] == "oneOf at #"
