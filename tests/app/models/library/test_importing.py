"""Import: linked, copied or left where it is; and what is no model."""

import json
import shutil
from urllib.parse import quote

import pytest

from app.errors import DiskFull, SettingsError
from app.models.catalog import find_entry, load_catalog
from app.models.downloads.staging import INCOMPLETE
from app.models.library.importing import Import, Way, add_model, import_model, typed_path
from engine.errors import ModelUnusable
from tests.app.models.library.places import GGUF, POCKET, gguf, hub_cache, model_folder


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


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("My Model (v1).gguf", "My-Model-v1"),
        ("Qwen2.5 \u2013 Coder.GGUF", "Qwen2.5-Coder"),
        ("модель.gguf", "model"),
        ("-_.weights.gguf", "weights"),
    ],
)
def test_a_name_is_made_from_what_a_person_calls_a_file(settings, tmp_path, file, name):
    assert import_model(settings, Import(gguf(tmp_path / file))) == name
    assert import_model(settings, Import(gguf(tmp_path / "b" / file))) == f"{name}-2"


@pytest.mark.parametrize(
    ("chosen", "exact", "remedy"),
    [("mine", True, "choose --name"), (None, True, "choose --name"), (None, False, "use that one")],
)
def test_a_second_import_is_refused_in_the_words_of_the_place(
    settings, tmp_path, chosen, exact, remedy
):
    """Exact names come from the command line, which has an option for another one."""
    asked = Import(gguf(tmp_path / "mine.gguf"), chosen, exact=exact)
    import_model(settings, asked)
    with pytest.raises(SettingsError, match=f"there is a model mine already, at .*; {remedy}$"):
        import_model(settings, asked)


@pytest.mark.parametrize("form", ["{}", '"{}"', "'{}'", "file://{address}", "{shell}", "  {}\n"])
def test_paths_as_people_paste_them(tmp_path, form):
    file = gguf(tmp_path / "My Model (v1).gguf")
    text = form.format(file, address=quote(str(file)), shell=str(file).replace(" ", "\\ "))
    assert (
        typed_path(text.replace("(", "\\(").replace(")", "\\)") if "\\" in text else text) == file
    )


def test_an_apostrophe_in_a_path_is_part_of_it(tmp_path):
    assert typed_path(f"{tmp_path}/anna's.gguf") == tmp_path / "anna's.gguf"


CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


SHAPE = json.loads((POCKET / "config.json").read_text())


def folder_of(tmp_path, **files):
    """A copy of pocket with other files; None takes one away."""
    folder = tmp_path / "it"
    shutil.copytree(POCKET, folder)
    for name, text in files.items():
        file = folder / name.replace("__", ".")
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text if isinstance(text, str) else json.dumps(text))
    return folder


CUT = (POCKET / "config.json").read_text()[:90]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"config__json": CUT}, r"config\.json cannot be read .*download the model again"),
        ({"config__json": ""}, "config.json cannot be read"),
        ({"config__json": "[]"}, "holds no fields"),
        ({"tokenizer__json": "{"}, "is not a tokenizer"),
        ({"tokenizer_config__json": "{"}, "tokenizer_config.json is not valid JSON"),
        ({"generation_config__json": "nul"}, "generation_config.json is not valid JSON"),
        ({"tokenizer__json": None}, "lacks tokenizer.json"),
        ({"config__json": {**CONFIG, "quantization_config": {"quant_method": "gptq"}}}, "quantised .gptq"),
        ({"config__json": {**CONFIG, "quantization_config": {"quant_method": "awq"}}}, "quantised .awq"),
        ({"config__json": {**CONFIG, "quantization": {"bits": 4, "group_size": 64}}}, "quantised .MLX"),
        ({"config__json": {"model_type": "bert", "architectures": ["BertForSequenceClassification"]}}, "sorts texts into classes"),
        ({"config__json": {"model_type": "bert", "architectures": ["BertForMaskedLM"]}}, "fills gaps"),
        ({"config__json": {"model_type": "t5", "is_encoder_decoder": True}}, "encoder with a decoder"),
        ({"config__json": CONFIG}, "does not give 'num_attention_heads'; get the model again"),
        ({"config__json": {**SHAPE, "vocab_size": None}}, "a sensible vocab_size: it says None"),
        ({"config__json": {**SHAPE, "hidden_size": [64]}}, "hidden_size is .64., which is no number"),
        ({"config__json": {**SHAPE, "num_key_value_heads": 2.5e9}}, "num_key_value_heads is 2500000000"),
        ({"config__json": {"model_type": "brand_new", "hidden_size": 8}}, "has no family 'brand_new'"),
        ({"config__json": {"model_type": "bert", "architectures": ["BertModel"]}}, "makes embeddings"),
        ({"modules__json": []}, "makes embeddings"),
        ({"model_index__json": {}}, "makes pictures"),
        ({"model__safetensors": None, "model__onnx": ""}, "ONNX"),
        ({"model__safetensors": "version https://git-lfs.github.com/spec/v1\n"}, "git lfs pull"),
        ({"model__safetensors.index.json": {"weight_map": {"a": "model-1.safetensors"}}}, "lacks 1 of the files"),
    ],
)  # fmt: skip
def test_an_import_checks_what_loading_checks(settings, tmp_path, files, said):
    """A folder that was quantised, cut or another kind was "ready", and then did not load."""
    folder = folder_of(tmp_path, **files)
    with pytest.raises(ModelUnusable, match=said) as caught:
        add_model(settings, Import(folder))
    assert "\n" not in str(caught.value)
    assert not [name for name in names(settings.models_folder) if name != INCOMPLETE]


def test_an_adapter_names_its_base(settings, tmp_path):
    base = {"base_model_name_or_path": "org/base"}
    folder = tmp_path / "it"
    folder.mkdir()
    (folder / "adapter_config.json").write_text(json.dumps(base))
    (folder / "adapter_model.safetensors").touch()
    with pytest.raises(ModelUnusable, match=r"is an adapter \(LoRA\).*get org/base"):
        add_model(settings, Import(folder))


@pytest.mark.parametrize(
    "name", ["generation_config.json", "special_tokens_map.json", "model.safetensors.index.json"]
)
@pytest.mark.parametrize("kind", ["a dead link", "a folder"])
def test_what_loading_does_without_keeps_no_folder_from_being_added(settings, tmp_path, name, kind):
    folder = folder_of(tmp_path)
    (folder / name).unlink(missing_ok=True)
    if kind == "a folder" and not name.startswith("model"):
        (folder / name).mkdir()
    else:
        (folder / name).symlink_to(tmp_path / "gone")
    assert add_model(settings, Import(folder)) == "it"
    assert "model.safetensors" in names(settings.models_folder / "it")


def test_weights_that_are_cut_off_are_found_before_the_load(settings, tmp_path):
    folder = folder_of(tmp_path)
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(1_000_000)
    with pytest.raises(ModelUnusable, match="is cut off: its tensors need"):
        add_model(settings, Import(folder))


def test_a_whole_folder_passes_with_a_mark_of_its_editor_too(settings, tmp_path):
    config = "\ufeff" + (POCKET / "config.json").read_text()
    assert add_model(settings, Import(folder_of(tmp_path, config__json=config))) == "it"


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (b"", "it is empty|is cut off"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"version https://git-lfs.github.com", "git lfs pull"),
        (b"PK\3\4", "ZIP archive"),
        (b"lmgg", "before GGUF"),
    ],
)
def test_a_file_that_is_no_gguf_is_called_what_it_is(settings, tmp_path, start, said):
    for name in ("it.gguf", "it.bin"):
        (tmp_path / name).write_bytes(start)
        with pytest.raises(ModelUnusable, match=said):
            add_model(settings, Import(tmp_path / name))
