"""Registry of targets: name -> ``module:function(folder, dtype, device) -> Target``."""

TARGETS: dict[str, str] = {
    "torch": "engine.models.torch_target:load_target",
}
