"""What a pass over a transformers model leaves behind: nothing, where it is left, and no logits unasked."""

import pytest

from engine.build import assemble
from engine.decode.tree import chain, single
from engine.protocols.drafting import Parts
from engine.protocols.target import Abortable, Rows
from engine.request import GenerationRequest, ModelSpec
from tests.engine.models.hf_families import CHAINS, RECURRENT, TREES, near
from tests.engine.models.test_families import IDS, oracle
from tests.engine.models.test_hf_target import greedy
from tests.engine.tiny import SlowMachine, run_all


@pytest.mark.parametrize("family", [*TREES, *CHAINS])
def test_a_chunk_that_is_left_in_any_layer_leaves_no_trace(loaded, family):
    """Behind a prefix and without one; what comes next equals the library's own pass."""
    target, reference = loaded(family)
    for before in (0, 10):
        for layers in range(target.layers):
            target.crop(0, 0)
            if before:
                target.feed(0, IDS[:before])
            asked = []
            target.abort_when(
                lambda asked=asked, layers=layers: asked.append(1) or len(asked) > layers
            )
            target.feed(0, IDS[20:30])
            target.abort_when(bool)
            assert len(asked) == layers + 1  # of a model that asked less nothing would be shown
            assert (target.length(0), target.pending(0)) == (before, 0)
            target.feed(0, IDS[before:14])
            again = target.score([0], [chain([8, 9])])[0].logits
            assert near(again, oracle(reference, [*IDS[:14], 8, 9])[-2:])


@pytest.mark.parametrize("family", RECURRENT)
def test_a_running_state_is_never_left_in_the_middle(loaded, family):
    assert not isinstance(loaded(family)[0], Abortable)


@pytest.mark.parametrize("family", ["gemma3", "granite", "bloom", "falcon_h1"])
def test_logits_are_computed_of_the_rows_that_are_asked_for_alone(loaded, family):
    target, _ = loaded(family)
    rows = []
    head = target._model.module.get_output_embeddings()
    handle = head.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[-2]))
    target.feed(0, IDS[:13])
    target.score([0], [single(IDS[13])])
    target.crop(0, target.length(0))
    if family not in RECURRENT:
        target.grow([Rows(0, IDS[20:24], (-1, 0, 1, 2), last=2)])
        assert rows == [1, 1, 2]
    assert set(rows) <= {1, 2}
    handle.remove()


def test_what_is_read_ahead_spares_the_next_question_its_reading(loaded):
    target, reference = loaded("gemma3")
    engine = assemble(ModelSpec("tiny", ""), Parts(target, cost=SlowMachine()), "no pair")
    told = tuple(IDS[n % 40] for n in range(60))
    engine.submit(GenerationRequest(told, 1, ahead=True))
    while engine.busy:
        engine.step()
    [(ids, done)] = run_all(engine, [GenerationRequest((*told, 3, 4), 8)])
    assert done.stats.cached_tokens == len(told) - 1
    assert ids == greedy(reference, (*told, 3, 4), 8)
