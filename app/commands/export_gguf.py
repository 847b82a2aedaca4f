"""The command ``export-gguf``: a folder of safetensors as one GGUF file."""

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

from app.commands.arguments import set_command
from app.errors import OutputFileError
from app.models.catalog import resolve
from app.models.downloads.partial_file import shown_bytes
from app.sandbox import Sandbox, SandboxEnded, SandboxTimeout
from app.settings import Settings
from app.terminal import notify, write_lines
from app.text.vocabulary import FolderVocabulary
from engine.errors import EngineError, ModelUnusable
from engine.models.gguf.export import Source, open_source, write_gguf, write_vocabulary
from engine.models.gguf.file_types import FILE_TYPES, FULL_TYPES
from engine.models.gguf.vocabulary import GgufVocabulary
from engine.platform.toolchain import GGUF_SUPPORT

SPARE = 64 << 20  # bytes of the disk left free
QUIET_SECONDS = 600.0  # longest that one tensor takes
MEMORY = 16 << 30

# Rules by llama.cpp's names, the commonest first; several models share each.
PRE = ("smollm", "qwen2", "llama-bpe", "gpt-2", "default", "deepseek-llm", "starcoder", "olmo")
SAMPLE = (
    "Hello, World! I'm sure they've 3 apples, 42 pears and 1234567 plums; 3.14159.\n"
    "  def f(x):\n\t\treturn x**2  # squared\n\n\n   \r\n if we'll  go\n"
    "naïve café Übergrößenträger Привет, мир! 你好世界。こんにちは 안녕하세요 שלום مرحبا\n"
    "😀👩‍👩‍👧 $100 50% a_b-c.d@e.fg https://x.y/z?q=1&r=2 {'k': [1, 22, 333]} I'M THEY'RE\n"
)


@dataclass(frozen=True, slots=True)
class ExportGgufOptions:
    """Which folder of safetensors becomes which GGUF file."""

    settings: Settings
    model: str
    type: str  # of the weights: a key of FILE_TYPES
    out: Path


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    option = parser.add_argument
    option("--model", required=True, help="a name of models.yaml, or a folder of safetensors")
    option("--type", choices=tuple(FILE_TYPES), required=True, help="type of the weights")
    option("--out", metavar="FILE", type=Path, required=True, help="the file to write, *.gguf")
    set_command(
        parser, lambda given, s: ExportGgufOptions(s, given.model, given.type, given.out), run
    )


def run(options: ExportGgufOptions) -> int:
    """Write the file; progress on standard error, one line of result on standard output."""
    if find_spec("gguf") is None or find_spec("llama_cpp") is None:
        raise ModelUnusable(
            f"export-gguf needs the packages gguf and llama-cpp-python; run: {GGUF_SUPPORT}"
        )
    _check_out(options.out)
    spec = resolve(options.settings, options.model)
    if spec.backend == "llama_cpp":
        raise ModelUnusable(f"{spec.folder} is a GGUF file already; give a folder with safetensors")
    source = open_source(Path(spec.folder))
    _check_space(options.out, source, options.type)
    pre = _pre(source)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=options.out.parent) as folder:
        made = _made(source, options.type, pre, Path(folder))
        made.replace(options.out)
    size = options.out.stat().st_size
    write_lines([f"{options.out} written: {shown_bytes(size)}, {options.type}"])
    return 0


def _made(source: Source, kind: str, pre: str, folder: Path) -> Path:
    """Write the file into a temporary ``folder`` and return its path."""
    full = folder / "full.gguf"
    try:
        for done, total in write_gguf(source, _full_type(source, kind), pre, full):
            _show("written", done, total)
        if kind in FULL_TYPES:
            return full
        small = folder / "small.gguf"
        _quantise(full, kind, small)
    except OSError as error:
        raise OutputFileError(
            f"the GGUF file cannot be written to {folder.parent}: {error.strerror}"
        ) from error
    return small


def _full_type(source: Source, kind: str) -> str:
    """The type to write first: full precision, from which the file is quantised."""
    if kind in FULL_TYPES:
        return kind
    stored = str(source.config.get("dtype") or source.config.get("torch_dtype"))
    return "bf16" if stored == "bfloat16" else "f32"


def _quantise(full: Path, kind: str, small: Path) -> None:
    process = Sandbox(_quantise_there, (str(full), kind, str(small)), MEMORY)
    try:
        while (message := process.receive(QUIET_SECONDS)) is not None:
            if isinstance(message, str):
                raise ModelUnusable(message)
            _show(f"made {kind}", *message)
    except (SandboxTimeout, SandboxEnded) as error:
        raise ModelUnusable(f"llama.cpp could not make {kind} of the model: {error}") from error
    finally:
        process.close()


def _quantise_there(connection: Connection, full: str, kind: str, small: str) -> None:
    """Runs in the sandbox: Ctrl-C cannot stop llama.cpp in this process."""
    from engine.models.gguf.export import quantise

    try:
        quantise(Path(full), kind, Path(small), lambda *at: connection.send(at))
    except EngineError as error:
        connection.send(str(error))
    else:
        connection.send(None)


def _pre(source: Source) -> str:
    """The llama.cpp tokenizer rule that encodes a test text as the model's own tokenizer does."""
    expected = FolderVocabulary.load(source.folder).encode(SAMPLE)
    with tempfile.TemporaryDirectory(prefix="slipstream-") as folder:
        for name in PRE:
            file = Path(folder) / f"{name}.gguf"
            write_vocabulary(source, name, file)
            vocabulary = GgufVocabulary(file)
            found = vocabulary.encode(SAMPLE, special=True)
            vocabulary.close()
            if found == expected:
                return name
    raise ModelUnusable(
        f"{source.folder}: llama.cpp has no rule that cuts text into words as this tokenizer does "
        f"(tried: {', '.join(PRE)})"
    )


def _check_out(out: Path) -> None:
    if out.exists():
        raise OutputFileError(f"{out} exists already; remove it or give another name")
    if not out.parent.is_dir():
        raise OutputFileError(f"{out} cannot be written: there is no folder {out.parent}")
    if out.suffix != ".gguf":
        raise OutputFileError(f"{out} must end in .gguf, or no program will know what it is")


def _check_space(out: Path, source: Source, kind: str) -> None:
    files = {_full_type(source, kind), kind}
    need = int(source.parameters * sum(FILE_TYPES[name].weight_bytes for name in files)) + SPARE
    free = shutil.disk_usage(out.parent).free
    if free < need:
        raise OutputFileError(
            f"{out} cannot be written: making it needs {shown_bytes(need)}, {out.parent} has "
            f"{shown_bytes(free)} free; free some or give another folder"
        )


def _show(what: str, done: int, total: int) -> None:
    if done == total or done % max(total // 10, 1) == 0:
        notify(f"{what}: {done} of {total} tensors")
