"""Number formats by name: what they mean for a spec, and where they come from."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.chat.loaded_model import LoadedModel
from app.commands.bench import bench_spec
from app.commands.main import parse
from app.commands.verify import serving_spec
from app.errors import SettingsError
from app.models.catalog import read_catalog, resolve
from app.placement import plans
from app.placement.plans import (
    FORMATS,
    Placed,
    context_costs,
    dtype_name,
    place,
    place_with_dtype,
    with_dtype,
)
from app.settings import DTYPES, Settings
from engine.errors import ModelUnusable, TooLarge
from engine.hardware.plan import Tier
from engine.hardware.profile import GIB, HardwareProfile, Ram, imagined
from engine.request import ModelSpec
from tests.app.asynchronous import asynchronous
from tests.app.models.library.places import wide_model
from tests.engine.models.gguf.files import random_gguf

SPEC = ModelSpec("m", "/m")
GGUF = replace(SPEC, folder="/m.gguf", backend="llama_cpp")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


def test_every_name_that_can_be_typed_is_known():
    assert set(DTYPES) == set(FORMATS)


def test_the_engine_takes_every_format():
    from engine.decoder.weights import dtype_named
    from engine.models.own.precision import check

    for name in DTYPES:
        spec = with_dtype(SPEC, name)
        check(spec)
        dtype_named(spec.dtype)


def test_a_gguf_file_keeps_its_own(settings):
    assert dtype_name(GGUF) == "numbers as in the file"
    with pytest.raises(
        ModelUnusable, match="GGUF file, whose number format is fixed; omit --dtype bfloat16"
    ):
        place_with_dtype(settings, GGUF, "bfloat16")


class TestPlan:
    """The plan of a model that is too large to be loaded without one."""

    @pytest.fixture
    def planned(self, monkeypatch) -> list[str | None]:
        """What the plan was asked for."""
        asked: list[str | None] = []

        def place(settings, spec, wishes):
            asked.append(wishes and wishes.dtype)
            return Placed(replace(spec, dtype="bfloat16", context=4096), None)

        monkeypatch.setattr(plans, "place", place)
        return asked

    @pytest.mark.parametrize(("name", "form"), [("float16", "bfloat16"), ("int8", "int8")])
    def test_what_a_plan_does_not_know_is_planned_as_bfloat16(self, settings, planned, name, form):
        found = place_with_dtype(settings, SPEC, name).spec
        assert planned == [form]
        assert (dtype_name(found), found.context) == (name, 4096)

    def test_without_a_name_the_plan_decides(self, settings, planned):
        assert place_with_dtype(settings, SPEC, None).spec.dtype == "bfloat16"
        assert planned == [None]


class TestLittleMemory:
    """A model of half a gigabyte on machines that have as much, more and less."""

    @pytest.fixture
    def spec(self, settings, tmp_path) -> ModelSpec:
        return resolve(settings, str(wide_model(tmp_path / "wide")))

    @pytest.fixture
    def free(self, monkeypatch):
        def give(size: int) -> None:
            small = replace(imagined(0, size), ram=Ram(size, size))
            monkeypatch.setattr(plans, "known_profile", lambda settings: small)

        return give

    def test_what_is_too_large_is_refused_unless_a_person_wants_it_anyway(
        self, settings, spec, free
    ):
        free(GIB // 8)
        with pytest.raises(TooLarge, match=r"are free: choose .*[^.]$"):
            place(settings, spec)
        found = place(replace(settings, load_anyway=True), spec)
        assert "loaded as was asked" in found.plan.reason("context")

    def test_a_file_is_not_said_to_want_other_bits(self, settings, tmp_path, free):
        file = random_gguf(tmp_path / "m.gguf", vocab=4100, hidden=512, layers=8)
        free(GIB // 64)
        with pytest.raises(
            TooLarge, match="a smaller model or a smaller file of this one, or close"
        ):
            place(settings, ModelSpec("m", str(file), backend="llama_cpp"))

    def test_a_context_that_a_person_chose_is_planned(self, settings, spec, free):
        free(32 * GIB)
        assert place(replace(settings, context=300), spec).spec.context == 300
        assert place(settings, spec).spec.context != 300

    def test_each_size_of_a_context_has_its_cost(self, spec):
        costs = context_costs(spec)
        assert costs == tuple(sorted(costs))
        assert costs[-1][1] > 0
        assert context_costs(replace(spec, folder="/nowhere")) == ()


class TestWhereItComesFrom:
    def options(self, settings, *argv):
        return parse(list(argv), settings).options

    @pytest.mark.parametrize("name", [None, "int8", "bfloat16"])
    def test_verify_runs_what_would_serve(self, settings, tmp_path, name):
        file = tmp_path / "p.jsonl"
        file.write_text('{"turns": ["a"]}\n')
        argv = ["verify", "--prompts", str(file), *([] if name is None else ["--dtype", name])]
        spec = serving_spec(self.options(settings, *argv))
        assert spec == place_with_dtype(settings, resolve(settings, settings.model), name).spec

    def test_bench_measures_float32_unless_asked(self, settings, tmp_path):
        file = tmp_path / "p.jsonl"
        file.write_text('{"turns": ["a"]}\n')
        argv = ["bench", "--prompts", str(file), "--lane", "lookup"]
        assert dtype_name(bench_spec(self.options(settings, *argv))) == "float32"
        argv += ["--dtype", "int8"]
        assert dtype_name(bench_spec(self.options(settings, *argv))) == "int8"

    @asynchronous
    async def test_an_entry_of_the_catalogue_has_its_own(self, settings, monkeypatch):
        """What is typed goes before it."""
        loaded = []

        async def load(entry, spec, plan, settings, loader):
            loaded.append(dtype_name(spec))

        entry = replace(read_catalog(_catalogue(settings), (POCKET_HOME,))[0])
        monkeypatch.setattr("app.chat.loaded_model.find_entry", lambda catalog, model: entry)
        monkeypatch.setattr(LoadedModel, "load", load)
        await LoadedModel.open(settings, "pocket")
        await LoadedModel.open(settings, "pocket", dtype="float32")
        assert loaded == ["int8", "float32"]

    def test_a_wrong_one_in_the_catalogue_is_named(self, settings):
        file = _catalogue(settings, "int4")
        with pytest.raises(SettingsError, match=r"m has the dtype 'int4'; choose float32, "):
            read_catalog(file, (POCKET_HOME,))


POCKET_HOME = Path(__file__).parents[3]


def _catalogue(settings: Settings, dtype: str = "int8") -> Path:
    settings.home.mkdir(parents=True, exist_ok=True)
    file = settings.home / "models.yaml"
    file.write_text(
        "models:\n  - {name: m, description: d, licence: l, folder: engine/bundled/pocket, "
        f"dtype: {dtype}}}\n"
    )
    return file


class TestSmallModels:
    """They are planned like large ones; only wishes round them."""

    @pytest.mark.parametrize(("wished", "dtype"), [(None, "float32"), ("bfloat16", "bfloat16")])
    def test_a_small_folder_is_rounded_only_where_that_is_wished(self, settings, wished, dtype):
        found = place_with_dtype(settings, resolve(settings, "pocket"), wished)
        assert found.plan is not None
        assert (found.spec.dtype, found.spec.device) == (dtype, "cpu")
        assert found.spec.context == found.plan.context

    @pytest.mark.parametrize("free", [0.15, 0.3, 2, 30])
    def test_a_small_file_gets_as_much_context_as_fits(self, settings, tmp_path, monkeypatch, free):
        file = random_gguf(tmp_path / "m.gguf", vocab=4100, hidden=512, layers=8, context=32768)
        memory = Ram(4 * GIB, int(free * GIB) + GIB)
        machine = HardwareProfile("p", 2, ("avx2",), memory)
        monkeypatch.setattr(plans, "known_profile", lambda _: machine)
        spec = ModelSpec("m", str(file), backend="llama_cpp")
        found = plans.place(settings, spec)
        assert found.plan is not None
        assert found.plan.needed(Tier.RAM) <= free * GIB
        more = found.spec.slots * found.spec.context
        assert (more == 4 * 32768) == (free > 10)
