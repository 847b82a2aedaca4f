"""Every family keeps the target contract; the transformers library says what it computes."""

import random
from functools import partial

import pytest

from tests.engine.models.checkpoints import CHAINS, HF, OWN, RECURRENT, near, oracle
from tests.engine.models.conversations import (
    Paths,
    converse,
    random_chain,
    random_step,
    random_tree,
)

DRAFTS = dict.fromkeys(CHAINS, partial(random_chain, most=14)) | dict.fromkeys(
    RECURRENT, random_step
)
TREES = partial(random_tree, most=14)


@pytest.mark.parametrize("family", [*OWN, *HF])
def test_conversations_equal_transformers(loaded, family):
    target, reference = loaded(family)
    assert target.can_share == (family not in RECURRENT)
    texts = Paths(lambda ids: oracle(reference, ids))
    converse(texts, target, random.Random(family), near, DRAFTS.get(family, TREES), rounds=5)
