"""Models of the transformers library, saved and loaded."""

import pytest

from engine.models.config import backend_for
from engine.models.hf_target import load
from tests.engine.models.hf_families import ALL, spec
from tests.engine.models.test_families import saved


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
