"""What is here, what removing frees, and what cannot be removed."""

from dataclasses import replace

import pytest

from app.errors import DownloadFailed, ModelInUse, SettingsError, UnknownModel
from app.models.catalog import ModelRecord
from app.models.downloads.manifest import Manifest
from app.models.downloads.staging import INCOMPLETE, Staging, abandoned, unfinished
from app.models.hub.repository import Digest, Kind, RemoteFile
from app.models.library.importing import Import, Way, import_model
from app.models.library.installed import installed_models, read_inventory, remove_model
from tests.app.models.library.places import model_folder

ORDER = Manifest("half", "org/half", "c" * 40, (RemoteFile("model.safetensors", 10, Digest(Kind.GIT, "0" * 40)),))  # fmt: skip


def named(settings, name):
    return next(model for model in installed_models(settings) if model.entry.name == name)


def pulled(settings, name: str, draft: str | None = None, weights: bytes = b"12345678") -> None:
    folder = model_folder(settings.models_folder / name, weights)
    ModelRecord(name, "org/x@c", draft=draft).write(folder)


def test_the_box_is_here_and_stays(settings):
    pocket = named(settings, "pocket")
    assert pocket.bundled
    assert pocket.size > 10_000_000
    assert pocket.frees == 0
    with pytest.raises(SettingsError, match="pocket comes with Slipstream"):
        remove_model(settings, "pocket")


def test_a_removed_model_frees_what_was_said(settings):
    pulled(settings, "mine")
    frees = named(settings, "mine").frees
    assert frees > 8
    assert remove_model(settings, "mine").freed == frees
    assert [folder.name for folder in settings.models_folder.iterdir()] == [INCOMPLETE]
    assert list((settings.models_folder / INCOMPLETE).iterdir()) == []
    with pytest.raises(UnknownModel, match="no model named 'mine'(?!.*works too)"):
        remove_model(settings, "mine")


def test_what_others_share_frees_nothing(settings, tmp_path):
    import_model(settings, Import(model_folder(tmp_path / "linked", bytes(5000))))
    model = named(settings, "linked")
    assert model.size > 5000
    assert model.frees < 1000, "its record only"
    remove_model(settings, "linked")
    assert (tmp_path / "linked" / "model.safetensors").stat().st_size == 5000


def test_a_reference_is_forgotten_and_its_files_stay(settings, tmp_path):
    source = model_folder(tmp_path / "there")
    import_model(settings, Import(source, way=Way.REFERENCE))
    assert named(settings, "there").reference
    assert remove_model(settings, "there").freed == 0
    assert (source / "model.safetensors").exists()


def test_a_loaded_model_is_not_removed(settings):
    pulled(settings, "mine")
    with pytest.raises(ModelInUse, match="mine is loaded now; choose another"):
        remove_model(settings, "mine", ["pocket", "mine"])
    assert named(settings, "mine")


def test_an_unused_draft_is_named(settings):
    pulled(settings, "qwen3-0.6b")
    pulled(settings, "qwen3-8b")
    pulled(settings, "qwen3-14b")
    assert remove_model(settings, "qwen3-8b").idle_draft is None
    assert remove_model(settings, "qwen3-14b").idle_draft == "qwen3-0.6b"


def test_an_unfinished_download_is_removed_too(settings):
    staging = Staging(settings.models_folder, "half")
    staging.write(ORDER)
    (staging.files / "model.safetensors.part").write_bytes(b"12345")
    assert remove_model(settings, "half").freed == 5
    assert not list(unfinished(settings.models_folder))


def test_an_order_that_outlived_its_download_is_not_unfinished(settings):
    """A process killed after the model had its name left it as unfinished for ever."""
    pulled(settings, "mine")
    Staging(settings.models_folder, "mine").write(replace(ORDER, name="mine"))
    assert not list(unfinished(settings.models_folder))
    remove_model(settings, "mine")
    assert not list(unfinished(settings.models_folder)), "what was removed does not come back"


def test_what_a_killed_import_left_is_removed_too(settings):
    """Gigabytes lay there that nothing listed and nothing removed."""
    staging = Staging(settings.models_folder, "half")
    staging.files.mkdir(parents=True)
    (staging.files / "model.safetensors.part").write_bytes(b"12345")
    with staging.held():
        assert not list(abandoned(settings.models_folder)), "an import that goes on is left alone"
        with pytest.raises(UnknownModel):
            remove_model(settings, "half")
    assert [left.size() for left in abandoned(settings.models_folder)] == [5]
    assert remove_model(settings, "half").freed == 5
    assert not staging.folder.exists()


def test_a_model_that_another_process_holds_is_not_removed(settings):
    staging = Staging(settings.models_folder, "half")
    staging.write(replace(ORDER))
    with staging.held(), pytest.raises(DownloadFailed, match="by another process"):
        remove_model(settings, "half")
    assert remove_model(settings, "half").freed == 0


def test_a_vanished_reference_is_listed_and_can_be_removed(settings, tmp_path):
    source = model_folder(tmp_path / "there")
    import_model(settings, Import(source, way=Way.REFERENCE))
    source.rename(tmp_path / "moved")
    assert named(settings, "there").size == 0
    assert "is gone" in named(settings, "there").fault
    assert remove_model(settings, "there").name == "there"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "notes.txt"])
def test_a_dead_link_is_marked_and_the_rest_is_listed(settings, tmp_path, name):
    """It took the whole list of models, on the page and in the terminal."""
    source = model_folder(tmp_path / "there")
    import_model(settings, Import(source, way=Way.REFERENCE))
    (source / name).unlink(missing_ok=True)
    (source / name).symlink_to(tmp_path / "gone")
    assert named(settings, "there").fault == f"{source / name} is a link that leads nowhere"
    assert named(settings, "pocket").fault == ""
    assert {one.entry.name for one in read_inventory(settings).installed} >= {"there"}
