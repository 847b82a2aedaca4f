"""Import: linked, copied or left where it is; and what is no model."""

import errno
import json
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from safetensors.torch import load_file, save_file

from app.errors import DiskFull, SettingsError
from app.keys.key_file import Keys
from app.models.catalog import find_entry, load_catalog
from app.models.downloads.staging import INCOMPLETE
from app.models.gguf_check import gguf_file
from app.models.library.importing import Import, Way, add_model, import_model, typed_path
from engine.errors import ModelUnusable
from engine.hardware.checkpoint_sizes import safetensors
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
    with pytest.raises(ModelUnusable, match="holds 2 GGUF models; give the path of one"):
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


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EACCES])
def test_a_disk_that_syncs_no_folders_takes_models_and_keys(settings, tmp_path, monkeypatch, code):
    """Network disks and Windows refuse it: the files were there, and the command had failed."""
    real = os.open

    def refuse(place, *given, **more):
        if Path(place).is_dir():
            raise OSError(code, os.strerror(code))
        return real(place, *given, **more)

    source = model_folder(tmp_path / "mine")
    monkeypatch.setattr("os.open", refuse)
    assert import_model(settings, Import(source)) == "mine"
    assert Keys(settings.keys_file).add("me").startswith("sk-")


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
        ({"config__json": {**SHAPE, "hidden_size": [64]}}, "hidden_size is .64., which is no whole number"),
        ({"config__json": {**SHAPE, "num_key_value_heads": 2.5e9}}, "num_key_value_heads is 2500000000"),
        ({"config__json": {**SHAPE, "hidden_size": 320.0}}, "hidden_size is 320.0, which is no whole number"),
        ({"config__json": {**SHAPE, "num_hidden_layers": True}}, "is True, which is no whole number"),
        ({"config__json": {**SHAPE, "tie_word_embeddings": "true"}}, "is 'true', which is no true or false"),
        ({"config__json": {**SHAPE, "hidden_act": None}}, "hidden_act is None, which is no name"),
        ({"config__json": {**SHAPE, "num_hidden_layers": 1}}, "layers, by config.json there are 1;"),
        ({"config__json": {**SHAPE, "num_hidden_layers": 99}}, "layers, by config.json there are 99;"),
        ({"config__json": {**SHAPE, "vocab_size": 100}}, "embed_tokens.weight has .* there are 32000;"),
        ({"config__json": {**SHAPE, "num_attention_heads": 7}}, "[qo]_proj.weight has"),
        ({"config__json": {**SHAPE, "num_key_value_heads": 1}}, "k_proj.weight has"),
        ({"config__json": {**SHAPE, "tie_word_embeddings": False}}, "the weights lack lm_head.weight"),
        ({"config__json": {"model_type": "brand_new", "hidden_size": 8}}, "has no family 'brand_new'"),
        ({"config__json": {"model_type": "bert", "architectures": ["BertModel"]}}, "makes embeddings"),
        ({"modules__json": []}, "makes embeddings"),
        ({"model_index__json": {}}, "makes pictures"),
        ({"model__safetensors": None, "model__onnx": ""}, "ONNX"),
        ({"model__safetensors": "version https://git-lfs.github.com/spec/v1\n"}, "git lfs pull"),
        ({"model__safetensors.index.json": {"weight_map": {"a": "model-1.safetensors"}}}, "lacks 1 of the files"),
        ({"model__safetensors": None, "other__safetensors": "x"}, "has no model.safetensors, and no model.safetensors.index"),
        ({"model__safetensors": ""}, "model.safetensors is empty; get the model again"),
        ({"model__safetensors": "<!DOCTYPE html>"}, "model.safetensors is a web page"),
        ({"model__safetensors": '{"error": "no"}'}, "model.safetensors is a text in JSON"),
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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize(
    "name",
    ["config.json", "tokenizer.json", "generation_config.json", "model.safetensors", "chat_template.jinja"],
)  # fmt: skip
def test_nothing_waits_for_a_pipe_in_a_folder(settings, tmp_path, name):
    folder = folder_of(tmp_path)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    with pytest.raises(ModelUnusable, match=f"{name} is a pipe or a device"):
        add_model(settings, Import(folder))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("place", ["it.gguf", "it", "/dev/zero", "/dev/null"])
def test_a_pipe_or_a_device_is_no_model(settings, tmp_path, place):
    if not place.startswith("/"):
        os.mkfifo(tmp_path / place)
    with pytest.raises(ModelUnusable, match="is a pipe or a device; give the file or folder"):
        add_model(settings, Import(tmp_path / place))


@pytest.mark.parametrize("way", Way)
def test_what_lies_beside_the_weights_is_no_part_of_the_model(settings, tmp_path, way):
    """A Mac writes ``._model.safetensors`` on other disks, and makers add the weights in another form."""
    folder = folder_of(tmp_path)
    for name in ("._model.safetensors", "._config.json", "._it.gguf"):
        (folder / name).write_bytes(b"\0\5\26\7Mac OS X")
    shutil.copyfile(folder / "model.safetensors", folder / "consolidated.safetensors")
    assert add_model(settings, Import(folder, way=way)) == "it"
    alone, both = (tuple(safetensors(place)) for place in (POCKET, folder))
    assert both == alone


@pytest.mark.parametrize("other", ["mmproj-F16.gguf", "m-00002-of-00003.gguf", "m.imatrix.gguf"])
def test_a_folder_of_what_lies_beside_a_model_says_so(settings, tmp_path, other):
    file = gguf(tmp_path / "it" / other)
    with pytest.raises(ModelUnusable, match=f"only others, such as {other}; get the model's own"):
        add_model(settings, Import(file.parent))
    whole = gguf(tmp_path / "it" / "whole.gguf")
    assert gguf_file(file.parent) == whole
    assert import_model(settings, Import(file.parent, "whole")) == "whole"


@pytest.mark.parametrize("other", ["._m.gguf", "pipe.gguf", "folder.gguf"])
def test_a_folder_with_one_gguf_may_hold_what_is_none(tmp_path, other):
    file = gguf(tmp_path / "m.gguf")
    if other.startswith("."):
        (tmp_path / other).write_bytes(b"\0\5\26\7Mac OS X")
    elif other.startswith("pipe"):
        os.mkfifo(tmp_path / other)
    else:
        (tmp_path / other).mkdir()
    assert gguf_file(tmp_path) == file


@pytest.mark.parametrize("end", ["qweight", "weight_scale_inv", "SCB", "absmax"])
def test_quantised_weights_are_known_by_their_tensors_too(settings, tmp_path, end):
    """An older tool writes what it did into a file of its own, which nothing here reads."""
    folder = folder_of(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors[f"model.layers.0.mlp.up_proj.{end}"] = tensors["model.norm.weight"].clone()
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(ModelUnusable, match=f"stored quantised .*{end}.*or a GGUF file"):
        add_model(settings, Import(folder))


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
        (b"", "is empty"),
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
