"""What other programs keep is offered once, by a name that can be typed."""

import json
import os

import pytest

from app.models.hub.repository import MODEL_NAME
from app.models.library.importing import Import, import_model
from app.models.library.other_programs import found_models
from app.other_folders import OtherFolders
from tests.app.models.library.places import gguf, hub_cache, model_folder, ollama
from tests.engine.models.gguf import tiny


def seen(others: OtherFolders, imported=()) -> dict[str, str]:
    found = found_models(others, imported)
    assert all(MODEL_NAME.fullmatch(model.name) for model in found)
    return {model.name: model.program for model in found}


def test_missing_folders_hold_no_models(tmp_path):
    assert found_models(OtherFolders()) == ()
    missing = tmp_path / "none"
    assert found_models(OtherFolders(*[(missing,)] * 6)) == ()


def test_a_folder_that_cannot_be_read_hides_nothing_of_the_others(tmp_path):
    """One folder without permission, and no list of models was shown at all."""
    locked = tmp_path / ("x" * 300)  # an error also for root, whom permissions do not stop
    gguf(tmp_path / "lm" / "org" / "repo" / "m.gguf")
    ollama(tmp_path / "o", "registry.ollama.ai/library/x/1")
    assert seen(OtherFolders((locked,), (tmp_path / "lm",), (locked,))) == {"m": "LM Studio"}
    assert seen(OtherFolders((locked,), (locked,), (tmp_path / "o",))) == {"x-1": "Ollama"}


def test_the_hubs_cache(tmp_path):
    snapshot = hub_cache(tmp_path / "cache", "org/model")
    hub_cache(tmp_path / "cache", "org/no-weights").joinpath("model.safetensors").unlink()
    [found] = found_models(OtherFolders(hub=(tmp_path / "cache",)))
    assert (found.name, found.path, found.size) == ("model", snapshot, len("model.safetensors"))


def test_of_a_repository_in_the_hubs_cache_the_newest_snapshot_with_a_model(tmp_path):
    """A later look at another revision fetches a small file or two."""
    snapshot = hub_cache(tmp_path, "org/model")
    later = snapshot.with_name("d" * 40)
    later.mkdir()
    (later / "config.json").write_text("{}")
    [found] = found_models(OtherFolders(hub=(tmp_path,)))
    assert found.path == snapshot


@pytest.mark.parametrize(
    "name",
    ["m-mmproj-f16.gguf", "MMPROJ-m.gguf", "mmproj.gguf", "m.imatrix.gguf", "imatrix-m.gguf"],
)
def test_what_lies_beside_a_model_is_none(tmp_path, name):
    gguf(tmp_path / "org" / "repo" / "free of mmproject.gguf")
    gguf(tmp_path / "org" / "repo" / name)
    assert [*seen(OtherFolders(lm_studio=(tmp_path,)))] == ["free-of-mmproject"]


@pytest.mark.parametrize("family", ["nomic-bert", "clip", "flux", "whisper", "t5"])
def test_what_writes_no_text_is_not_offered(tmp_path, family):
    """Other programs bring models for embeddings, which were offered, and refused when they were added."""
    start = tiny.assembled([tiny.pair("general.architecture", tiny.STRING, family)], [], b"")
    gguf(tmp_path / "lm" / "org" / "repo" / "other.gguf", start)
    gguf(tmp_path / "lm" / "org" / "repo" / "m.gguf", tiny.whole())
    ollama(tmp_path / "o", "registry.ollama.ai/library/other/1", content=start)
    others = OtherFolders(lm_studio=(tmp_path / "lm",), ollama=(tmp_path / "o",))
    assert seen(others) == {"m": "LM Studio"}


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["BertModel"]},
        {"architectures": ["Qwen3ForSequenceClassification"]},
        {"is_encoder_decoder": True},
    ],
)
def test_folders_of_other_kinds_are_not_offered(tmp_path, config):
    hub_cache(tmp_path, "org/model")
    other = hub_cache(tmp_path, "org/other") / "config.json"
    other.unlink()
    other.write_text(json.dumps(config))
    assert [*seen(OtherFolders(hub=(tmp_path,)))] == ["model"]


def test_a_download_of_gpt4all_that_has_not_ended_is_not_offered(tmp_path):
    gguf(tmp_path / "incomplete-m.gguf")
    gguf(tmp_path / "n.gguf")
    assert [*seen(OtherFolders(gpt4all=(tmp_path,)))] == ["n"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize(
    "place", ["lm/org/repo/pipe.gguf", "o/manifests/registry.ollama.ai/library/x/pipe"]
)
def test_a_pipe_is_not_waited_for(tmp_path, place):
    """Opening one waits for its other end: the list of models never came."""
    gguf(tmp_path / "lm" / "org" / "repo" / "m.gguf")
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / place)
    others = OtherFolders(lm_studio=(tmp_path / "lm",), ollama=(tmp_path / "o",))
    assert seen(others) == {"m": "LM Studio"}


def test_lm_studios_folder(tmp_path):
    root = tmp_path / "lm"
    gguf(root / "org" / "repo" / "m-Q4_K_M.gguf")
    gguf(root / "org" / "repo" / "mmproj-m.gguf")
    gguf(root / "org" / "big" / "b-00001-of-00002.gguf")
    gguf(root / "org" / "big" / "b-00002-of-00002.gguf")
    gguf(root / "org" / "bad" / "notes.gguf", b"hello")
    model_folder(root / "mlx-community" / "mac")
    found = found_models(OtherFolders(lm_studio=(root,)))
    assert {model.name: model.size for model in found} == {"m-Q4_K_M": 1000, "b": 2000}


def test_ollamas_manifests(tmp_path):
    root = tmp_path / "ollama"
    blob = ollama(root, "registry.ollama.ai/library/llama3.2/1b")
    ollama(root, "registry.ollama.ai/someone/model/latest", content=b"GGUF2")
    assert seen(OtherFolders(ollama=(root,))) == {
        "llama3.2-1b": "Ollama",
        "someone-model-latest": "Ollama",
    }
    assert blob in {model.path for model in found_models(OtherFolders(ollama=(root,)))}


@pytest.mark.parametrize(
    "digest", ["sha256:../../../etc/passwd", "sha256:" + "0" * 63, "sha256:" + "A" * 64, "../x", ""]
)
def test_a_digest_that_is_a_path_leads_nowhere(tmp_path, digest):
    gguf(tmp_path / "etc" / "passwd")
    ollama(tmp_path / "o", "registry.ollama.ai/library/x/1", digest=digest or "sha256:")
    assert found_models(OtherFolders(ollama=(tmp_path / "o",))) == ()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"layers": 1}', '{"layers": [1]}', "[" * 100_000])
def test_a_damaged_manifest_is_passed_over(tmp_path, text):
    ollama(tmp_path, "registry.ollama.ai/library/x/1")
    (tmp_path / "manifests" / "registry.ollama.ai" / "library" / "x" / "1").write_text(text)
    assert found_models(OtherFolders(ollama=(tmp_path,))) == ()


def test_what_was_imported_is_not_offered_again(settings, tmp_path):
    blob = ollama(tmp_path / "o", "registry.ollama.ai/library/x/1")
    others = OtherFolders(ollama=(tmp_path / "o",))
    import_model(settings, Import(blob, "x-1"))
    assert seen(others, [settings.models_folder / "x-1"]) == {}
    assert seen(others, [blob]) == {}
    assert seen(others, [tmp_path / "none"]) == {"x-1": "Ollama"}


def test_a_dead_link_hides_only_itself(tmp_path):
    """One dead link, and no list of models was shown at all."""
    gguf(tmp_path / "lm" / "org" / "repo" / "good.gguf")
    (tmp_path / "lm" / "org" / "repo" / "dead.gguf").symlink_to(tmp_path / "gone")
    snapshot = hub_cache(tmp_path / "cache", "org/dead")
    (snapshot / "model.safetensors").resolve().unlink()
    hub_cache(tmp_path / "cache", "org/model")
    (tmp_path / "cache" / "models--broken").touch()
    ollama(tmp_path / "o", "registry.ollama.ai/library/x/1").unlink()
    others = OtherFolders((tmp_path / "cache",), (tmp_path / "lm",), (tmp_path / "o",))
    assert seen(others) == {"good": "LM Studio", "model": "Hugging Face cache"}
    imported = tmp_path / "mine"
    imported.mkdir()
    (imported / "model.safetensors").symlink_to(tmp_path / "gone")
    assert seen(others, [imported]) == seen(others)


def test_linked_folders_are_entered_once(tmp_path):
    gguf(tmp_path / "elsewhere" / "m.gguf")
    root = tmp_path / "lm"
    root.mkdir()
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    (root / "again").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "loop").symlink_to(root)
    assert seen(OtherFolders(lm_studio=(root,))) == {"m": "LM Studio"}


def test_a_whole_disk_is_not_searched(tmp_path, monkeypatch):
    """A setting may name one, and the list of models would come after minutes."""
    monkeypatch.setattr("app.models.library.other_programs.MOST_FOLDERS", 5)
    gguf(tmp_path / "near.gguf")
    for number in range(9):
        gguf(tmp_path / "deep" / str(number) / "far" / f"m{number}.gguf")
    assert 1 <= len(seen(OtherFolders(lm_studio=(tmp_path,)))) < 6


@pytest.mark.parametrize(
    ("program", "file", "name"),
    [
        ("llama_cpp", "ggml-org_gemma-3-Q4_K_M.gguf", "ggml-org_gemma-3-Q4_K_M"),
        ("jan", "Menlo/Jan-nano-Q4/model.gguf", "Jan-nano-Q4"),
        ("gpt4all", "Meta-Llama-3-8B.Q4_0.gguf", "Meta-Llama-3-8B.Q4_0"),
        ("lm_studio", "org/repo/My Model (v1).GGUF", "My-Model-v1"),
    ],
)
def test_each_program_has_its_own_layout(tmp_path, program, file, name):
    gguf(tmp_path / "x" / file)
    assert [*seen(OtherFolders(**{program: (tmp_path / "x",)}))] == [name]
