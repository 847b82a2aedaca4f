"""The shipped catalogue, names and paths, and every way in which both can be wrong."""

from pathlib import Path

import pytest

from app.catalog import find_entry, load_catalog, read_catalog, resolve
from app.errors import SettingsError, UnknownModel
from app.settings import Settings
from engine.errors import ModelUnusable

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
    """A folder that has what loading needs; nothing opens the files here."""
    made = tmp_path / "local-model"
    made.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (made / name).write_text("{}")
    return made


def read(tmp_path: Path, text: str):
    file = tmp_path / "models.yaml"
    file.write_text(text)
    return read_catalog(file, [tmp_path])


# --- the shipped catalogue ------------------------------------------------------------------------


def test_every_shipped_entry_can_be_resolved(settings):
    for entry in load_catalog(settings):
        spec = resolve(settings, entry.name)
        assert spec.name == entry.name
        assert (Path(spec.folder) / "config.json").exists()


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


def test_drafts_are_not_offered(settings):
    hidden = {entry.name for entry in load_catalog(settings) if not entry.visible}
    assert hidden == {"pocket-draft"}


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


@pytest.mark.parametrize("name", ["nobody", "", "Pocket", "nobody 2"])
def test_an_unknown_name_lists_the_known_ones(settings, name):
    with pytest.raises(UnknownModel, match="pocket, pocket-draft"):
        resolve(settings, name)
    with pytest.raises(UnknownModel):
        resolve(settings, "pocket", draft=name or "nobody")


def test_a_missing_path_is_named(settings, tmp_path):
    with pytest.raises(ModelUnusable, match=f"there is no folder {tmp_path}/nothing"):
        resolve(settings, f"{tmp_path}/nothing")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_missing_file_is_named(settings, folder, missing):
    (folder / missing).unlink()
    with pytest.raises(ModelUnusable, match="lacks") as caught:
        resolve(settings, str(folder))
    assert (missing if missing.endswith("json") else "*.safetensors") in str(caught.value)


def test_an_empty_folder_names_everything_it_lacks(settings, tmp_path):
    with pytest.raises(ModelUnusable, match=r"config.json, tokenizer.json and \*.safetensors"):
        resolve(settings, str(tmp_path))


@pytest.mark.parametrize("pickle", ["pytorch_model.bin", "weights.pt", "model.ckpt"])
def test_pickled_weights_are_refused(settings, folder, pickle):
    (folder / "model.safetensors").rename(folder / pickle)
    with pytest.raises(ModelUnusable, match=f"{pickle}, a format that can run code"):
        resolve(settings, str(folder))


def test_safetensors_win_over_pickles_beside_them(settings, folder):
    (folder / "pytorch_model.bin").touch()
    assert resolve(settings, str(folder)).folder == str(folder)


def test_gguf_is_refused_for_now(settings, tmp_path, folder):
    file = tmp_path / "model.gguf"
    file.touch()
    (folder / "model.safetensors").rename(folder / "model-q4.gguf")
    for place in (str(file), "missing.gguf", str(folder)):
        with pytest.raises(ModelUnusable, match="GGUF files cannot be run yet"):
            resolve(settings, place)


def test_a_file_is_not_a_folder(settings, folder):
    with pytest.raises(ModelUnusable, match="is a file; give the folder"):
        resolve(settings, str(folder / "model.safetensors"))


# --- the file itself ------------------------------------------------------------------------------


def test_the_shortest_entry(tmp_path):
    (entry,) = read(tmp_path, GOOD)
    assert (entry.name, entry.draft, entry.exit_layer, entry.visible) == ("small", None, None, True)


def test_an_entry_is_known_before_its_folder_is_there(tmp_path, settings, monkeypatch):
    monkeypatch.setattr("app.catalog.load_catalog", lambda _: read(tmp_path, GOOD))
    with pytest.raises(ModelUnusable, match="the model small is not on this machine"):
        resolve(settings, "small")
    (tmp_path / "small").mkdir()
    assert find_entry(read(tmp_path, GOOD), "small").folder == tmp_path / "small"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [", "is not YAML"),
        ("", "needs a list named 'models'"),
        ("models: []", "needs a list named 'models'"),
        ("- name: x", "needs a list named 'models'"),
        ("models: [small]", "entry 1: expected fields, found 'small'"),
        ("models: [{name: small}]", "entry 1: missing description, folder, licence"),
        (GOOD + "    colour: red", "entry 1: unknown field 'colour'"),
        (GOOD + "    exit_layer: two", "exit_layer must be a int, not 'two'"),
        (GOOD + "    exit_layer: true", "exit_layer must be a int, not True"),
        (GOOD + "    acceptance_head: 1", "acceptance_head must be a str, not 1"),
        (GOOD + "    visible: 1", "visible must be a bool, not 1"),
        (GOOD + "    draft: nobody", "small drafts with 'nobody', no entry"),
        (GOOD + GOOD.replace("models:", "").strip("\n"), "the name 'small' stands there twice"),
        ("models: !!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_a_wrong_catalogue_is_explained(tmp_path, text, said):
    with pytest.raises(SettingsError, match=said.replace("[", r"\[")):
        read(tmp_path, text)


def test_a_missing_catalogue_is_explained(tmp_path):
    with pytest.raises(SettingsError, match="cannot be read"):
        read_catalog(tmp_path / "none.yaml", [tmp_path])
