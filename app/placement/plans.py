"""Where a model runs on this machine and in which number format: the plan, written into its spec."""

import re
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from math import prod
from pathlib import Path

from app.placement.machine import known_profile
from app.settings import Settings
from engine.decoder.config import read_config, weight_files
from engine.errors import ModelUnusable, TooLarge
from engine.hardware.checkpoint_sizes import safetensors, stored
from engine.hardware.footprint import (
    CPU,
    CUDA,
    INT8,
    LLAMA_CPP,
    TORCH,
    Footprint,
    llama_footprint,
    torch_footprint,
)
from engine.hardware.plan import Candidates, Plan, PlanConstraints, Refusal
from engine.hardware.planner import place_hf, plan
from engine.hardware.profile import HardwareProfile
from engine.hardware.shape import ModelShape, shape_of
from engine.request import ModelSpec

SMALL = 256 * 2**20  # bytes of files: below, halving saves nothing that is worth its rounding
HALVES = frozenset({"bfloat16"})
FORMS = (("bfloat16", CUDA), ("float32", CPU), ("bfloat16", CPU), (INT8, CPU))


@dataclass(frozen=True, slots=True)
class Placed:
    """What to load, and the plan that it follows; None where it is loaded whole."""

    spec: ModelSpec
    plan: Plan | None


def place(settings: Settings, spec: ModelSpec, wishes: PlanConstraints | None = None) -> Placed:
    """``spec`` with backend, dtype, context and memory as this machine has room for.

    Raises ModelUnusable with both numbers where it has none.
    """
    spec = replace(spec, exact=settings.exact, context=settings.context or spec.context)
    wishes = wishes or PlanConstraints()
    wishes = replace(
        wishes,
        context=wishes.context or settings.context,
        anyway=wishes.anyway or settings.load_anyway,
    )
    if spec.inflate != 1:
        return Placed(spec, None)
    if spec.backend not in {TORCH, LLAMA_CPP}:
        return Placed(_loaded_whole(settings, spec, wishes), None)
    machine = usable(known_profile(settings), spec.backend)
    found = plan(machine, candidates(spec, wishes), wishes)
    if isinstance(found, Refusal):
        raise TooLarge(found.sentence)
    return Placed(planned(spec, found), found)


def context_costs(spec: ModelSpec) -> tuple[tuple[int, int], ...]:
    """Sizes of a conversation, in tokens, with the bytes that each takes; none where it is unknown."""
    try:
        form = candidates(spec).forms[0]
    except (ModelUnusable, OSError):  # a family of other shapes
        return ()
    sizes = [2**power for power in range(11, form.context.bit_length()) if 2**power < form.context]
    return tuple((size, form.cache(size, 0, 1)) for size in (*sizes, form.context))


def _loaded_whole(settings: Settings, spec: ModelSpec, wishes: PlanConstraints) -> ModelSpec:
    elements = sum(count for _, count, _ in safetensors(Path(spec.folder)))
    wished = FORMATS[wishes.dtype][0] if wishes.dtype else None
    machine = usable(known_profile(settings), TORCH)
    found = place_hf(machine, spec.name, elements, wished, anyway=wishes.anyway)
    if isinstance(found, Refusal):
        raise TooLarge(found.sentence)
    return replace(spec, device=found.device, dtype=found.dtype)


def planned(spec: ModelSpec, found: Plan) -> ModelSpec:
    """The fields of ``spec`` that a plan decides."""
    gguf = found.backend == LLAMA_CPP
    return replace(
        spec,
        device=spec.device if gguf else found.device,
        dtype=spec.dtype if gguf else FORMATS[found.dtype][0],
        draft_folder=spec.draft_folder if found.draft_model else None,
        acceptance_head=spec.acceptance_head if found.draft_model else None,
        context=found.context,
        slots=found.batch,
        resident=found.resident,
        gpu_layers=found.gpu_layers if gguf else 0,
        cpu_experts=found.cpu_experts,
        windowed=found.windowed,
    )


def usable(profile: HardwareProfile, backend: str) -> HardwareProfile:
    """The machine as a backend sees it: a build for processors alone sees no GPU."""
    if not profile.gpus or (torch_for_cuda() if backend == TORCH else llama_for_cuda()):
        return profile
    return replace(profile, gpus=())


def candidates(spec: ModelSpec, wishes: PlanConstraints | None = None) -> Candidates:
    """Every form in which a model can run, from the headers of its files; raises ModelUnusable.

    A small model is rounded only where that is wished.
    """
    draft: tuple[Footprint, ...] = ()
    if spec.draft_folder is not None:
        name = Path(spec.draft_folder).name
        draft = forms(name, Path(spec.draft_folder), spec.draft_backend)
    own = forms(spec.name, Path(spec.folder), spec.backend)
    if weights_size(Path(spec.folder)) < SMALL and not (wishes and wishes.dtype):
        own = tuple(form for form in own if form.dtype not in HALVES)
    return Candidates(spec.name, own, draft, spec.exit_layer)


def forms(name: str, place: Path, backend: str) -> tuple[Footprint, ...]:
    """The footprints of one model."""
    if backend == LLAMA_CPP:
        return (_gguf(name, place),)
    shape = shape_of(read_config(place), str(place))
    held = stored(safetensors(place), shape.layers, tied=shape.tied)
    return tuple(torch_footprint(name, shape, held, dtype, device) for dtype, device in FORMS)


def _gguf(name: str, place: Path) -> Footprint:
    from engine.models.gguf.asked import goes_back, windows_of
    from engine.models.gguf.consistency import check_consistent
    from engine.models.gguf.header import read_parts
    from engine.models.gguf.model import EXPERTS
    from engine.models.gguf.state_shape import number as numbered
    from engine.models.gguf.state_shape import state_shape

    parts = read_parts(place)
    check_consistent(parts)  # what follows asks llama.cpp, which would end the process
    head = parts[0]
    tensors = [(t.name, prod(t.shape), t.bytes) for part in parts for t in part.tensors]

    number, state = partial(numbered, head), state_shape(parts)
    askable = find_spec("llama_cpp") is not None
    windows = windows_of(head) if askable and state is None else None
    fixed = askable and state is not None and not goes_back(head)
    numbers = windows.wide + windows.narrow if windows else None
    heads, hidden = number("attention.head_count"), number("embedding_length")
    vocab = next((n // max(1, hidden) for t, n, _ in tensors if t == "token_embd.weight"), 0)
    shape = ModelShape(
        hidden=hidden,
        layers=number("block_count"),
        heads=heads,
        kv_heads=number("attention.head_count_kv", heads),
        head_dim=number("attention.key_length", hidden // max(1, heads)),
        feed_forward=number("feed_forward_length"),
        vocab=vocab,
        context=number("context_length"),
        experts=number("expert_count"),
        cached=state.cached if state else numbers,
        window=windows.tokens if windows else 0,
        narrow=windows.narrow if windows else 0,
        used=number("expert_used_count"),
        state=state.state if state else 0,
        layer_state=state.layer if state else 0,
        mixed=state.mixed if state else 0,
        rollback=0 if state is None or fixed else state.rollback,
    )
    held = stored(tensors, shape.layers)
    experts = stored((one for one in tensors if re.search(EXPERTS, one[0])), shape.layers)
    sizes = [layer.bytes for layer in experts.layers]
    return llama_footprint(name, shape, held, "as in the file", sizes)


def weights_size(place: Path) -> int:
    """Of a file, or of the weights in a folder."""
    if place.is_file():
        return place.stat().st_size
    return sum(file.stat().st_size for file in weight_files(place))


def torch_for_cuda() -> bool:
    """Whether torch can use a GPU, by its version's name: importing it takes seconds."""
    return "+cpu" not in version("torch")


def llama_for_cuda() -> bool:
    """Whether llama.cpp can use a GPU, by the files of its package."""
    found = find_spec("llama_cpp")
    if found is None or found.origin is None:
        return False
    return any((Path(found.origin).parent / "lib").glob("*ggml-cuda*"))


FORMATS = {  # each of DTYPES -> (what passes compute in, how weights are held)
    "float32": ("float32", "full"),
    "bfloat16": ("bfloat16", "full"),
    "float16": ("float16", "full"),
    INT8: ("bfloat16", INT8),
}
_PLANNED = {"float16": "bfloat16"}  # as large, and known to the plan


def with_dtype(spec: ModelSpec, name: str) -> ModelSpec:
    """``spec`` in the format of that name; raises ModelUnusable for a GGUF file, which has its own."""
    if spec.backend == LLAMA_CPP:
        raise ModelUnusable(
            f"{spec.folder} is a GGUF file, whose number format is fixed; omit --dtype "
            f"{name}, or write a file of another type with slipstream export-gguf"
        )
    dtype, weights = FORMATS[name]
    return replace(spec, dtype=dtype, weights=weights)


def place_with_dtype(
    settings: Settings, spec: ModelSpec, name: str | None, wishes: PlanConstraints | None = None
) -> Placed:
    """``place`` with the weights in the format of that name; None leaves it to the plan."""
    if name is None:
        return place(settings, spec, wishes)
    asked = with_dtype(spec, name)
    wished = replace(wishes or PlanConstraints(), dtype=_PLANNED.get(name, name))
    found = place(settings, asked, wished)
    exact = replace(found.spec, dtype=asked.dtype, weights=asked.weights)
    return Placed(exact, found.plan)


def dtype_name(spec: ModelSpec) -> str:
    """The name of a spec's format, for people."""
    if spec.backend == LLAMA_CPP:
        return "numbers as in the file"
    return INT8 if spec.weights == INT8 else spec.dtype
