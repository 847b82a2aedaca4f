"""Requests made out of the OpenAPI description: none is a failure of the server, and every reply is as described.

Where schemathesis is installed: pip install schemathesis.
"""

import random
from typing import Any

import pytest
from hypothesis import given, settings

HI = [{"role": "user", "content": "Hi"}]
TEXTS = {"messages": HI, "input": HI, "prompt": "Hi"}


def lively(body: Any, source: random.Random) -> None:
    """Most requests name the model and ask something short, so that they come as far as an answer."""
    if not isinstance(body, dict):
        return
    if source.random() < 0.9:
        body["model"] = "pocket"
    for name in TEXTS.keys() & body.keys():
        if source.random() < 0.6:
            body[name] = TEXTS[name]
    body |= {"max_tokens": 2, "max_output_tokens": 2, "n": 1}
    body.pop("max_completion_tokens", None)


def test_every_reply_is_as_described(url: str) -> None:
    schemathesis: Any = pytest.importorskip("schemathesis")
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.response_headers_conformance,
    ]
    source = random.Random(1)
    schema = schemathesis.openapi.from_url(f"{url}/v1/openapi.json")
    operations = list(schema.get_all_operations())
    assert len(operations) > 10
    for found in operations:

        @settings(max_examples=20)
        @given(case=found.ok().as_strategy())
        def replies_as_described(case: Any) -> None:
            lively(case.body, source)
            case.call_and_validate(checks=wanted, timeout=20)

        replies_as_described()
