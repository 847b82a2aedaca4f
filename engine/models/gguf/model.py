"""One GGUF file that llama.cpp has loaded, and what the library says of it."""

import ctypes
import os
from types import ModuleType

from engine.errors import ModelUnusable
from engine.models.gguf.library import Library, llama_library
from engine.request import ModelSpec

EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # in their tensors' names, as in llama.cpp
KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, "q8_0": 8, "q4_0": 2}  # name -> ggml's number


class LlamaModel:
    """The weights, until ``close``, which is the owner's duty."""

    def __init__(self, spec: ModelSpec) -> None:
        """Load ``spec.folder``; raises ModelUnusable with llama.cpp's last words."""
        self.library = llama_library()
        self.api = api = self.library.api
        self.library.errors.clear()
        with self.library.noting_types() as types:
            self.handle = _load(self.library, spec)
        if spec.exact:
            self.library.round_alike(types)
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.handle))
        self.layers = api.llama_model_n_layer(self.handle)
        self.parameters = api.llama_model_n_params(self.handle)
        self.trained = api.llama_model_n_ctx_train(self.handle)  # tokens of the longest context
        self.window = api.llama_model_n_swa(self.handle)  # tokens; 0: every layer sees all
        self.keeps_state = api.llama_model_is_recurrent(self.handle) or api.llama_model_is_hybrid(
            self.handle
        )

    @property
    def head_widths(self) -> tuple[int, int]:
        """Numbers of one head's key and value."""
        heads = max(self.api.llama_model_n_head(self.handle), 1)
        usual = self.api.llama_model_n_embd(self.handle) // heads
        key, value = (self._number(f"attention.{part}_length", usual) for part in ("key", "value"))
        return key, value

    def close(self) -> None:
        """Give the memory back; no context of it may be left."""
        if self.handle:
            self.api.llama_model_free(self.handle)
            self.handle = None

    def _number(self, name: str, otherwise: int) -> int:
        """A whole number in the file's metadata of its architecture."""
        found = _metadata(self.api, self.handle, "general.architecture")
        number = _metadata(self.api, self.handle, f"{found}.{name}")
        return int(number) if number.isdigit() else otherwise


def _metadata(api: ModuleType, model: object, key: str) -> str:
    """A value of the file's as text; empty where it has none."""
    text = ctypes.create_string_buffer(256)
    api.llama_model_meta_val_str(model, key.encode(), text, len(text))
    return text.value.decode(errors="replace")


class _Override(ctypes.Structure):
    """llama.cpp's: weights whose names match lie in this kind of memory."""

    _fields_ = (("pattern", ctypes.c_char_p), ("kind", ctypes.c_void_p))


def _experts_in_ram(layers: int) -> ctypes.Array[_Override]:
    """For the experts of the first ``layers``; an empty entry ends the list."""
    if not layers:
        return (_Override * 1)()
    from llama_cpp._ggml import libggml  # its Python names none of the kinds of memory

    libggml.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p
    numbers = "|".join(map(str, range(layers)))
    pattern = rf"blk\.({numbers}){EXPERTS}".encode()
    return (_Override * 2)(_Override(pattern, libggml.ggml_backend_cpu_buffer_type()))


def _load(library: Library, spec: ModelSpec) -> object:
    api = library.api
    if spec.kv_type not in (None, *KV_TYPES):
        raise ModelUnusable(
            f"kv_type {spec.kv_type!r} is not supported; choose {', '.join(KV_TYPES)}"
        )
    if spec.gpu_layers and not api.llama_supports_gpu_offload():
        raise ModelUnusable(
            f"{spec.gpu_layers} layers were to run on a GPU, but this build of llama.cpp has no GPU "
            "support; install one that has, or ask for 0"
        )
    params = library.model_parameters()
    # llama.cpp counts the head as one more layer
    params.n_gpu_layers = spec.gpu_layers + (spec.gpu_layers > 0)
    overrides = _experts_in_ram(spec.cpu_experts)  # kept: C holds only the address
    params.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    model = api.llama_model_load_from_file(os.fsencode(spec.folder), params)
    if not model:
        raise ModelUnusable(
            f"{spec.folder} cannot be loaded{library.last_error()}; get the file again"
        )
    if api.llama_model_has_encoder(model) or api.llama_model_is_diffusion(model):
        api.llama_model_free(model)
        raise ModelUnusable(
            f"{spec.folder} cannot be run: it is no causal language model; choose another model"
        )
    return model
