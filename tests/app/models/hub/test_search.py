"""Search: what can be run, with what is known of its size."""

import pytest

from app.errors import HubError
from app.models.hub.search import search

ROWS = [
    {"id": "org/small", "downloads": 5, "tags": ["safetensors", "license:mit"], "gated": False,
     "safetensors": {"parameters": {"BF16": 1000, "F32": 10}, "total": 1010}},
    {"id": "org/odd", "tags": ["safetensors"], "safetensors": {"parameters": {"X9": 5}, "total": 5}},
    {"id": "org/m-GGUF", "tags": ["gguf"], "gated": "manual", "gguf": {"total": 77}},
    {"id": "org/pickled", "tags": ["pytorch"]},
    {"id": "../evil", "tags": ["gguf"]},
]  # fmt: skip


def test_what_can_be_run_is_found_with_its_size(hub, stand_in):
    stand_in.rows = ROWS
    small, odd, gguf = search(hub, "llama 1b", 3)
    assert (small.repo, small.size, small.licence, small.downloads) == ("org/small", 2040, "mit", 5)
    assert (odd.size, odd.parameters) == (None, 5)
    assert (gguf.gguf, gguf.gated, gguf.parameters) == (True, True, 77)
    [query] = stand_in.searched
    assert (query["search"], query["limit"]) == (["llama 1b"], ["3"])


@pytest.mark.parametrize("rows", [[{"no": "id"}], [1], [{"id": "a/b", "downloads": "many"}]])
def test_an_answer_that_cannot_be_used_is_one_sentence(hub, stand_in, rows):
    stand_in.rows = rows
    with pytest.raises(HubError, match="cannot be used"):
        search(hub, "x")
