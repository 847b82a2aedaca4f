"""Registry of layer sources: name -> ``module:function(Streaming) -> LayerSource``."""

SOURCES: dict[str, str] = {
    "disk": "engine.models.offload.disk:open_disk",
    "ram": "engine.models.offload.ram:open_ram",
    "resident": "engine.models.offload.ram:open_resident",
}
