"""A first try of a GGUF file: every tensor validated, a few tokens generated, every logit finite."""

import ctypes
import os
from pathlib import Path
from types import ModuleType

import numpy as np

from engine.errors import ModelUnusable, NumericalError
from engine.models.gguf.library import ERROR, llama_library
from engine.platform.cores import usable_threads

CONTEXT = 64  # tokens: as little memory as llama.cpp takes
TEXT = b"Hello, 2 + 3!"
LONGEST_MESSAGE = 300  # characters of llama.cpp's errors that are shown


def smoke(file: Path, tokens: int) -> None:
    """Raise ModelUnusable or NumericalError unless the file loads and generates.

    llama.cpp ends the whole process on some damaged files: call this where that does no harm.
    """
    library = llama_library()
    errors: list[str] = []

    def note(level: int, text: str) -> None:
        if level == ERROR:
            errors.append(text)

    with library.listening(note):
        _smoke(library.api, file, tokens, errors)


def _smoke(api: ModuleType, file: Path, tokens: int, errors: list[str]) -> None:
    parameters = api.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.check_tensors = True
    parameters.use_extra_bufts = False  # repacked copies of the weights are not worth it here
    model = api.llama_model_load_from_file(os.fsencode(file), parameters)
    if not model:
        raise ModelUnusable(f"llama.cpp cannot load it{_reason(errors)}")
    _read(api, api.llama_model_get_vocab(model))
    if not api.llama_model_has_encoder(model) and not api.llama_model_is_diffusion(model):
        _generate(api, model, tokens, errors)


def _read(api: ModuleType, vocabulary: object) -> None:
    """A text to tokens and back: of some vocabularies, that ends the process."""
    if api.llama_vocab_type(vocabulary) == api.LLAMA_VOCAB_TYPE_NONE:
        raise ModelUnusable("it has no tokenizer, and so reads and writes no text")
    room, found = 64, (api.llama_token * 64)()
    count = api.llama_tokenize(vocabulary, TEXT, len(TEXT), found, room, False, True)  # noqa: FBT003
    piece = ctypes.create_string_buffer(room)
    for token in found[: max(count, 0)]:
        api.llama_token_to_piece(vocabulary, token, piece, room, 0, True)  # noqa: FBT003


def _generate(api: ModuleType, model: object, tokens: int, errors: list[str]) -> None:
    parameters = api.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = CONTEXT
    parameters.n_threads = parameters.n_threads_batch = usable_threads()
    context = api.llama_init_from_model(model, parameters)
    if not context:
        raise ModelUnusable(f"llama.cpp cannot make a context for it{_reason(errors)}")
    vocabulary = api.llama_model_get_vocab(model)
    size = api.llama_vocab_n_tokens(vocabulary)
    token = max(api.llama_vocab_bos(vocabulary), 0)
    for _ in range(tokens):
        row = (api.llama_token * 1)(token)
        if api.llama_decode(context, api.llama_batch_get_one(row, 1)):
            raise ModelUnusable(f"llama.cpp cannot generate with it{_reason(errors)}")
        logits = np.ctypeslib.as_array(api.llama_get_logits_ith(context, -1), (size,))
        if not np.isfinite(logits).all():
            raise NumericalError("its weights give logits that are not finite numbers")
        token = int(logits.argmax())


def _reason(errors: list[str]) -> str:
    """llama.cpp's errors in one line, for the end of a clause."""
    words = " ".join("".join(errors).split())
    shown = "".join(c if c.isprintable() else "?" for c in words[:LONGEST_MESSAGE])
    return f" ({shown})" if shown else ""
