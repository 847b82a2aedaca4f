"""The command ``bench gguf``: every type in one run, next to llama-cpp-python; a table, an exit code."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import file_digest, sha256
from pathlib import Path

from app.bench.gguf.measure import AUTO, CHORES, OURS, PROBLEMS, Figures, measure_file
from app.bench.gguf.rivals import LOOKUP, PLAIN
from app.bench.offload.checkpoint import model_folder, write_inflated
from app.bench.options import GGUF_KINDS, FixedBench
from app.bench.prompt_files import load_prompts
from app.bench.rows import Check, Row, RowReport, row
from app.models.catalog import resolve
from app.progress import show_progress
from engine.models.gguf.export import open_source, quantise, write_gguf
from engine.request import ModelSpec

INFLATE, HIDDEN = 32, 512
FULL = GGUF_KINDS[0]  # what the others are made from
PRE = "gpt-2"  # how llama.cpp cuts text into words: nothing is encoded with these files

EACH = 4  # open questions of every category; with two, a kind scatters by 2 %
NEVER_SLOWER = 0.97
COPIES, SOLVES = 1.8, 1.3


def run(options: FixedBench) -> int:
    """Make the files, measure them, print each type's rows; 0 only if every row holds."""
    spec = resolve(options.settings, options.model)
    prompts = load_prompts(options.prompts, EACH)
    report = RowReport(options.json)
    machine = report.machine
    report.head(
        f"{machine.cpu}, {machine.cores} cores, {machine.date}; {spec.name} with states of {HIDDEN} "
        f"numbers and feed-forward parts {INFLATE} times as wide: the same answers at a larger cost"
    )
    with model_folder(options.folder, "slipstream-gguf-") as folder:
        try:
            for kind in options.only or GGUF_KINDS:
                file = gguf_file(Path(spec.folder), kind, folder, show_progress)
                drafted = _with_draft(spec, folder)
                found = rows(kind, measure_file(drafted, file, prompts, show_progress))
                report.add(found, [f"  {name} {value}" for name, value in found[0].figures])
        finally:
            show_progress("")
    return report.close()


def rows(kind: str, figures: Figures) -> list[Row]:
    """Plain against llama-cpp-python's plain, auto against plain, auto against its prompt lookup."""
    found = figures.names()
    rates = {
        f"{kind}, {category}, {lane}, tokens/s": round(figures.rate(category, lane), 1)
        for category in found
        for lane in (OURS, AUTO, PLAIN, LOOKUP)
    }
    rates[f"{kind}, answers"] = len(figures.categories)
    rates[f"{kind}, answers of auto that are plain's, token by token"] = figures.same(AUTO, OURS)
    own = [_check(figures, category, OURS, PLAIN, NEVER_SLOWER) for category in found]
    never = [_check(figures, category, AUTO, OURS, NEVER_SLOWER) for category in found]
    never += [_check(figures, CHORES, AUTO, OURS, COPIES)] if CHORES in found else []
    if kind == "bf16" and PROBLEMS in found:
        never.append(_check(figures, PROBLEMS, AUTO, OURS, SOLVES))
    ahead = [_check(figures, category, AUTO, LOOKUP, 1.0) for category in found]
    return [
        row(f"{kind}: plain as fast as llama-cpp-python", own, rates),
        row(f"{kind}: auto never slower than plain, and faster", never, rates),
        row(f"{kind}: auto ahead of llama-cpp-python's prompt lookup", ahead, rates),
    ]


def _check(figures: Figures, category: str, lane: str, other: str, least: float) -> Check:
    return Check(f"{category}: {lane} over {other}", figures.ratio(category, lane, other), least)


def _with_draft(spec: ModelSpec, folder: Path) -> ModelSpec:
    """The model's own draft as a GGUF file: a step of 0.2 ms took 1.2 ms in torch."""
    if spec.draft_folder is None:
        return spec
    file = draft_file(Path(spec.draft_folder), folder, show_progress)
    return replace(spec, draft_folder=str(file), draft_backend="llama_cpp")


# 346M parameters of the bundled model, in rows whose lengths blocks of 256 divide, as those of the
# models that people have: of others llama.cpp makes no 4-bit blocks, but some of 5 and 8 bits.


def gguf_file(source: Path, kind: str, folder: Path, progress: Callable[[str], None]) -> Path:
    """The widened model of ``source`` as this type of GGUF, made in ``folder`` unless it is there."""
    wide = folder / f"{_named(source)}-{INFLATE}x{HIDDEN}"
    file, full = (folder / f"{wide.name}-{name}.gguf" for name in (kind, FULL))
    folder.mkdir(parents=True, exist_ok=True)
    if not full.exists():
        write_inflated(source, INFLATE, wide, progress, HIDDEN)
        _write(wide, full, progress)
    if not file.exists():
        fresh = file.with_suffix(".part")
        quantise(full, kind, fresh, lambda done, of: progress(f"{file.name}: {done} of {of}"))
        fresh.replace(file)
    return file


def draft_file(source: Path, folder: Path, progress: Callable[[str], None]) -> Path:
    """The draft model of ``source`` as it is, in full precision."""
    file = folder / f"{_named(source)}-{FULL}.gguf"
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        _write(source, file, progress)
    return file


def _named(source: Path) -> str:
    """The folder's name and a digest of its weights: new weights get new files."""
    digest = sha256()
    for weights in sorted(source.glob("*.safetensors")):
        with weights.open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return f"{source.name}-{digest.hexdigest()[:8]}"


def _write(source: Path, file: Path, progress: Callable[[str], None]) -> None:
    fresh = file.with_suffix(".part")
    for done, total in write_gguf(open_source(source), FULL, PRE, fresh):
        progress(f"{file.name}: {done} of {total} tensors")
    fresh.replace(file)
