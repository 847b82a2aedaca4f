"""What loading needs of a folder or GGUF file: checked here, for an import as for a start."""

import os
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from app.models.gguf_check import MAC_NOTES, check_gguf, gguf_file, is_special
from app.settings import Settings
from engine.decoder.config import INDEX, read_config, read_fields, weight_files
from engine.errors import ModelUnusable
from engine.hardware.checkpoint_sizes import safetensors
from engine.models.gguf.header import first_bytes

NEEDED_FILES = ("config.json", "tokenizer.json")
PICKLE_SUFFIXES = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl"})
ADAPTER, PIPELINE, SENTENCES = "adapter_config.json", "model_index.json", "modules.json"
_OTHER_WEIGHTS = {
    ".onnx": "ONNX", ".h5": "TensorFlow", ".msgpack": "Flax", ".tflite": "TensorFlow Lite",
    ".npz": "MLX or NumPy", ".mlpackage": "Core ML", ".mlmodel": "Core ML", ".engine": "TensorRT",
    ".llamafile": "a llamafile", ".task": "MediaPipe", ".pte": "ExecuTorch",
}  # fmt: skip
_OTHER_TASKS = {
    "ForSequenceClassification": "sorts texts into classes",
    "ForTokenClassification": "sorts words into classes",
    "ForQuestionAnswering": "marks answers in a given text",
    "ForMultipleChoice": "chooses among given answers",
    "ForMaskedLM": "fills gaps in a text",
    "ForImageClassification": "sorts pictures into classes",
    "ForCTC": "writes down speech",
    "RewardModel": "grades answers",
}
_ANOTHER = "choose a model that generates text"
_READ = frozenset({".json", ".jinja", ".safetensors"})


def check_model(settings: Settings, place: Path) -> Path:
    """The folder, or the GGUF file that ``place`` is or holds, once it can be loaded.

    Raises ModelUnusable with one sentence.
    """
    try:
        file = gguf_file(place)
        if file is not None:
            check_gguf(settings, file)
            return file
        if not place.is_dir():
            raise ModelUnusable(_no_model(place))
        _check_folder(place)
    except OSError as error:
        where = error.filename or place
        raise ModelUnusable(f"{where} cannot be read: {error.strerror or error}") from error
    return place


def other_kind(names: Collection[str], config: Mapping[str, Any], base: str = "") -> str:
    """What a folder or repository holds in place of a language model, and what helps; or empty.

    ``names`` are those of its files, ``base`` is the model that an adapter belongs to.
    """
    return _by_files(names, base) or _by_config(config)


def _by_files(names: Collection[str], base: str) -> str:
    if ADAPTER in names and not any(name.startswith("model") for name in names):
        merged = f"get {base}" if base else "get the model itself"
        return f"is an adapter (LoRA), which changes a model and is none: {merged}, or a merged one"
    if PIPELINE in names:
        return f"makes pictures or sound (it has {PIPELINE}); {_ANOTHER}"
    if SENTENCES in names:
        return f"makes embeddings of sentences (it has {SENTENCES}) and writes no text; {_ANOTHER}"
    return ""


def _by_config(config: Mapping[str, Any]) -> str:
    listed = config.get("architectures")
    built = [str(name) for name in listed] if isinstance(listed, list) else []
    for end, does in _OTHER_TASKS.items():
        if built and all(name.endswith(end) for name in built):
            return f"is a {built[0]}, which {does}; {_ANOTHER}"
    if config.get("is_encoder_decoder") is True:
        return f"is an encoder with a decoder ({', '.join(built) or 'by its config'}); {_ANOTHER}"
    if built and all(name.endswith("Model") and "LMHead" not in name for name in built):
        return f"is a {built[0]}, which makes embeddings and writes no text; {_ANOTHER}"
    return ""


def _no_model(path: Path) -> str:
    if path.is_file():
        return (
            f"{path} is no GGUF file ({first_bytes(path)}); give one, or a folder with "
            f"{', '.join(NEEDED_FILES)} and *.safetensors"
        )
    if is_special(path):
        return f"{path} is a pipe or a device; give the file or folder of a model"
    if os.path.lexists(path):
        return f"{path} is a link that leads nowhere; give the place where the model is now"
    if path.suffix.lower() == ".gguf":
        return f"there is no file {path}"
    return f"there is no file or folder {path}"


def _check_folder(folder: Path) -> None:
    names = {path.name for path in folder.iterdir() if not path.name.startswith(MAC_NOTES)}
    for name in sorted(names):
        if Path(name).suffix in _READ and is_special(folder / name):
            raise ModelUnusable(f"{folder / name} is a pipe or a device; get the model again")
    config = read_fields(folder / "config.json") if "config.json" in names else {}
    adapter = read_fields(folder / ADAPTER) if ADAPTER in names else {}
    base = adapter.get("base_model_name_or_path")
    if kind := other_kind(names, config, base if isinstance(base, str) else ""):
        raise ModelUnusable(f"{folder} {kind}")
    _check_files(folder, names)
    read_config(folder)
    _check_weights(folder, names)
    deque(safetensors(folder), maxlen=0)  # reads every header, and compares it with its file's size


def _check_weights(folder: Path, names: set[str]) -> None:
    """That the files which are loaded are there, and are no stand-ins."""
    files = weight_files(folder)
    if lost := [file.name for file in files if file.name not in names]:
        raise ModelUnusable(
            f"{folder} lacks {len(lost)} of the files with weights that its index names, "
            f"{lost[0]} first; get the model again"
            if INDEX in names
            else f"{folder} has no {lost[0]}, and no {INDEX} that names other files with weights; "
            "get the model again"
        )
    for file in files:
        if not file.stat().st_size:
            raise ModelUnusable(f"{file} is empty; get the model again")
        if (kind := first_bytes(file)).startswith("a "):
            raise ModelUnusable(f"{file} is {kind}")


def _check_files(folder: Path, names: set[str]) -> None:
    suffixes = {Path(name).suffix for name in names}
    missing = [name for name in NEEDED_FILES if name not in names]
    if ".safetensors" in suffixes:
        if missing:
            raise ModelUnusable(
                f"the folder {folder} lacks {' and '.join(missing)}{_instead(names)}"
            )
        return
    if pickles := sorted(name for name in names if Path(name).suffix in PICKLE_SUFFIXES):
        raise ModelUnusable(
            f"the folder {folder} has its weights as {pickles[0]}, a format that can run code "
            "when it is opened; get the model as *.safetensors"
        )
    for name in sorted(names):
        if kind := _OTHER_WEIGHTS.get(Path(name).suffix):
            raise ModelUnusable(
                f"the folder {folder} has its weights as {name} ({kind}), which does not run here; "
                "get the model as *.safetensors or *.gguf"
            )
    if ggufs := sorted(name for name in names if name.lower().endswith(".gguf")):
        raise ModelUnusable(
            f"the folder {folder} has no GGUF file with a model or its first part, only others, such as "
            f"{ggufs[0]}; get the model's own file, too"
        )
    lacking = f"{', '.join(missing)} and *.safetensors" if missing else "*.safetensors"
    raise ModelUnusable(f"the folder {folder} lacks {lacking}{_inside(folder)}")


def _instead(names: Collection[str]) -> str:
    """What another program's files say about the lack."""
    if "tokenizer.json" not in names and {"tokenizer.model", "vocab.json"} & set(names):
        return "; older forms of it are not read: get a repository of the model that has it"
    if "params.json" in names:
        return "; this is the maker's own form: get the one for the transformers library"
    return "; get the model again"


def _inside(folder: Path) -> str:
    """A folder of this one that looks like a model."""
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and (any(inner.glob("*.safetensors")) or any(inner.glob("*.gguf"))):
            return f"; perhaps you mean {inner}"
    return ""
