"""Load a model that the transformers library runs: what it can do is tried, and the target follows."""

from engine.decoder.weights import device_named
from engine.errors import ModelUnusable
from engine.models.hf.exact import exact_target
from engine.models.hf.model import context_of, library_errors_as_ours, load_model
from engine.models.hf.running_load import running_target
from engine.models.hf.target import CroppedHfTarget, HfTarget, abilities_of
from engine.platform.device_memory import out_of_memory_as_ours
from engine.request import ModelSpec


def load(spec: ModelSpec) -> HfTarget:
    """The target of a spec; raises ModelUnusable."""
    device = device_named(spec.device)
    missing = {"int8 weights": spec.weights != "full", "inflation": spec.inflate > 1}
    missing["streamed weights"] = spec.resident is not None
    for what, wanted in missing.items():
        if wanted:
            raise ModelUnusable(
                f"{spec.name} runs on the transformers library, which has no {what} here; load it "
                "with full weights in memory"
            )
    with out_of_memory_as_ours(device):
        model = load_model(spec)
    context = context_of(model.config, spec.context)
    narrow = bool(spec.exact) and spec.dtype != "float32" and device.type == "cpu"
    with library_errors_as_ours(model.family):
        if not model.attention_only():
            running = running_target(model, context, exact=narrow)
            if running is not None:
                return running
        abilities = abilities_of(model)
    # in float32 one shape takes 1.4 to 1.9 times as long, and hardly any tie is as near as rounding moves logits
    if narrow and not abilities.trees:
        with library_errors_as_ours(model.family):
            exact = exact_target(model, context, abilities)
        if exact is not None:
            return exact
    kind = HfTarget if abilities.chains else CroppedHfTarget
    return kind(model, context, abilities)
