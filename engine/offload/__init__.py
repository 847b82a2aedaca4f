"""Registry of layer sources: name -> ``module:function(Streaming) -> LayerSource``."""

SOURCES: dict[str, str] = {
    "disk": "engine.offload.disk:open_disk",
    "ram": "engine.offload.ram:open_ram",
    "resident": "engine.offload.resident:open_resident",
}
