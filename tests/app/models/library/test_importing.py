"""Import: linked, copied or left where it is; and what is no model."""

import pytest

from app.errors import DiskFull, SettingsError
from app.models.catalog import find_entry, load_catalog
from app.models.downloads.staging import INCOMPLETE
from app.models.library.importing import Import, Way, import_model
from engine.errors import ModelUnusable
from tests.app.models.library.places import GGUF, gguf, hub_cache, model_folder


def names(folder) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_folder_is_linked_without_what_no_model_needs(settings, tmp_path):
    source = model_folder(tmp_path / "mine")
    assert import_model(settings, Import(source)) == "mine"
    made = settings.models_folder / "mine"
    assert names(made) == {"config.json", "tokenizer.json", "model.safetensors", "slipstream.json"}
    assert (made / "model.safetensors").samefile(source / "model.safetensors")
    assert find_entry(load_catalog(settings), "mine").folder == made
    assert not [name for name in names(settings.models_folder / INCOMPLETE) if "lock" not in name]


def test_a_copy_is_another_file(settings, tmp_path):
    source = model_folder(tmp_path / "mine")
    import_model(settings, Import(source, "copied", Way.COPY))
    made = settings.models_folder / "copied" / "model.safetensors"
    assert made.read_bytes() == b"weights"
    assert made.stat().st_nlink == 1


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_reference_stays_where_it_is(settings, tmp_path, kind):
    source = model_folder(tmp_path / "mine") if kind == "folder" else gguf(tmp_path / "mine.gguf")
    import_model(settings, Import(source, "there", Way.REFERENCE))
    assert names(settings.models_folder / "there") == {"slipstream.json"}
    assert find_entry(load_catalog(settings), "there").folder == source


def test_links_of_a_hub_cache_are_followed(settings, tmp_path):
    snapshot = hub_cache(tmp_path / "cache", "org/m")
    import_model(settings, Import(snapshot, "m"))
    made = settings.models_folder / "m" / "model.safetensors"
    assert not made.is_symlink()
    assert made.samefile(snapshot / "model.safetensors")


def test_a_gguf_comes_with_its_other_parts(settings, tmp_path):
    parts = [gguf(tmp_path / "x" / f"m-0000{number}-of-00002.gguf") for number in (1, 2)]
    gguf(tmp_path / "x" / "other.gguf")
    assert import_model(settings, Import(parts[0])) == "m"
    assert names(settings.models_folder / "m") == {
        *(part.name for part in parts),
        "slipstream.json",
    }


def test_a_blob_without_an_ending_is_called_gguf(settings, tmp_path):
    blob = gguf(tmp_path / "sha256-abc")
    import_model(settings, Import(blob, "llama"))
    assert (settings.models_folder / "llama" / "llama.gguf").read_bytes() == GGUF


def test_a_folder_with_one_gguf_is_that_gguf(settings, tmp_path):
    file = gguf(tmp_path / "x" / "m.gguf")
    assert import_model(settings, Import(file.parent)) == "x"
    gguf(tmp_path / "x" / "n.gguf")
    with pytest.raises(ModelUnusable, match="has 2 GGUF files; give the path of one"):
        import_model(settings, Import(file.parent, "again"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path, "there is no file or folder"),
        (lambda path: path.mkdir() or path, "has no model: that takes config.json"),
        (lambda path: gguf(path, b"PK\3\4"), "is no GGUF file"),
        (lambda path: (model_folder(path) / "config.json").unlink() or path, "has no model"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused(settings, tmp_path, make, said):
    with pytest.raises(ModelUnusable, match=said):
        import_model(settings, Import(make(tmp_path / "it")))
    assert not [name for name in names(settings.models_folder) if name != INCOMPLETE]


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "two words", "x" * 101])
def test_a_name_that_could_be_a_path_is_refused(settings, tmp_path, name):
    source = model_folder(tmp_path / "mine")
    with pytest.raises(SettingsError, match="cannot be a model's name"):
        import_model(settings, Import(source, name))


def test_an_empty_name_is_the_folders_own(settings, tmp_path):
    assert import_model(settings, Import(model_folder(tmp_path / "mine"), "")) == "mine"


def test_a_taken_name_is_refused(settings, tmp_path):
    source = model_folder(tmp_path / "mine")
    import_model(settings, Import(source))
    for name in ("mine", "pocket"):
        with pytest.raises(SettingsError, match=f"there is a model {name} already"):
            import_model(settings, Import(source, name))


def test_a_copy_needs_room(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("app.models.downloads.staging.RESERVE", 0)
    monkeypatch.setattr("app.models.library.importing.Space", lambda folder: Full())
    with pytest.raises(DiskFull):
        import_model(settings, Import(model_folder(tmp_path / "mine"), way=Way.COPY))
    assert import_model(settings, Import(tmp_path / "mine")) == "mine", "a link takes no room"


@pytest.mark.parametrize("fault", [KeyboardInterrupt, OSError])
def test_a_copy_that_is_broken_off_leaves_nothing(settings, tmp_path, monkeypatch, fault):
    """Gigabytes of a copy stayed where nothing listed and nothing removed them."""

    def broken(source, draft):
        draft.write_bytes(b"half")
        raise fault

    monkeypatch.setattr("app.models.downloads.staging.shutil.copyfile", broken)
    with pytest.raises(fault):
        import_model(settings, Import(model_folder(tmp_path / "mine"), way=Way.COPY))
    assert not [name for name in names(settings.models_folder / INCOMPLETE) if "lock" not in name]


class Full:
    def check(self, what: str, needed: int) -> None:
        if needed:
            raise DiskFull(f"{what} needs {needed}")
