"""The engines of the stories, each with a server in front of it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.remote.far import (
    KEY,
    LLAMA_SERVER,
    LOCAL,
    NAME,
    VLLM,
    Far,
    Stoppable,
    free_port,
    opened,
    ours,
    program,
    started,
    whole,
)
from tests.app.remote.faulty import GREEDY, HI, PATIENCE
from tests.app.remote.stub import MODEL, Stub
from tests.app.remote.stub import engine as stub_engine

NEEDS = {"llama-server": LLAMA_SERVER, "vllm": VLLM}
ENGINES = ("stub-vllm", "stub-sglang", "slipstream", *NEEDS)


def gguf_of(kind: str, request: pytest.FixtureRequest) -> Path | None:
    """The model of llama-server; skips where the engine is not here."""
    variable = NEEDS.get(kind)
    if variable and not program(variable):
        pytest.skip(f"{variable} names no program")
    return request.getfixturevalue("pocket_gguf") if kind == "llama-server" else None


def _open(kind: str, request: pytest.FixtureRequest) -> Iterator[Far]:
    gguf = gguf_of(kind, request)
    folder = request.getfixturevalue("tmp_path_factory").mktemp(kind)
    with opened(kind, folder, gguf) as found:
        yield found


@pytest.fixture(params=["slipstream", "llama-server"])
def stoppable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stoppable]:
    """An engine in a process, which the test may end and start."""
    gguf, port = gguf_of(request.param, request), free_port()
    with Stoppable(lambda: started(request.param, tmp_path, gguf, port)) as engine:
        yield engine


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Far]:
    yield from _open(request.param, request)


@pytest.fixture(scope="module", params=[kind for kind in ENGINES if kind.startswith("stub")])
def stubbed(request: pytest.FixtureRequest) -> Iterator[Far]:
    yield from _open(request.param, request)


@pytest.fixture
def far(engine: Far) -> Far:
    """The engine; a stub has forgotten what it was asked before."""
    if engine.stub is not None:
        engine.stub.forget()
    return engine


@pytest.fixture
def stub_of(stubbed: Far) -> Stub:
    """The stub of the story, which has forgotten what it was asked before."""
    assert stubbed.stub is not None
    stubbed.stub.forget()
    return stubbed.stub


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """An engine, and a server that has little patience with it."""
    home = tmp_path_factory.mktemp("faulty") / "home"
    with stub_engine("vllm", KEY) as stub:
        table = {"address": stub.address, "timeout": PATIENCE}
        with ours(home, **{NAME: table}) as server:
            yield Far("stub-vllm", stub.address, MODEL, server, home, stub)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Stub]:
    """Another machine, that nobody configured."""
    with stub_engine("vllm") as stub:
        yield stub


@pytest.fixture
def stub(faulty: Far, elsewhere: Stub, caplog: pytest.LogCaptureFixture) -> Iterator[Stub]:
    """The engine. Afterwards it and the local model answer; no key was said, nobody else was asked."""
    caplog.set_level(logging.DEBUG)
    stub = faulty.stub
    assert stub is not None
    stub.forget()
    elsewhere.forget()
    yield stub
    stub.forget()
    assert elsewhere.requests == []
    with faulty.here() as here, faulty.there() as there:
        theirs = whole(there, faulty.model, HI, **GREEDY)
        assert whole(here, faulty.name, HI, **GREEDY) == theirs
        assert whole(here, LOCAL, HI, max_tokens=4)[0][0].content
    assert KEY not in caplog.text
    assert {seen.key for seen in stub.requests if seen.path != "/metrics"} == {KEY}
