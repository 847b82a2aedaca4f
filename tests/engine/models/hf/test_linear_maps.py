"""Transformers models with packed maps: the same logits, and the freed weights are not read."""

import pytest
import torch
from torch import nn

from engine.models.hf import model as hf_model
from engine.models.hf.load import load
from engine.models.hf.model import lay_out
from engine.models.own import precision
from engine.platform import upcast_linear as upcast
from engine.platform.onednn_linear import OneDnnLinear, can_pack
from engine.platform.upcast_linear import UpcastLinear
from engine.speculation.tree import chain, single
from tests.engine.models.checkpoints import HF, IDS, RECURRENT, TREES, oracle, saved, spec

needs_packing = pytest.mark.skipif(
    not can_pack(torch.device("cpu"), torch.float32),
    reason="this machine's torch cannot pack weights",
)


@pytest.fixture(autouse=True)
def no_map_is_small(monkeypatch):
    monkeypatch.setattr(upcast, "SMALL", 0)


def maps(target):
    inside = [m for m in target.model.module.modules() if isinstance(m, nn.Linear)]
    return [m.__dict__.get("forward") for m in inside]


@needs_packing
@pytest.mark.parametrize("family", HF)
def test_every_family_computes_what_the_library_does(family, tmp_path):
    reference = saved(HF[family], tmp_path)
    target = load(spec(tmp_path))
    reads_weights = family in ("mamba", "jamba")  # itself, without their maps
    assert any(isinstance(each, OneDnnLinear) for each in maps(target)) != reads_weights
    assert (target.abilities.trees == "") == (family in TREES | RECURRENT)
    assert target.parameters == sum(p.numel() for p in reference.parameters())
    target.feed(0, IDS[:5])
    found = target.score([0], [single(IDS[5])])[0].logits
    wanted = oracle(reference, IDS[:6])[-1]
    assert (found[0] - wanted).abs().max() < 1e-4 * max(1.0, wanted.abs().max())


def test_halves_go_in_float32_where_the_processor_lacks_them(tmp_path, monkeypatch):
    saved(TREES["granite"], tmp_path)
    for module in (upcast, precision):
        monkeypatch.setattr(module, "can_pack", lambda device, dtype: dtype == torch.float32)
    monkeypatch.setattr(upcast, "choose_alone", lambda timed: 2)
    target = load(spec(tmp_path, dtype="bfloat16"))
    assert all(isinstance(each, UpcastLinear) for each in maps(target))
    full = load(spec(tmp_path))
    near, wanted = (t.score([0], [chain(IDS[:9])])[0].logits.float() for t in (target, full))
    assert (near - wanted).abs().max() < 0.05 * wanted.abs().max()


@needs_packing
def test_the_stored_weights_are_freed_and_read_as_no_numbers(tmp_path):
    saved(TREES["granite"], tmp_path)
    module = load(spec(tmp_path)).model.module
    gone = [m.weight for m in module.modules() if isinstance(m, nn.Linear)]
    assert all(weight.untyped_storage().nbytes() == weight.itemsize for weight in gone)
    assert all(weight.isnan().all() for weight in gone)
    assert not module.get_input_embeddings().weight.isnan().any()  # though the head was tied to it


@needs_packing
def test_a_model_that_reads_its_weights_itself_runs_as_the_library_has_it(tmp_path, monkeypatch):
    """As Mamba does; and as a head would that a later release multiplies in another way."""
    saved(HF["mamba"], tmp_path / "mamba")
    assert set(maps(load(spec(tmp_path / "mamba")))) == {None}

    def spoil(module, change):
        lay_out(module, change)
        head = module.lm_head
        head.forward = lambda x: x @ head.weight.T

    reference = saved(TREES["granite"], tmp_path / "granite")
    monkeypatch.setattr(hf_model, "lay_out", spoil)
    target = load(spec(tmp_path / "granite"))
    assert set(maps(target)) == {None}
    found = target.score([0], [chain(IDS[:6])])[0].logits
    assert (found - oracle(reference, IDS[:6])).abs().max() < 1e-4
