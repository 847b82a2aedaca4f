"""No test of a target asks for speed; models of many families, each made once."""

import pytest

from engine.decoder.config import backend_for
from engine.models.hf.load import load
from tests.engine.models.checkpoints import HF, OWN, ours, saved, spec
from tests.engine.tiny import quick_to_load  # noqa: F401 - an autouse fixture


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Family -> (our target, transformers' model)."""
    made = {}

    def get(family):
        if family not in made:
            folder = tmp_path_factory.mktemp("model")
            reference = saved((OWN | HF)[family], folder)
            assert backend_for(folder) == ("torch" if family in OWN else "hf")
            made[family] = ours(folder) if family in OWN else load(spec(folder)), reference
        target, reference = made[family]
        for slot in range(3):
            target.crop(slot, 0)
        return target, reference

    return get
