"""Targets: our own decoder, transformers, llama.cpp. Registry: name -> ``module:function(spec) -> Target``."""

TARGETS: dict[str, str] = {
    "torch": "engine.models.own.target:load",
    "cuda": "engine.models.own.cuda_target:load",  # what "torch" is on a CUDA device
    "llama_cpp": "engine.models.gguf.target:load",
    "hf": "engine.models.hf.load:load",
}

STREAMED: dict[str, str] = {  # name -> ``module:function(spec, open_source) -> Target``
    "torch": "engine.models.own.streamed_target:load_streamed",
}
