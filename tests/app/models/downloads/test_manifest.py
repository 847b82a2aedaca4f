"""From a name to what is fetched, and an order's way through its file."""

from pathlib import Path

import pytest

from app.errors import SettingsError, UnknownModel
from app.models.catalog import CatalogEntry
from app.models.downloads.manifest import Manifest, manifests_for, stored_manifest
from tests.app.models.downloads.hub import COMMIT, Fixed, Repo, model_files

DRAFT = CatalogEntry("draft", "runs ahead", None, licence="MIT", repo="org/draft")
TARGET = CatalogEntry("target", "answers", None, "draft", licence="Apache-2.0", repo="org/tiny", mode="auto")  # fmt: skip
HERE = CatalogEntry("here", "in the box", Path("/somewhere"))


@pytest.fixture(autouse=True)
def repositories(stand_in):
    stand_in.repos["org/draft"] = Repo(model_files(5, 1000))


def names(orders) -> list[str]:
    return [order.name for order in orders]


def test_a_target_brings_its_draft(hub):
    orders = manifests_for(hub, (TARGET, DRAFT), "target")
    assert names(orders) == ["target", "draft"]
    assert [order.licence for order in orders] == ["Apache-2.0", "MIT"]
    assert {order.commit for order in orders} == {COMMIT}
    assert orders[1].total == sum(file.size for file in orders[1].files)


def test_a_draft_that_is_here_is_not_fetched_again(hub):
    here = CatalogEntry("draft", "runs ahead", Path("/x"), repo="org/draft")
    assert names(manifests_for(hub, (TARGET, here), "target")) == ["target"]


def test_a_repository_of_the_catalogue_is_that_entry(hub):
    assert names(manifests_for(hub, (TARGET, DRAFT), "org/tiny")) == ["target", "draft"]
    assert names(manifests_for(hub, (TARGET, DRAFT), "org/tiny", ["*.safetensors"])) == ["tiny"]


def test_a_name_that_another_model_has_is_made_longer(hub):
    other = CatalogEntry("tiny", "", Path("/x"), repo="somebody/tiny")
    assert names(manifests_for(hub, (other,), "org/tiny")) == ["org--tiny"]


@pytest.mark.parametrize("wanted", [(), ["*.safetensors", "*.json"]])
def test_a_repository_that_is_here_is_not_fetched_again(hub, wanted):
    mine = CatalogEntry("tiny", "", Path("/x"), repo="org/tiny")
    with pytest.raises(SettingsError, match="tiny is on this machine already, at /x"):
        manifests_for(hub, (mine,), "org/tiny", wanted)


@pytest.mark.parametrize("name", ["nobody", "a/b/c", "https://example.com/a/b", "", "../x"])
def test_a_name_that_is_no_repository_is_unknown_and_the_hub_is_not_asked(hub, stand_in, name):
    with pytest.raises(UnknownModel, match="OWNER/REPOSITORY of Hugging Face works too"):
        manifests_for(hub, (TARGET,), name)
    assert stand_in.requests == []


def test_a_model_that_is_here_is_reported(hub):
    with pytest.raises(SettingsError, match="here is on this machine already, at /somewhere"):
        manifests_for(hub, (HERE,), "here")
    lost = CatalogEntry("lost", "in the box", None)
    with pytest.raises(SettingsError, match="comes with Slipstream"):
        manifests_for(hub, (lost,), "lost")


def test_an_order_survives_its_file(hub, stand_in, tmp_path):
    stand_in.repos["org/q"] = Repo({"a/m-Q8_0.gguf": Fixed(b"GGUF")})
    for order in (*manifests_for(hub, (TARGET, DRAFT), "target"), *manifests_for(hub, (), "org/q")):
        (tmp_path / "order.json").write_text(order.to_json())
        assert stored_manifest(tmp_path / "order.json") == order
    assert isinstance(order, Manifest)
