"""build(): what can run is decided once, from the parts and the folders, with the reason."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import transformers

from engine.build import SAMPLED, WARM, _judges, build
from engine.drafters import DRAFTERS
from engine.errors import ModelUnusable
from engine.kernels.philox import PhiloxRandom
from engine.kernels.verify import verify_all
from engine.request import GenerationRequest, ModelSpec
from engine.speculation.rng import SeededRandom
from tests.engine.models.checkpoints import SMALL, saved
from tests.engine.tiny import drafter_of, engine_over, run_all, tiny_target

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A random model and its draft as folders, with the bundled model's tokenizer."""
    root = tmp_path_factory.mktemp("models")
    for name, layers in (("target", 3), ("draft", 1)):
        shape = SMALL | {"num_hidden_layers": layers, "vocab_size": 4096}
        saved(transformers.LlamaConfig(**shape), root / name)
        shutil.copy(ROOT / "engine/bundled/pocket/tokenizer.json", root / name)
    return root


def spec(folders, **fields):
    return ModelSpec("tiny", str(folders / "target"), **fields)


def test_a_model_whose_config_says_all_loads_without_the_transformers_library(folders):
    """Importing it takes longer than loading the bundled model and its first answer."""
    code = (
        "import sys; from engine.build import build; from engine.request import ModelSpec; "
        f"build(ModelSpec('tiny', {str(folders / 'target')!r})); sys.exit('transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_everything_runs_with_a_draft_and_an_exit(folders):
    engine = build(spec(folders, draft_folder=str(folders / "draft"), exit_layer=1))
    assert engine.facts.drafters == tuple(n for n in DRAFTERS if n not in ("format", "auto"))
    assert (engine.facts.vocab, engine.facts.context, engine.facts.layers) == (4096, 256, 3)
    found = run_all(engine, [GenerationRequest((7, 8), 9, drafter=d) for d in DRAFTERS])
    assert len({tuple(ids) for ids, _ in found}) == 1


def test_what_is_measured_at_the_first_load_is_taken_at_the_next(folders):
    first = build(spec(folders)).facts.calibration
    assert first is not None
    assert dict(first.seconds)[1] > 0
    assert first.whole
    again = build(spec(folders, calibration=first))
    assert again.facts.calibration is again.later is None
    assert len(run_all(again, [GenerationRequest((7, 8), 9)])[0][0]) == 9


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_prices_are_measured_while_nobody_asks(folders, answered):
    """An interrupted attempt changes nothing; conversations stay warm, and the next load measures nothing."""
    engine = build(spec(folders, measure_later=True))
    rough = engine.facts.calibration
    assert not rough.whole
    asked = [GenerationRequest((7, n), 9, session=str(n)) for n in range(answered)]
    before = run_all(engine, asked)
    assert engine.later.run(lambda: True) is None
    assert dict(rough.seconds).keys() <= engine.components.cost.knots.keys()
    found = engine.later.run(lambda: False)
    assert found.whole
    assert (found.exact_rows, found.margin) == (rough.exact_rows, rough.margin)
    assert found.seconds == tuple(sorted(engine.components.cost.knots.items()))
    assert [ids for ids, _ in run_all(engine, asked)] == [ids for ids, _ in before]
    for known, left in ((rough, True), (found, False)):
        assert bool(build(spec(folders, measure_later=True, calibration=known)).later) == left
    assert build(spec(folders, calibration=rough)).facts.calibration.whole  # nobody serves


def test_what_cannot_run_is_refused_with_the_reason(folders):
    facts = build(spec(folders)).facts
    refused = dict(facts.refused)
    assert facts.drafters == ("none", "lookup", "suffix", "recycling")
    assert refused["chain"] == refused["specexec"] == "no draft model is paired with tiny"
    assert "early-exit loss" in refused["early_exit"]


def test_a_draft_with_another_vocabulary_is_refused(folders, tmp_path):
    other = tmp_path / "draft"
    shutil.copytree(folders / "draft", other)
    file = other / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[40:42]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(tokenizer))
    facts = build(spec(folders, draft_folder=str(other))).facts
    assert "vocabulary differs" in dict(facts.refused)["chain"]


def test_a_folder_without_a_tokenizer_is_refused(folders, tmp_path):
    shutil.copytree(folders / "draft", tmp_path / "draft")
    (tmp_path / "draft" / "tokenizer.json").unlink()
    with pytest.raises(ModelUnusable, match=r"tokenizer\.json is missing"):
        build(spec(folders, draft_folder=str(tmp_path / "draft")))


def test_auto_says_why_it_chose():
    [(_, done)] = run_all(engine_over(tiny_target()), [GenerationRequest((1, 2), 3)])
    assert done.stats.drafter == "auto"
    assert done.stats.why.startswith("auto, by measured pace: ")


def test_warming_up_runs_every_drafter_and_keeps_nothing(folders):
    engine = build(spec(folders, draft_folder=str(folders / "draft"), exit_layer=1))
    steps = []
    step = engine.step
    engine.step = lambda: steps.append(1) or step()
    before = drafter_of(engine, "lookup")
    engine.warm_up(60.0, WARM, SAMPLED)
    assert len(steps) > 2 * len(engine.facts.drafters)
    assert drafter_of(engine, "lookup") is not before
    assert not engine.busy
    steps.clear()
    engine.warm_up(0.0, WARM)
    assert len(steps) <= 8  # no time: at most the first drafter


@pytest.mark.parametrize("there", [True, False])
def test_kernels_and_their_random_numbers_only_where_triton_is(monkeypatch, there):
    monkeypatch.setattr("engine.build.find_spec", lambda name: object() if there else None)
    verify, randomness = _judges("cuda")
    assert (verify is verify_all) == there
    assert randomness is (PhiloxRandom if there else SeededRandom)
    assert _judges("cpu")[1] is SeededRandom
