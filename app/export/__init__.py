"""Start commands for engines made for many machines. Registry: name -> ``module:command``.

A new engine is one file, one line here, and its flags in ``tests/data/engine_flags``.
"""

ENGINES = {
    "vllm": "app.export.vllm:command",
    "sglang": "app.export.sglang:command",
    "llama-server": "app.export.llama_server:command",
}
