"""Models of the transformers library, saved and loaded."""

import pytest

from engine.decoder.config import backend_for
from engine.models.hf.target import load
from tests.engine.decoder.test_families import saved
from tests.engine.models.hf.families import ALL, spec


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Family -> (our target, transformers' model), each made once."""
    made = {}

    def get(family):
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            reference = saved(ALL[family], folder)
            assert backend_for(folder) == "hf"
            made[family] = load(spec(folder)), reference
        target, reference = made[family]
        for slot in range(3):
            target.crop(slot, 0)
        return target, reference

    return get
