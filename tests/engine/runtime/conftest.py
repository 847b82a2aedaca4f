"""A GGUF file for the tests of slots, exported once."""

from pathlib import Path

import pytest

from engine.request import ModelSpec
from tests.engine.models.gguf.files import exported


@pytest.fixture(scope="session")
def pocket(tmp_path_factory):
    """The bundled model as a GGUF file of three slots."""
    bundled = Path(__file__).parents[3] / "engine/bundled"
    file = exported(bundled / "pocket", tmp_path_factory.mktemp("gguf") / "pocket.gguf")
    return ModelSpec("p", str(file), backend="llama_cpp", slots=3, threads=1, context=512)
