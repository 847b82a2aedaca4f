"""Registry of targets: name -> ``module:function(spec) -> Target``."""

TARGETS: dict[str, str] = {
    "torch": "engine.models.torch_target:load",
}
